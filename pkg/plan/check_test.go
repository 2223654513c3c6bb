package plan

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// attached is an attachment in order: what is wanted, and what is there.
func attached() (Want, Now) {
	n := moved(roceVF(), "net1")
	n.Index = 3
	n.IPv4Conf[arpIgnore-1], n.IPv4Conf[arpAnnounce-1], n.IPv4Conf[rpFilter-1] = 1, 2, 2
	ip := dualStack()
	for _, p := range ip.Addrs {
		n.Addrs = append(n.Addrs, NewAddr(p))
	}
	n.Routes = append(MainRoutes(true, ip), RailRoutes(ip, Table(n.Index))...)
	h := hca("mlx5_4", n.Address)
	want := Want{
		Kind:    "device",
		Address: n.Address,
		Netdev:  roceVF(),
		HCA:     h,
		MAC:     n.HWAddr.String(),
		MTU:     9000,
		IP:      ip,
	}
	return want, Now{NetnsOK: true, IfName: "net1", Netdev: n, HCA: h, Rules: RailRules(ip, Table(n.Index))}
}

var checkTests = map[string]struct {
	spoil func(*Want, *Now)
	want  []Problem
}{
	"in order": {func(*Want, *Now) {}, nil},
	"another namespace": {
		func(_ *Want, n *Now) { n.NetnsOK = false },
		[]Problem{{"network namespace", "the one of ADD", "another one"}},
	},
	"RDMA device not there": {
		func(_ *Want, n *Now) { n.HCA = nil },
		[]Problem{{"RDMA device", "mlx5_4", "not in the pod"}},
	},
	"RDMA device renamed": {
		func(_ *Want, n *Now) { n.HCA = hca("roce0", device.Address{}) },
		[]Problem{{"RDMA device", "mlx5_4", "roce0"}},
	},
	"RDMA device not renamed": {
		func(w *Want, _ *Now) { w.RDMAName = "mlx5_rail0" }, []Problem{{"RDMA device", "mlx5_rail0", "mlx5_4"}},
	},
	"RDMA device was not moved": {func(w *Want, n *Now) { w.HCA, n.HCA = nil, nil }, nil},
	"no interface": {
		func(_ *Want, n *Now) { n.Netdev = nil },
		[]Problem{{"interface", "net1", "none of this name in the pod"}},
	},
	"RDMA device only": {func(w *Want, n *Now) { w.Netdev, n.Netdev = nil, nil }, nil},
	"another device": {
		func(w *Want, _ *Now) { w.Address.Name = "0000:3b:00.5" },
		[]Problem{{"device", "pci/0000:3b:00.5", "pci/0000:3b:00.4"}},
	},
	"kernel reports no address": {func(_ *Want, n *Now) { n.Netdev.Address = device.Address{} }, nil},
	"found by altname": {
		func(_ *Want, n *Now) { n.Netdev.Name, n.Netdev.AltNames = "eth7", []string{"net1"} },
		[]Problem{{"interface name", "net1", "eth7"}},
	},
	"down": {
		func(_ *Want, n *Now) { n.Netdev.Flags = 0 },
		[]Problem{{"interface state", "up", "down"}},
	},
	"mtu": {func(_ *Want, n *Now) { n.Netdev.MTU = 1500 }, []Problem{{"mtu", "9000", "1500"}}},
	"hardware address": {
		func(w *Want, _ *Now) { w.MAC = "02:00:00:00:00:08" },
		[]Problem{{"hardware address", "02:00:00:00:00:08", "02:00:00:00:00:07"}},
	},
	"nothing promised": {
		func(w *Want, n *Now) { w.MTU, w.MAC, w.IP, n.Netdev.Addrs, n.Rules = 0, "", nil, nil, nil },
		nil,
	},
	"partition": {
		func(w *Want, n *Now) { w.PKey, n.Netdev.IPoIB = 0x8001, &device.IPoIB{PKey: 0x8002} },
		[]Problem{{"pkey", "0x8001", "0x8002"}},
	},
	"limited member": {func(w *Want, n *Now) { w.PKey, n.Netdev.IPoIB = 0x8001, &device.IPoIB{PKey: 1} }, nil},
	"child gone": {
		func(w *Want, n *Now) { w.PKey, w.Netdev, n.Netdev = 1, nil, nil },
		[]Problem{{"interface", "net1", "none of this name in the pod"}},
	},
	"address": {
		func(_ *Want, n *Now) { n.Netdev.Addrs = n.Netdev.Addrs[:1] },
		[]Problem{{"address", "2001:db8:10::7/64", "missing"}},
	},
	"prefix length": {
		func(_ *Want, n *Now) { n.Netdev.Addrs[0].Prefix = netip.MustParsePrefix("192.168.10.7/25") },
		[]Problem{{"address", "192.168.10.7/24", "missing"}},
	},
	"route": {
		func(_ *Want, n *Now) { n.Netdev.Routes = n.Netdev.Routes[1:] },
		[]Problem{{"route", "10.20.0.0/16 via 192.168.10.2 metric 5", "missing"}},
	},
	"rule": {
		func(_ *Want, n *Now) { n.Rules = n.Rules[1:] },
		[]Problem{{"rule", "from 192.168.10.7/32 lookup 20003 pref 20000", "missing"}},
	},
	"other": {func(_ *Want, n *Now) { n.Rules = append(n.Rules, device.Rule{Table: 7}) }, nil},
	"sysctls": {
		func(_ *Want, n *Now) { n.Netdev.IPv4Conf = make([]uint32, 33) },
		[]Problem{
			{
				"net.ipv4.conf.net1.rp_filter",
				"2",
				"0",
			},
			{"net.ipv4.conf.net1.arp_announce", "2", "0"},
			{"net.ipv4.conf.net1.arp_ignore", "1", "0"},
		},
	},
	"several": {
		func(_ *Want, n *Now) { n.NetnsOK, n.Netdev.MTU, n.Netdev.Flags = false, 1500, 0 },
		[]Problem{
			{"network namespace", "the one of ADD", "another one"},
			{"interface state", "up", "down"},
			{"mtu", "9000", "1500"},
		},
	},
}

func TestCheck(t *testing.T) {
	for name, tt := range checkTests {
		t.Run(name, func(t *testing.T) {
			want, now := attached()
			tt.spoil(&want, &now)
			if diff := cmp.Diff(tt.want, Check(true, want, now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNewAddr(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3/24": "10.1.2.255", "10.1.2.3/30": "10.1.2.3",
		"10.1.2.3/31": "invalid IP", "10.1.2.3/32": "invalid IP",
		"10.1.2.3/0": "255.255.255.255", "10.1.130.3/17": "10.1.255.255", "2001:db8::1/64": "invalid IP",
	} {
		if got := NewAddr(netip.MustParsePrefix(in)).Broadcast.String(); got != want {
			t.Errorf("%s: broadcast %s, want %s", in, got, want)
		}
	}
}
