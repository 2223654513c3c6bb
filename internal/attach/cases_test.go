package attach

import (
	"errors"
	"net"
	"net/netip"
	"strings"

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

// factsOf are the facts of an attachment that nothing is against: of a VF, a child, a chain, or a whole InfiniBand
// port, by the first word of a case.
func factsOf(name string) *Facts {
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
			Claim: address.String(), Address: address, PCI: address.Name, Driver: "mlx5_core", Netdev: n, HCA: hca,
		},
	}
	f.Config.Selector = netconf.Selector{Kind: netconf.ByName, Field: "device", Value: "ibs108"}
	pf := device.Address{Bus: "pci", Name: "0000:3b:00.9"}
	kind, _, _ := strings.Cut(name, " ")
	switch kind {
	case "child":
		f.Config = &netconf.Config{Mode: netconf.ModeIPoIB, Master: "ibs108"}
		f.IPoIBLoaded = true
	case "chain":
		f.Config.Mode = netconf.ModeRDMA
		f.Device.Side, f.Chained.Side = plan.Pod, plan.Pod
	case "vf":
		f.VF = &device.VF{PF: pf, PFName: "ibpf", Index: 2, Driver: "mlx5_core", IB: true}
	case "ethernet":
		n.Kind, n.ARPType, n.IPoIB, n.HWAddr, n.Name = "", 1, nil, mac("02:00:00:00:00:07"), "ens1f0v2"
		hca.Ports[0].LinkLayer = device.Ethernet
		f.VF = &device.VF{PF: pf, PFName: "ens1f0", Index: 2, Driver: "mlx5_core"}
		f.VF.MAC = mac("00:00:00:00:00:00")
	}
	return f
}

