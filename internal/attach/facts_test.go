package attach

import (
	"errors"
	"net"
	"net/netip"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func guid(s string) *device.GUID {
	g, err := device.ParseGUID(s)
	if err != nil {
		panic(err)
	}
	return &g
}

// deviceFacts are the facts of an attachment that nothing is against, of a whole InfiniBand port.
func deviceFacts() *Facts {
	address := device.Address{Bus: "pci", Name: "0000:3b:00.0"}
	n := &device.Netdev{
		Index: 4, Name: "ibs108", AltNames: []string{"rail0"}, Kind: "ipoib", ARPType: 32, MTU: 4092, TxQueue: 256,
		HWAddr:  mac("00:00:10:29:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10"),
		Flags:   device.FlagUp,
		Address: address,
		IPoIB:   &device.IPoIB{PKey: 0xffff, Mode: device.ModeConnected, Umcast: 1},
		Addrs: []device.Addr{
			{Prefix: netip.MustParsePrefix("10.8.0.1/24"), Valid: ^uint32(0), Preferred: ^uint32(0)},
		},
	}
	hca := &device.HCA{
		Index: 1, Name: "mlx5_0", NodeGUID: *guid("0002c90300fa0010"), Address: address,
		Ports: []device.Port{
			{Number: 1, State: device.PortActive, Phys: device.PhysLinkUp, LinkLayer: device.InfiniBand},
		},
	}
	f := &Facts{
		Config:     &netconf.Config{Mode: netconf.ModeDevice, RDMA: netconf.RDMAAuto},
		IfName:     "net1",
		ChildGroup: 1 << 30,
		Pod:        true,
		Policy:     &policy.Policy{},
		RDMA:       true,
		NetnsMode:  device.NetnsExclusive,
		Device: &Device{
			DeviceKey: address.String(), Address: address, PCI: address.Name, Driver: "mlx5_core", Netdev: n, HCA: hca,
		},
	}
	f.Config.Selector = netconf.Selector{Kind: netconf.ByName, Field: "device", Value: "ibs108"}
	return f
}

var pf = device.Address{Bus: "pci", Name: "0000:3b:00.9"}

// vfFacts are those of an InfiniBand VF.
func vfFacts() *Facts {
	f := deviceFacts()
	f.VF = &device.VF{PF: pf, PFName: "ibpf", Index: 2, Driver: "mlx5_core", IB: true}
	return f
}

// ethernetFacts are those of an Ethernet VF.
func ethernetFacts() *Facts {
	f := deviceFacts()
	n := f.Device.Netdev
	n.Kind, n.ARPType, n.IPoIB, n.HWAddr, n.Name = "", 1, nil, mac("02:00:00:00:00:07"), "ens1f0v2"
	f.Device.HCA.Ports[0].LinkLayer = device.Ethernet
	f.VF = &device.VF{PF: pf, PFName: "ens1f0", Index: 2, Driver: "mlx5_core"}
	f.VF.MAC = mac("00:00:00:00:00:00")
	return f
}

// childFacts are those of an IPoIB child.
func childFacts() *Facts {
	f := deviceFacts()
	f.Config = &netconf.Config{Mode: netconf.ModeIPoIB, Master: "ibs108"}
	f.IPoIBLoaded = true
	return f
}

// chainFacts are those of a device that an earlier plugin of the chain has moved into the pod.
func chainFacts() *Facts {
	f := deviceFacts()
	f.Config.Mode = netconf.ModeRDMA
	f.Device.Side, f.Chained.Side = plan.Pod, plan.Pod
	return f
}

func live() *Owner {
	return &Owner{
		ContainerID: "c0ffee", IfName: "net1", Network: "rails", NetnsPath: "/run/netns/a",
		DeviceKey: "pci/0000:3b:00.0",
		Alive:     true,
	}
}

func dead() *Owner {
	o := live()
	o.Alive = false
	return o
}

// missing takes the device away.
func missing(f *Facts) { f.Device, f.Missing = nil, errors.New("get netdev ibs108: no such device") }

// promises are what a claim of another pod gives.
func promises(device string) []Promise {
	return []Promise{{Pod: "default/p2", Claim: "default/rails", Device: device}}
}

// kubelets are what kubelet gives another pod.
func kubelets(device string) []Promise {
	return []Promise{{Pod: `of UID "7d2c-9"`, Resource: `"fabric.dev/ib"`, Device: device}}
}

// allocated makes the node's policy want what kubelet gives, and says what that is.
func allocated(f *Facts, g Allotment) { f.Policy.RequireAllocated, f.Allotment = on(), g }

func on() *bool { return new(true) }
