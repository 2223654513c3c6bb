package plan

import (
	"net"
	"net/netip"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// The devices of the golden plans, as a node with an InfiniBand PF, a RoCE VF and a virtual netdev has them.

func ipoibPF() *device.Netdev {
	return &device.Netdev{
		Index:    4,
		Name:     "ibs108",
		AltNames: []string{"ibp59s0f0", "rail0"},
		Alias:    "rail 0",
		Kind:     "ipoib",
		ARPType:  32,
		HWAddr: mustMAC(
			"00:00:10:29:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10",
		),
		MTU:      4092,
		TxQueue:  256,
		Flags:    device.FlagUp,
		Group:    3,
		Address:  device.Address{Bus: "pci", Name: "0000:3b:00.0"},
		IPoIB:    &device.IPoIB{PKey: 0xffff, Mode: device.ModeConnected, Umcast: 1},
		IPv4Conf: make([]uint32, 33),
		IPv6Conf: make([]int32, 60),
		Addrs: []device.Addr{
			{
				Prefix:    netip.MustParsePrefix("10.1.0.5/24"),
				Broadcast: netip.MustParseAddr("10.1.0.255"),
				Valid:     forever,
				Preferred: forever,
			},
			{Prefix: netip.MustParsePrefix("10.1.0.6/24"), Valid: 3600, Preferred: 1800},
			{
				Prefix:    netip.MustParsePrefix("fe80::202:c903:fa:10/64"),
				Scope:     scopeLink,
				Valid:     forever,
				Preferred: forever,
			},
		},
		Routes: []device.Route{
			{
				Dst:      netip.MustParsePrefix("10.9.0.0/16"),
				Gateway:  netip.MustParseAddr("10.8.0.1"),
				Table:    tableMain,
				Protocol: protoBoot,
				Type:     typeUnicast,
			},
			{
				Dst:      netip.MustParsePrefix("10.8.0.0/16"),
				Table:    100,
				Scope:    scopeLink,
				Protocol: protoBoot,
				Type:     typeUnicast,
			},
		},
	}
}

// recreated is the IPoIB netdev that the kernel makes when the RDMA device has moved: the defaults, under another name.
func recreated(name string) *device.Netdev {
	n := ipoibPF()
	return &device.Netdev{
		Index: 9, Name: name, Kind: n.Kind, ARPType: 32, HWAddr: n.HWAddr, MTU: 2044, TxQueue: 256, Address: n.Address,
		IPoIB: &device.IPoIB{PKey: 0xffff}, IPv4Conf: make([]uint32, 33), IPv6Conf: make([]int32, 60),
	}
}

func roceVF() *device.Netdev {
	return &device.Netdev{
		Index:   7,
		Name:    "ens1f0v2",
		ARPType: 1,
		HWAddr:  mustMAC("02:00:00:00:00:07"),
		MTU:     9000,
		TxQueue: 1000,
		Flags:   device.FlagUp,
		Address: device.Address{
			Bus:  "pci",
			Name: "0000:3b:00.4",
		},
		IPv4Conf: make([]uint32, 33),
		IPv6Conf: make([]int32, 60),
	}
}

func hca(name string, a device.Address) *device.HCA {
	return &device.HCA{
		Index:    2,
		Name:     name,
		NodeGUID: 0x0002c90300fa0010,
		Address:  a,
		Ports:    []device.Port{{Number: 1, State: device.PortActive}},
	}
}

// moved is n in the pod: what a move keeps.
func moved(n *device.Netdev, name string) *device.Netdev {
	out := *n
	out.Name, out.Addrs, out.Routes = name, nil, nil
	return &out
}

func dualStack() *Addressing {
	return &Addressing{
		Addrs:    []netip.Prefix{netip.MustParsePrefix("192.168.10.7/24"), netip.MustParsePrefix("2001:db8:10::7/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("192.168.10.1"), netip.MustParseAddr("2001:db8:10::1")},
		Routes: []device.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("::/0")},
			{
				Dst:      netip.MustParsePrefix("10.20.1.2/16"),
				Gateway:  netip.MustParseAddr("192.168.10.2"),
				MTU:      4000,
				Priority: 5,
			},
			{
				Dst:   netip.MustParsePrefix("10.30.0.0/16"),
				Scope: scopeLink,
			},
			{Dst: netip.MustParsePrefix("10.40.0.0/16"), Table: 77},
		},
	}
}

// add is a whole ADD as the plugin calls for it.
func add(cfg netconf.Config, h *device.HCA, was, have *device.Netdev, ip *Addressing) []Step {
	steps := Attach(&cfg, "net1", h, was)
	if was == nil {
		return steps
	}
	steps = append(steps, Configure(&cfg, was, have, nil, nil)...)
	return append(steps, Address(&cfg, ip, have)...)
}

func mustMAC(s string) net.HardwareAddr {
	hw, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return hw
}