func live() *Owner {
	return &Owner{
		ContainerID: "c0ffee", IfName: "net1", Network: "rails", NetnsPath: "/run/netns/a", Claim: "pci/0000:3b:00.0",
		Alive: true,
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
func allocated(f *Facts, g Given) { f.Policy.RequireAllocated, f.Given = on(), g }

func on() *bool { return new(true) }

// decisions are what makes each case differ from the facts that nothing is against.
var decisions = map[string]func(*Facts){
	"device":        func(*Facts) {},
	"device shared": func(f *Facts) { f.NetnsMode = device.NetnsShared },
	"device settings": func(f *Facts) {
		f.Config.MTU, f.Config.RDMAName, f.Config.SourceBased = 2000, "rail", true
	},
	"device without RDMA": func(f *Facts) { f.Config.RDMA = netconf.RDMANone },
	"device without RDMA support": func(f *Facts) {
		f.RDMA, f.Device.HCA, f.Config.RDMA = false, nil, netconf.RDMAExclusive
	},
	"device without RDMA device":       func(f *Facts) { f.Device.HCA, f.Config.RDMA = nil, netconf.RDMAExclusive },
	"device of a claim of another pod": func(f *Facts) { f.Promises = promises("pci/0000:3b:00.0") },
	"device of claims used up": func(f *Facts) {
		f.Unselected, f.Device, f.Claims = true, nil, claims("net1", "net2", "net3")
	},
	"device of claims before them": func(f *Facts) { // kubelet has given it: nothing is against it
		f.Claims = &Claims{Fabric: "ib", PodUID: "7d2c", DeviceID: "0000:3b:00.0"}
	},
	"vf of a PF that a claim gives": func(f *Facts) {
		f.PF, f.Promises = &device.Address{Bus: "pci", Name: "0000:3b:00.9"}, promises("pci/0000:3b:00.9")
	},
	"device with a VF that a claim gives": func(f *Facts) { f.Promises = promises("pci/0000:3b:00.2") },
	"child of a HCA that claims share": func(f *Facts) {
		f.Promises = promises("pci/0000:3b:00.0")
		f.Promises[0].Shared = true
	},
	"child of a HCA that a claim gives":     func(f *Facts) { f.Promises = promises("pci/0000:3b:00.0") },
	"chain of a claim of another pod":       func(f *Facts) { f.Promises = promises("pci/0000:3b:00.0") },
	"device that kubelet gives another pod": func(f *Facts) { f.Promises = kubelets("pci/0000:3b:00.0") },
	"child of a HCA that kubelet gives another pod": func(f *Facts) {
		f.Promises = kubelets("pci/0000:3b:00.0")
	},
	"child of a HCA that kubelet shares": func(f *Facts) {
		f.Promises = kubelets("pci/0000:3b:00.0")
		f.Promises[0].Shared = true
	},
	"device not given":             func(f *Facts) { allocated(f, Given{}) },
	"device of a Fabric not given": func(f *Facts) { allocated(f, Given{Resource: "fabric.dev/ib"}) },
	"device given":                 func(f *Facts) { allocated(f, Given{Whole: true}) },
	"device of no pod":             func(f *Facts) { allocated(f, Given{NoUID: true}) },
	"device of a plan":             func(f *Facts) { allocated(f, Given{Unjudged: true, NoUID: true}) },
	"device not known to be given": func(f *Facts) { allocated(f, Given{Unknown: errors.New("read X: damaged")}) },
	"device given in shares":       func(f *Facts) { allocated(f, Given{Resource: "fabric.dev/ib", Shares: 2}) },
	"chain not given":              func(f *Facts) { allocated(f, Given{}) },
	"chain shared and not given":   func(f *Facts) { allocated(f, Given{}); f.NetnsMode = device.NetnsShared },
	"child of no Fabric":           func(f *Facts) { allocated(f, Given{}) },
	"child without a share":        func(f *Facts) { allocated(f, Given{Resource: "fabric.dev/ib"}) },
	"child of no pod":              func(f *Facts) { allocated(f, Given{Resource: "fabric.dev/ib", NoUID: true}) },
	"child of the last share": func(f *Facts) {
		allocated(f, Given{Resource: "fabric.dev/ib", Shares: 3, Children: 2})
	},
	"child once more than shares": func(f *Facts) {
		allocated(f, Given{Resource: "fabric.dev/ib", Shares: 2, Children: 2})
	},
	"child of a HCA given as a whole": func(f *Facts) { allocated(f, Given{Resource: "fabric.dev/ib", Whole: true}) },
	"child without a share, allowed":  func(f *Facts) { f.Given = Given{Resource: "fabric.dev/ib"} },
	"device that has no face":         func(f *Facts) { f.Device.HCA, f.Device.Netdev = nil, nil },
	"device for userspace": func(f *Facts) {
		f.Device.HCA, f.Device.Netdev, f.Device.Driver, f.Config.VF.VFIO = nil, nil, "vfio-pci", true
	},
	"device not for userspace": func(f *Facts) { f.Config.VF.VFIO = true },
	"device exclusive on shared": func(f *Facts) {
		f.NetnsMode, f.Config.RDMA = device.NetnsShared, netconf.RDMAExclusive
	},
	"device shared on exclusive": func(f *Facts) { f.Config.RDMA = netconf.RDMAShared },
	"device name taken":          func(f *Facts) { f.NameTaken = "eth7" },
	"device missing":             missing,
	"device missing for STATUS":  func(f *Facts) { missing(f); f.Pod, f.Config.RDMA = false, netconf.RDMAShared },
	"device missing without RDMA": func(f *Facts) {
		missing(f)
		f.RDMA, f.Config.RDMA = false, netconf.RDMAExclusive
	},
	"device ambiguous":         func(f *Facts) { missing(f); f.Ambiguous = true },
	"device in a pod":          func(f *Facts) { missing(f); f.Holder = live() },
	"device in a dead pod":     func(f *Facts) { missing(f); f.Holder = dead() },
	"device owned":             func(f *Facts) { f.Owner = live() },
	"device owned by the dead": func(f *Facts) { f.Owner = dead() },
	"device owner unreadable":  func(f *Facts) { f.Owner = live(); f.Owner.Unreadable = errors.New("bad JSON") },
	"device earlier ADD":       func(f *Facts) { f.Earlier = dead(); f.Earlier.Self = true },
	"device attached already":  func(f *Facts) { f.Earlier = live(); f.Earlier.Self = true },
	"device earlier unreadable": func(f *Facts) {
		f.Earlier = &Owner{Self: true, ContainerID: "c", Unreadable: errors.New("bad")}
	},
	"device forbidden":           func(f *Facts) { f.Policy.Devices = []string{"ens*"} },
	"device listed by RDMA name": func(f *Facts) { f.Policy.Devices = []string{"mlx5_0"} },
	"device shared and listed by RDMA name": func(f *Facts) {
		f.NetnsMode, f.Policy.Devices = device.NetnsShared, []string{"ens*", "mlx5_0"}
	},
	"device shared and listed by address": func(f *Facts) {
		f.NetnsMode, f.Policy.Devices = device.NetnsShared, []string{"0000:3b:*"}
	},
	"chain listed by its name in the pod": func(f *Facts) { f.Policy.Devices = []string{"ibs108", "rail0"} },
	"device virtual": func(f *Facts) {
		f.Device = &Device{Claim: "netdev/cali1", Netdev: &device.Netdev{Index: 9, Name: "cali1", Kind: "veth"}}
	},
	"device policy unreadable": func(f *Facts) { f.Policy, f.PolicyErr = nil, errors.New("policy.json: bad") },
	"device port down":         func(f *Facts) { f.Device.HCA.Ports[0].State = device.PortInit },
	"device port down allowed": func(f *Facts) {
		f.Device.HCA.Ports[0].State, f.Config.AllowDown = device.PortDown, true
	},
	"device with children":          func(f *Facts) { f.Children = []Child{{Owner: live()}, {Netdev: "ib9"}} },
	"device with children of a pod": func(f *Facts) { f.Children = []Child{{Owner: live()}} },
	"device with dead children":     func(f *Facts) { f.Children = []Child{{Owner: dead()}} },
	"device with siblings":          func(f *Facts) { f.Siblings = []string{"ib1"} },
	"device with uppers of the host": func(f *Facts) {
		f.Device.Netdev.Master = 9
		f.Policy.AllowEnslaved = []string{"*"}
		f.Uppers = []device.Upper{
			{Netdev: device.Netdev{Index: 9, Name: "bond0", Kind: "bond"}, On: 4},
			{Netdev: device.Netdev{Index: 10, Name: "eth0.7", Kind: "vlan"}, On: 4},
			{Netdev: device.Netdev{Index: 11, Name: "bond0.7", Kind: "vlan"}, On: 9},
		}
	},
	"device in use by the host": func(f *Facts) { f.Users = []string{"kernel module nvme_rdma", "process 7 (rping)"} },
	"device in use by the host that the policy lets go": func(f *Facts) {
		f.Users, f.Policy.AllowHostUse = []string{"kernel module nvme_rdma"}, []string{"mlx5_0"}
	},
	"device in use by the host in shared mode": func(f *Facts) {
		f.Users, f.NetnsMode = []string{"kernel module nvme_rdma"}, device.NetnsShared
	},
	"chain in use by the host": func(f *Facts) { f.Users = []string{"kernel module rpcrdma"} },
	"ethernet with a macvlan in another namespace": func(f *Facts) {
		f.Strays = []Place{{Interface: "macvlan net1\x1b[2J", Netns: "/run/netns/other"}}
	},
	"device with a soft RDMA device": func(f *Facts) { f.SoftRDMA = []string{"rxe0", "siw0"} },
	"device that is a soft RDMA device": func(f *Facts) {
		missing(f)
		f.Config.Selector = netconf.Selector{Kind: netconf.ByRDMADevice, Field: "rdmaDevice", Value: "rxe0"}
		f.Soft = &Soft{Name: "rxe0", Netdev: "ens1f0"}
	},
	"device that is a soft RDMA device somewhere": func(f *Facts) {
		missing(f)
		f.Config.Selector = netconf.Selector{Kind: netconf.ByRDMADevice, Field: "rdmaDevice", Value: "rxe0"}
		f.Soft = &Soft{Name: "rxe0"}
	},
	"device with programs of the host": func(f *Facts) {
		f.Device.Netdev.Kept.Programs = []device.Program{
			{Hook: device.XDPDriver, ID: 17}, {Hook: device.TCXIngress, ID: 19, Link: 4},
		}
	},
	"device everything wrong": func(f *Facts) {
		f.NameTaken, f.Owner, f.Siblings, f.Children = "net1", live(), []string{"ib1"}, []Child{{Netdev: "ib9"}}
		f.Policy.Devices, f.Config.RDMA = []string{"ens*"}, netconf.RDMAShared
		f.Device.HCA.Ports[0].State, f.Config.VF.Trust = device.PortDown, on()
	},
	"device RDMA name of another device": func(f *Facts) {
		f.Config.RDMAName, f.RDMANameHolder = "mlx5_3", "device pci/0000:5e:00.0, which container c9 has as net1"
	},
	"device RDMA name in shared mode": func(f *Facts) {
		f.Config.RDMAName, f.RDMANameHolder, f.NetnsMode = "mlx5_3", "device pci/0000:5e:00.0", device.NetnsShared
	},
	"device RDMA name auto": func(f *Facts) {
		f.Config.RDMAName, f.RDMANamesPerNetns, f.RDMANamesInPod = "auto", true, []string{"mlx5_0", "mlx5_2", "mlx5_0"}
	},
	"device RDMA name auto in the whole system": func(f *Facts) { f.Config.RDMAName = "auto" },

	"device PF of a VF in a pod": func(f *Facts) { f.VFOwners = []VFOwner{{VF: "0000:3b:00.4", Owner: *live()}} },
	"device interface elsewhere": func(f *Facts) {
		f.Device.Netdev, f.IPoIBLoaded = nil, true
		f.Elsewhere = &Place{Interface: "net1\x1b[2J", Netns: "/run/netns/other"}
	},
	"device interface nowhere": func(f *Facts) { f.Device.Netdev, f.IPoIBLoaded = nil, true },
	"ethernet interface elsewhere": func(f *Facts) {
		f.Device.Netdev, f.Elsewhere = nil, &Place{Interface: "net1", Netns: "/run/netns/other"}
	},
	"ethernet interface nowhere":      func(f *Facts) { f.Device.Netdev, f.StrayNetdev = nil, true },
	"ethernet RDMA without interface": func(f *Facts) { f.Device.Netdev = nil },
	"device without IPoIB":            func(f *Facts) { f.Device.Netdev = nil },
	"chain interface elsewhere": func(f *Facts) {
		f.Device.Netdev, f.IPoIBLoaded, f.Elsewhere = nil, true, &Place{Interface: "net1", Netns: "/proc/7/ns/net"}
	},
	"device PF of VFs": func(f *Facts) { f.VFs = make([]device.VFAttrs, 2) },
	"vf of a PF that a pod has": func(f *Facts) {
		f.PF, f.PFOwner = &f.VF.PF, live()
		f.PFOwner.Claim = f.PF.String()
	},
	"vf of a PF that a dead pod had": func(f *Facts) {
		f.PF, f.PFOwner = &f.VF.PF, dead()
		f.PFOwner.Claim = f.PF.String()
	},
	"chain VF of a PF that a pod has": func(f *Facts) {
		f.PF, f.PFOwner = &device.Address{Bus: "pci", Name: "0000:3b:00.9"}, live()
	},
	"device PF of a dead VF": func(f *Facts) { f.VFOwners = []VFOwner{{VF: "0000:3b:00.4", Owner: *dead()}} },
	"device setting of a VF": func(f *Facts) { f.Config.VF.Trust = on() },
	"device ib-kubernetes":   func(f *Facts) { f.Config.VF.IBKubernetes = true },

	"vf":      func(*Facts) {},
	"vf GUID": func(f *Facts) { f.Config.VF.GUID = guid("001122334455660a") },
	"vf GUID in use": func(f *Facts) {
		f.Config.VF.GUID, f.GUIDHolder = guid("001122334455660a"), "VF 3 of ibpf"
	},
	"vf same GUID":    func(f *Facts) { f.Config.VF.GUID = guid("0002c90300fa0010") },
	"vf without GUID": func(f *Facts) { f.Device.HCA.NodeGUID = 0 },
	"vf link state": func(f *Facts) {
		f.Config.VF.LinkState = "enable"
		f.Device.HCA.Ports[0].State = device.PortDown
	},
	"vf vlan":              func(f *Facts) { f.Config.VF.VLAN = new(7) },
	"vf of another tenant": func(f *Facts) { f.OtherTenant = true },
	"vf of another tenant with a GUID": func(f *Facts) {
		f.OtherTenant, f.Config.VF.GUID = true, guid("001122334455660a")
	},
	"vf of another tenant with its port down": func(f *Facts) { // it is left alone
		f.OtherTenant, f.Device.HCA.Ports[0].State = true, device.PortDown
	},
	"vf of another tenant whose PF has no interface": func(f *Facts) {
		f.OtherTenant, f.VF.PFName, f.Device.HCA.NodeGUID = true, "", 0
	},
	"ethernet of another tenant": func(f *Facts) { f.OtherTenant = true },
	"vf of a PF in a pod":        func(f *Facts) { f.VF.PFName, f.Config.VF.LinkState = "", "enable" },
	"ethernet": func(f *Facts) {
		f.Config.VF.VLAN, f.Config.VF.MAC, f.Config.VF.Trust = new(7), mac("02:00:00:00:00:99"), on()
		f.Policy.VF = policy.VF{TrustOn: policy.Patterns{"*"}, VLANs: []policy.VLANRange{{First: 5, Last: 7}}}
	},
	"ethernet vlan that the policy does not have": func(f *Facts) { f.Config.VF.VLAN = new(7) },
	"ethernet GUID":         func(f *Facts) { f.Config.VF.GUID = guid("001122334455660a") },
	"ethernet mac of no VF": func(f *Facts) { f.VF, f.Config.VF.MAC = nil, mac("02:00:00:00:00:99") },
	"ethernet port down with its netdev": func(f *Facts) {
		f.Device.HCA.Ports[0].State, f.Device.Netdev.Flags = device.PortDown, 0
	},

	"ethernet mac in use": func(f *Facts) {
		f.Config.VF.MAC = mac("02:00:00:00:00:99")
		f.MACHolder = &Duplicate{Value: "02:00:00:00:00:99", By: "interface eth1 of the host"}
	},
	"ethernet address in use": func(f *Facts) {
		f.AddrHolder = &Duplicate{Value: "10.0.0.1", By: "container c9 (net1, network n, device x)", Pod: true}
	},
	"child address in use": func(f *Facts) {
		f.AddrHolder = &Duplicate{Value: "10.0.0.1", By: "container c9 (net1, network n, device x)", Pod: true}
	},

	"child": func(*Facts) {},
	"child settings": func(f *Facts) {
		f.Config.IPoIBMode, f.Config.Umcast, f.Config.MTU, f.Config.PKey = "datagram", on(), 1500, 0x8001
	},
	"child rail": func(f *Facts) { f.Config.SourceBased, f.Config.IPoIBMode = true, "connected" },
	"child no partition": func(f *Facts) {
		f.Config.PKey, f.PKeys, f.PKeysKnown = 0x8001, []device.PKey{0xffff}, true
	},
	"child of a child": func(f *Facts) { f.Device.Netdev.Parent, f.Parents = 3, []string{"ib0", "ib1"} },
	"child of no IPoIB": func(f *Facts) {
		f.Device.Netdev.Kind, f.Device.Netdev.ARPType, f.Device.Netdev.IPoIB = "veth", 1, nil
	},
	"child forbidden":       func(f *Facts) { f.Policy.Devices = []string{"ens*"} },
	"child port down":       func(f *Facts) { f.Device.HCA.Ports[0].State = device.PortDown },
	"child without module":  func(f *Facts) { missing(f); f.IPoIBLoaded = false },
	"child without master":  missing,
	"child name taken":      func(f *Facts) { f.NameTaken = "net1" },
	"child of a pod's":      func(f *Facts) { f.Owner = live() },
	"child shared and none": func(f *Facts) { f.Config.RDMA, f.NetnsMode = netconf.RDMANone, device.NetnsShared },

	"chain":        func(*Facts) {},
	"chain shared": func(f *Facts) { f.NetnsMode = device.NetnsShared },
	"chain RoCE": func(f *Facts) {
		f.Device.Netdev.Kind, f.Device.Netdev.ARPType, f.Device.Netdev.IPoIB = "", 1, nil
	},
	"chain IPoIB at home": func(f *Facts) { f.Device.Side = plan.Host },
	"chain RoCE at home": func(f *Facts) {
		f.Device.Side, f.Device.Netdev.Kind, f.Device.Netdev.ARPType, f.Device.Netdev.IPoIB = plan.Host, "", 1, nil
		f.Device.Netdev.Master = 9
	},
	"chain no RDMA device": func(f *Facts) { f.Device.HCA = nil },
	"chain two interfaces": func(f *Facts) { f.Device, f.Unselected, f.Chained.Interfaces = nil, true, 2 },
	"chain no hardware":    func(f *Facts) { missing(f); f.Unselected, f.Chained.NoHardware = true, "net1" },
	"chain no hardware but a soft RDMA device": func(f *Facts) {
		missing(f)
		f.Unselected, f.Chained.NoHardware, f.Soft = true, "net1", &Soft{Name: "rxe0", Netdev: "net1"}
	},
	"chain with children": func(f *Facts) { f.Children = []Child{{Netdev: "ib9"}} },
	"chain port down":     func(f *Facts) { f.Device.HCA.Ports[0].State = device.PortDown },
}
