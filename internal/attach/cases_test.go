package attach

import (
	"errors"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

var errUnread = errors.New("read X: damaged")

// decisions are the cases of each kind of attachment: what makes them differ from the facts of the usual one.
var decisions = []struct {
	kind  string
	usual func() *Facts
	cases map[string]func(*Facts)
}{
	{"device", deviceFacts, deviceCases},
	{"vf", vfFacts, vfCases},
	{"ethernet", ethernetFacts, ethernetCases},
	{"child", childFacts, childCases},
	{"chain", chainFacts, chainCases},
}

var deviceCases = map[string]func(*Facts){
	"promised a partition that it has": func(f *Facts) {
		f.Config.PKey, f.PKeys, f.PKeysKnown = 0x8001, []device.PKey{0xffff, 1}, true
	},
	"promised a partition": func(f *Facts) {
		f.Config.PKey, f.PKeys, f.PKeysKnown = 0x8001, []device.PKey{0xffff}, true
	},
	"promised a partition, or down": func(f *Facts) {
		f.Config.PKey, f.Config.AllowDown, f.PKeys, f.PKeysKnown = 0x8001, true, []device.PKey{0xffff}, true
	},
	"usual":  func(*Facts) {},
	"shared": func(f *Facts) { f.NetnsMode = device.NetnsShared },
	"settings": func(f *Facts) {
		f.Config.MTU, f.Config.RDMAName, f.Config.SourceBased = 2000, "rail", true
	},
	"RoCE mode":    func(f *Facts) { f.Config.RoCEMode = "v1" },
	"without RDMA": func(f *Facts) { f.Config.RDMA = netconf.RDMANone },
	"without RDMA support": func(f *Facts) {
		f.RDMA, f.Device.HCA, f.Config.RDMA = false, nil, netconf.RDMAExclusive
	},
	"without RDMA device":       func(f *Facts) { f.Device.HCA, f.Config.RDMA = nil, netconf.RDMAExclusive },
	"of a claim of another pod": func(f *Facts) { f.Promises = promises("pci/0000:3b:00.0") },
	"of claims used up": func(f *Facts) {
		f.Unselected, f.Device, f.Claims = true, nil, claims("net1", "net2", "net3")
	},
	"of claims before them": func(f *Facts) { // kubelet has given it: nothing is against it
		f.Claims = &Claims{Fabric: "ib", PodUID: "7d2c", DeviceID: "0000:3b:00.0"}
	},
	"with a VF that a claim gives":   func(f *Facts) { f.Promises = promises("pci/0000:3b:00.2") },
	"that kubelet gives another pod": func(f *Facts) { f.Promises = kubelets("pci/0000:3b:00.0") },
	"not given":                      func(f *Facts) { allocated(f, Allotment{}) },
	"of a Fabric not given":          func(f *Facts) { allocated(f, Allotment{Resource: "fabric.dev/ib"}) },
	"given":                          func(f *Facts) { allocated(f, Allotment{Whole: true}) },
	"of no pod":                      func(f *Facts) { allocated(f, Allotment{NoUID: true}) },
	"of a plan":                      func(f *Facts) { allocated(f, Allotment{Unjudged: true, NoUID: true}) },
	"not known to be given":          func(f *Facts) { allocated(f, Allotment{Unknown: errUnread}) },
	"given in shares":                func(f *Facts) { allocated(f, Allotment{Resource: "fabric.dev/ib", Shares: 2}) },
	"that has no face":               func(f *Facts) { f.Device.HCA, f.Device.Netdev = nil, nil },
	"for userspace": func(f *Facts) {
		f.Device.HCA, f.Device.Netdev, f.Device.Driver, f.Config.VF.VFIO = nil, nil, "vfio-pci", true
	},
	"not for userspace": func(f *Facts) { f.Config.VF.VFIO = true },
	"exclusive on shared": func(f *Facts) {
		f.NetnsMode, f.Config.RDMA = device.NetnsShared, netconf.RDMAExclusive
	},
	"shared on exclusive": func(f *Facts) { f.Config.RDMA = netconf.RDMAShared },
	"name taken":          func(f *Facts) { f.NameTaken = "eth7" },
	"missing":             missing,
	"missing for STATUS":  func(f *Facts) { missing(f); f.Pod, f.Config.RDMA = false, netconf.RDMAShared },
	"missing without RDMA": func(f *Facts) {
		missing(f)
		f.RDMA, f.Config.RDMA = false, netconf.RDMAExclusive
	},
	"ambiguous":         func(f *Facts) { missing(f); f.Ambiguous = true },
	"in a pod":          func(f *Facts) { missing(f); f.Holder = live() },
	"in a dead pod":     func(f *Facts) { missing(f); f.Holder = dead() },
	"owned":             func(f *Facts) { f.Owner = live() },
	"owned by the dead": func(f *Facts) { f.Owner = dead() },
	"owner unreadable":  func(f *Facts) { f.Owner = live(); f.Owner.Unreadable = errors.New("bad JSON") },
	"earlier ADD":       func(f *Facts) { f.Earlier = dead(); f.Earlier.Self = true },
	"attached already":  func(f *Facts) { f.Earlier = live(); f.Earlier.Self = true },
	"earlier unreadable": func(f *Facts) {
		f.Earlier = &Owner{Self: true, ContainerID: "c", Unreadable: errors.New("bad")}
	},
	"forbidden":           func(f *Facts) { f.Policy.Devices = []string{"ens*"} },
	"listed by RDMA name": func(f *Facts) { f.Policy.Devices = []string{"mlx5_0"} },
	"shared and listed by RDMA name": func(f *Facts) {
		f.NetnsMode, f.Policy.Devices = device.NetnsShared, []string{"ens*", "mlx5_0"}
	},
	"shared and listed by address": func(f *Facts) {
		f.NetnsMode, f.Policy.Devices = device.NetnsShared, []string{"0000:3b:*"}
	},
	"virtual": func(f *Facts) {
		f.Device = &Device{DeviceKey: "netdev/cali1", Netdev: &device.Netdev{Index: 9, Name: "cali1", Kind: "veth"}}
	},
	"policy unreadable": func(f *Facts) { f.Policy, f.PolicyErr = nil, errors.New("policy.json: bad") },
	"port down":         func(f *Facts) { f.Device.HCA.Ports[0].State = device.PortInit },
	"port down allowed": func(f *Facts) {
		f.Device.HCA.Ports[0].State, f.Config.AllowDown = device.PortDown, true
	},
	"with children":          func(f *Facts) { f.Children = []Child{{Owner: live()}, {Netdev: "ib9"}} },
	"with children of a pod": func(f *Facts) { f.Children = []Child{{Owner: live()}} },
	"with dead children":     func(f *Facts) { f.Children = []Child{{Owner: dead()}} },
	"with siblings":          func(f *Facts) { f.Siblings = []string{"ib1"} },
	"with other ports":       func(f *Facts) { f.OtherPorts = otherPorts },
	"with all ports":         func(f *Facts) { f.OtherPorts, f.Config.AllPorts = otherPorts, true },
	"of a bond":              func(f *Facts) { f.Bond = "bond0" },
	"with uppers of the host": func(f *Facts) {
		f.Device.Netdev.Master = 9
		f.Policy.AllowEnslaved = []string{"*"}
		f.Uppers = []device.Upper{
			{Netdev: device.Netdev{Index: 9, Name: "bond0", Kind: "bond"}, On: 4},
			{Netdev: device.Netdev{Index: 10, Name: "eth0.7", Kind: "vlan"}, On: 4},
			{Netdev: device.Netdev{Index: 11, Name: "bond0.7", Kind: "vlan"}, On: 9},
		}
	},
	"in use by the host": func(f *Facts) { f.Users = []string{"kernel module nvme_rdma", "process 7 (rping)"} },
	"in use by the host that the policy lets go": func(f *Facts) {
		f.Users, f.Policy.AllowHostUse = []string{"kernel module nvme_rdma"}, []string{"mlx5_0"}
	},
	"in use by the host in shared mode": func(f *Facts) {
		f.Users, f.NetnsMode = []string{"kernel module nvme_rdma"}, device.NetnsShared
	},
	"with a soft RDMA device": func(f *Facts) { f.SoftRDMA = []string{"rxe0", "siw0"} },
	"that is a soft RDMA device": func(f *Facts) {
		missing(f)
		f.Config.Selector = netconf.Selector{Kind: netconf.ByRDMADevice, Field: "rdmaDevice", Value: "rxe0"}
		f.Soft = &Soft{Name: "rxe0", Netdev: "ens1f0"}
	},
	"that is a soft RDMA device somewhere": func(f *Facts) {
		missing(f)
		f.Config.Selector = netconf.Selector{Kind: netconf.ByRDMADevice, Field: "rdmaDevice", Value: "rxe0"}
		f.Soft = &Soft{Name: "rxe0"}
	},
	"with programs of the host": func(f *Facts) {
		f.Device.Netdev.Kept.Programs = []device.Program{
			{Hook: device.XDPDriver, ID: 17}, {Hook: device.TCXIngress, ID: 19, Link: 4},
		}
	},
	"everything wrong": func(f *Facts) {
		f.NameTaken, f.Owner, f.Siblings, f.Children = "net1", live(), []string{"ib1"}, []Child{{Netdev: "ib9"}}
		f.Policy.Devices, f.Config.RDMA = []string{"ens*"}, netconf.RDMAShared
		f.Device.HCA.Ports[0].State, f.Config.VF.Trust = device.PortDown, on()
	},
	"RDMA name of another device": func(f *Facts) {
		f.Config.RDMAName, f.RDMANameHolder = "mlx5_3", "device pci/0000:5e:00.0, which container c9 has as net1"
	},
	"RDMA name in shared mode": func(f *Facts) {
		f.Config.RDMAName, f.RDMANameHolder, f.NetnsMode = "mlx5_3", "device pci/0000:5e:00.0", device.NetnsShared
	},
	"RDMA name auto": func(f *Facts) {
		f.Config.RDMAName, f.RDMANamesPerNetns, f.RDMANamesInPod = "auto", true, []string{"mlx5_0", "mlx5_2", "mlx5_0"}
	},
	"RDMA name auto in the whole system": func(f *Facts) { f.Config.RDMAName = "auto" },
	"PF of a VF in a pod": func(f *Facts) {
		f.VFOwners = []VFOwner{{VF: "0000:3b:00.4", Owner: *live()}}
	},
	"interface elsewhere": func(f *Facts) {
		f.Device.Netdev, f.IPoIBLoaded = nil, true
		f.Elsewhere = &Place{Interface: "net1\x1b[2J", Netns: "/run/netns/other"}
	},
	"interface nowhere": func(f *Facts) { f.Device.Netdev, f.IPoIBLoaded = nil, true },
	"without IPoIB":     func(f *Facts) { f.Device.Netdev = nil },
	"PF of VFs":         func(f *Facts) { f.VFs = make([]device.VFAttrs, 2) },
	"PF of a dead VF":   func(f *Facts) { f.VFOwners = []VFOwner{{VF: "0000:3b:00.4", Owner: *dead()}} },
	"setting of a VF":   func(f *Facts) { f.Config.VF.Trust = on() },
	"ib-kubernetes":     func(f *Facts) { f.Config.VF.IBKubernetes = true },
}

var vfCases = map[string]func(*Facts){
	"of a PF that a claim gives": func(f *Facts) {
		f.PF, f.Promises = &device.Address{Bus: "pci", Name: "0000:3b:00.9"}, promises("pci/0000:3b:00.9")
	},
	"of a PF that a pod has": func(f *Facts) {
		f.PF, f.PFOwner = &f.VF.PF, live()
		f.PFOwner.DeviceKey = f.PF.String()
	},
	"of a PF that a dead pod had": func(f *Facts) {
		f.PF, f.PFOwner = &f.VF.PF, dead()
		f.PFOwner.DeviceKey = f.PF.String()
	},
	"usual": func(*Facts) {},
	"GUID":  func(f *Facts) { f.Config.VF.GUID = guid("001122334455660a") },
	"GUID in use": func(f *Facts) {
		f.Config.VF.GUID, f.GUIDHolder = guid("001122334455660a"), "VF 3 of ibpf"
	},
	"same GUID":    func(f *Facts) { f.Config.VF.GUID = guid("0002c90300fa0010") },
	"without GUID": func(f *Facts) { f.Device.HCA.NodeGUID = 0 },
	"link state": func(f *Facts) {
		f.Config.VF.LinkState = "enable"
		f.Device.HCA.Ports[0].State = device.PortDown
	},
	"vlan":              func(f *Facts) { f.Config.VF.VLAN = new(7) },
	"of another tenant": func(f *Facts) { f.OtherTenant = true },
	"of another tenant with a GUID": func(f *Facts) {
		f.OtherTenant, f.Config.VF.GUID = true, guid("001122334455660a")
	},
	"of another tenant with its port down": func(f *Facts) { // it is left alone
		f.OtherTenant, f.Device.HCA.Ports[0].State = true, device.PortDown
	},
	"of another tenant whose PF has no interface": func(f *Facts) {
		f.OtherTenant, f.VF.PFName, f.Device.HCA.NodeGUID = true, "", 0
	},
	"of a PF in a pod": func(f *Facts) { f.VF.PFName, f.Config.VF.LinkState = "", "enable" },
}

var ethernetCases = map[string]func(*Facts){
	"with a macvlan in another namespace": func(f *Facts) {
		f.Strays = []Place{{Interface: "macvlan net1\x1b[2J", Netns: "/run/netns/other"}}
	},
	"interface elsewhere": func(f *Facts) {
		f.Device.Netdev, f.Elsewhere = nil, &Place{Interface: "net1", Netns: "/run/netns/other"}
	},
	"interface nowhere":      func(f *Facts) { f.Device.Netdev, f.StrayNetdev = nil, true },
	"RDMA without interface": func(f *Facts) { f.Device.Netdev = nil },
	"of another tenant":      func(f *Facts) { f.OtherTenant = true },
	"usual": func(f *Facts) {
		f.Config.VF.VLAN, f.Config.VF.MAC, f.Config.VF.Trust = new(7), mac("02:00:00:00:00:99"), on()
		f.Policy.VF = policy.VF{TrustOn: policy.Patterns{"*"}, VLANs: []policy.VLANRange{{First: 5, Last: 7}}}
	},
	"vlan that the policy does not have": func(f *Facts) { f.Config.VF.VLAN = new(7) },
	"QoS of the host":                    func(f *Facts) { qosOf(f) },
	"QoS of its own": func(f *Facts) {
		qosOf(f)
		f.Config.TOS, f.Config.RoCEMode, f.Config.Class = new(uint8(72)), "v2", new(uint8(96))
	},
	"traffic class of the host, of another tenant": func(f *Facts) {
		qosOf(f)
		f.Device.HCA.Ports[0].TrafficClass, f.OtherTenant = new(96), true
	},
	"traffic class as the host's, of another tenant": func(f *Facts) {
		qosOf(f)
		f.Device.HCA.Ports[0].TrafficClass, f.OtherTenant, f.Config.Class = new(96), true, new(uint8(96))
	},
	"traffic class as the host's": func(f *Facts) {
		qosOf(f)
		f.Device.HCA.Ports[0].TrafficClass, f.Config.Class = new(96), new(uint8(96))
	},
	"promised a partition": func(f *Facts) { f.Config.PKey = 0x8001 },
	"tos without configfs": func(f *Facts) { f.Config.TOS = new(uint8(72)) },
	"traffic class of another driver": func(f *Facts) {
		qosOf(f)
		f.Device.HCA.Ports[0].TrafficClass, f.Config.Class = nil, new(uint8(96))
	},
	"tos in shared mode": func(f *Facts) {
		f.NetnsMode, f.Config.TOS = device.NetnsShared, new(uint8(72))
	},
	"tos without RDMA device": func(f *Facts) { f.Device.HCA, f.Config.TOS = nil, new(uint8(72)) },
	"GUID":                    func(f *Facts) { f.Config.VF.GUID = guid("001122334455660a") },
	"mac of no VF":            func(f *Facts) { f.VF, f.Config.VF.MAC = nil, mac("02:00:00:00:00:99") },
	"port down with its netdev": func(f *Facts) {
		f.Device.HCA.Ports[0].State, f.Device.Netdev.Flags = device.PortDown, 0
	},
	"mac in use": func(f *Facts) {
		f.Config.VF.MAC = mac("02:00:00:00:00:99")
		f.MACHolder = &Duplicate{Value: "02:00:00:00:00:99", By: "interface eth1 of the host"}
	},
	"address in use": func(f *Facts) {
		f.AddrHolder = &Duplicate{Value: "10.0.0.1", By: "container c9 (net1, network n, device x)", Pod: true}
	},
}

// qosOf gives a RoCE port what an administrator may have set.
func qosOf(f *Facts) {
	p := &f.Device.HCA.Ports[0]
	p.CM, p.TrafficClass = &device.CM{TOS: 106, RoCE: device.RoCEv1}, new(-1)
}

var childCases = map[string]func(*Facts){
	"of a HCA that claims share": func(f *Facts) {
		f.Promises = promises("pci/0000:3b:00.0")
		f.Promises[0].Shared = true
	},
	"of a HCA that a claim gives": func(f *Facts) { f.Promises = promises("pci/0000:3b:00.0") },
	"of a HCA that kubelet gives another pod": func(f *Facts) {
		f.Promises = kubelets("pci/0000:3b:00.0")
	},
	"of a HCA that kubelet shares": func(f *Facts) {
		f.Promises = kubelets("pci/0000:3b:00.0")
		f.Promises[0].Shared = true
	},
	"of no Fabric":    func(f *Facts) { allocated(f, Allotment{}) },
	"without a share": func(f *Facts) { allocated(f, Allotment{Resource: "fabric.dev/ib"}) },
	"of no pod":       func(f *Facts) { allocated(f, Allotment{Resource: "fabric.dev/ib", NoUID: true}) },
	"of the last share": func(f *Facts) {
		allocated(f, Allotment{Resource: "fabric.dev/ib", Shares: 3, Children: 2})
	},
	"once more than shares": func(f *Facts) {
		allocated(f, Allotment{Resource: "fabric.dev/ib", Shares: 2, Children: 2})
	},
	"of a HCA given as a whole": func(f *Facts) { allocated(f, Allotment{Resource: "fabric.dev/ib", Whole: true}) },
	"without a share, allowed":  func(f *Facts) { f.Allotment = Allotment{Resource: "fabric.dev/ib"} },
	"address in use": func(f *Facts) {
		f.AddrHolder = &Duplicate{Value: "10.0.0.1", By: "container c9 (net1, network n, device x)", Pod: true}
	},
	"usual": func(*Facts) {},
	"settings": func(f *Facts) {
		f.Config.IPoIBMode, f.Config.Umcast, f.Config.MTU, f.Config.PKey = "datagram", on(), 1500, 0x8001
	},
	"rail": func(f *Facts) { f.Config.SourceBased, f.Config.IPoIBMode = true, "connected" },
	"no partition": func(f *Facts) {
		f.Config.PKey, f.PKeys, f.PKeysKnown = 0x8001, []device.PKey{0xffff}, true
	},
	"of a child": func(f *Facts) { f.Device.Netdev.Parent, f.Parents = 3, []string{"ib0", "ib1"} },
	"of no IPoIB": func(f *Facts) {
		f.Device.Netdev.Kind, f.Device.Netdev.ARPType, f.Device.Netdev.IPoIB = "veth", 1, nil
	},
	"forbidden":       func(f *Facts) { f.Policy.Devices = []string{"ens*"} },
	"port down":       func(f *Facts) { f.Device.HCA.Ports[0].State = device.PortDown },
	"without module":  func(f *Facts) { missing(f); f.IPoIBLoaded = false },
	"without master":  missing,
	"name taken":      func(f *Facts) { f.NameTaken = "net1" },
	"of a pod's":      func(f *Facts) { f.Owner = live() },
	"shared and none": func(f *Facts) { f.Config.RDMA, f.NetnsMode = netconf.RDMANone, device.NetnsShared },
}

var chainCases = map[string]func(*Facts){
	"of a claim of another pod":     func(f *Facts) { f.Promises = promises("pci/0000:3b:00.0") },
	"not given":                     func(f *Facts) { allocated(f, Allotment{}) },
	"shared and not given":          func(f *Facts) { allocated(f, Allotment{}); f.NetnsMode = device.NetnsShared },
	"listed by its name in the pod": func(f *Facts) { f.Policy.Devices = []string{"ibs108", "rail0"} },
	"in use by the host":            func(f *Facts) { f.Users = []string{"kernel module rpcrdma"} },
	"interface elsewhere": func(f *Facts) {
		f.Device.Netdev, f.IPoIBLoaded, f.Elsewhere = nil, true, &Place{Interface: "net1", Netns: "/proc/7/ns/net"}
	},
	"VF of a PF that a pod has": func(f *Facts) {
		f.PF, f.PFOwner = &device.Address{Bus: "pci", Name: "0000:3b:00.9"}, live()
	},
	"usual":  func(*Facts) {},
	"shared": func(f *Facts) { f.NetnsMode = device.NetnsShared },
	"RoCE": func(f *Facts) {
		f.Device.Netdev.Kind, f.Device.Netdev.ARPType, f.Device.Netdev.IPoIB = "", 1, nil
	},
	"IPoIB at home": func(f *Facts) { f.Device.Side = plan.Host },
	"RoCE at home": func(f *Facts) {
		f.Device.Side, f.Device.Netdev.Kind, f.Device.Netdev.ARPType, f.Device.Netdev.IPoIB = plan.Host, "", 1, nil
		f.Device.Netdev.Master = 9
	},
	"no RDMA device": func(f *Facts) { f.Device.HCA = nil },
	"two interfaces": func(f *Facts) { f.Device, f.Unselected, f.Chained.Interfaces = nil, true, 2 },
	"no hardware":    func(f *Facts) { missing(f); f.Unselected, f.Chained.NoHardware = true, "net1" },
	"no hardware but a soft RDMA device": func(f *Facts) {
		missing(f)
		f.Unselected, f.Chained.NoHardware, f.Soft = true, "net1", &Soft{Name: "rxe0", Netdev: "net1"}
	},
	"with children": func(f *Facts) { f.Children = []Child{{Netdev: "ib9"}} },
	"port down":     func(f *Facts) { f.Device.HCA.Ports[0].State = device.PortDown },
}

// otherPorts are those of an HCA with four ports.
var otherPorts = []OtherPort{
	{2, "ens1f1", device.OnPCI("0000:3b:00.1")}, {3, "ens1f2", device.OnPCI("0000:3b:00.2")},
	{4, "ens1f3", device.OnPCI("0000:3b:00.3")},
}
