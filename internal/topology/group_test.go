package topology

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func ib(node, hca, pci string, rate float64, lid, sm uint16) Port {
	return Port{
		Node:      node,
		HCA:       hca,
		Port:      1,
		PCI:       pci,
		Slot:      pci,
		Kind:      "PF",
		LinkLayer: device.InfiniBand,
		State:     device.PortActive,
		Phys:      device.PhysLinkUp,
		RateGb:    rate,
		Prefix:    device.DefaultSubnetPrefix,
		LID:       lid,
		SMLID:     sm,
	}
}

func eth(node, hca, pci, addr string) Port {
	p := Port{
		Node:      node,
		HCA:       hca,
		Port:      1,
		PCI:       pci,
		Slot:      pci,
		Kind:      "PF",
		LinkLayer: device.Ethernet,
		State:     device.PortActive,
		RateGb:    200,
	}
	if addr != "" {
		p.Addrs = []netip.Prefix{netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix(addr)}
	}
	return p
}

func down(p Port) Port {
	p.State, p.Phys, p.RateGb, p.LID, p.SMLID = device.PortDown, device.PhysPolling, 10, 0, 0
	return p
}

// text is the grouping in short: name[*]: rail rail; a star for planes.
func text(f Fabrics) string {
	var b strings.Builder
	for _, f := range f.Fabrics {
		b.WriteString(f.Name)
		if f.Planes {
			b.WriteString("*")
		}
		for _, r := range f.Rails {
			fmt.Fprintf(&b, " %d(", r.Index)
			for i, p := range r.Ports {
				if i > 0 {
					b.WriteString(" ")
				}
				b.WriteString(p.Node + "/" + p.HCA)
			}
			b.WriteString(")")
		}
		b.WriteString("\n")
	}
	for _, l := range f.Left {
		fmt.Fprintf(&b, "left %s/%s: %s\n", l.Port.Node, l.Port.HCA, l.Reason)
	}
	return b.String()
}

func TestGroup(t *testing.T) {
	bond := eth("a1", "mlx5_bond_0", "0000:a1:00.0", "10.0.0.1/24")
	bond.Bond = "bond0"
	vf := eth("r1", "mlx5_8", "0000:23:00.2", "")
	vf.Slot, vf.Kind = "0000:23:00.0", "VF"
	soft := eth("r1", "rxe0", "", "192.168.10.1/24")
	soft.Kind, soft.Netdev, soft.State = Soft, "ens1", device.PortDown
	for _, c := range []struct {
		name  string
		ports []Port
		want  string
		warn  string
	}{
		{"a soft RDMA device is no rail", []Port{soft, eth("r1", "mlx5_2", "0000:23:00.0", "192.168.10.1/24")},
			"roce-200g 0(r1/mlx5_2)\nleft r1/rxe0: a soft RDMA device (rxe, siw) on ens1, without hardware: no " +
				"rail, it can't be given to a pod\n", ""},
		{"nothing", nil, "", ""},
		{"two fabrics in one cluster", []Port{
			ib("v1", "mlx5_0", "0000:3b:00.0", 100, 4, 3), ib("v1", "mlx5_1", "0000:3b:00.1", 100, 5, 3),
			ib("v2", "mlx5_0", "0000:3b:00.0", 100, 6, 3), ib("v2", "mlx5_1", "0000:3b:00.1", 100, 7, 3),
			ib("a1", "mlx5_0", "0000:21:00.0", 200, 4, 7), down(ib("a1", "mlx5_1", "0000:61:00.0", 200, 0, 7)),
			down(ib("a2", "mlx5_0", "0000:21:00.0", 200, 0, 7)), ib("a2", "mlx5_1", "0000:61:00.0", 200, 5, 7), bond,
		}, `ib-200g 0(a1/mlx5_0 a2/mlx5_1)
ib-100g 0(v1/mlx5_0 v2/mlx5_0) 1(v1/mlx5_1 v2/mlx5_1)
left a1/mlx5_1: Down (physical state Polling): no peer answers: cable, transceiver or switch port
left a1/mlx5_bond_0: part of bond bond0: it carries the node's own traffic (storage, bootstrap); no rail of its own
left a2/mlx5_0: Down (physical state Polling): no peer answers: cable, transceiver or switch port
`, ""},
		{"one rate, two subnet managers",
			[]Port{ib("n1", "mlx5_0", "0000:01:00.0", 400, 4, 1), ib("n1", "mlx5_1", "0000:02:00.0", 400, 4, 9)},
			"ib-400g-a 0(n1/mlx5_0)\nib-400g-b 0(n1/mlx5_1)\n", ""},
		{"a LID twice", []Port{ib("n1", "mlx5_0", "0000:01:00.0", 400, 4, 1),
			ib("n1", "mlx5_1", "0000:02:00.0", 400, 4, 1)},
			"ib-400g* 0(n1/mlx5_0) 1(n1/mlx5_1)\n", "LID 4 is on n1 mlx5_0:1 and on n1 mlx5_1:1"},
		{"a port that is down does not shift the rails behind it", []Port{
			ib("n1", "mlx5_0", "0000:01:00.0", 400, 1, 1), ib("n1", "mlx5_1", "0000:02:00.0", 400, 2, 1),
			ib("n1", "mlx5_2", "0000:03:00.0", 400, 3, 1),
			ib("n2", "mlx5_0", "0000:01:00.0", 400, 4, 1),
			down(ib("n2", "mlx5_1", "0000:02:00.0", 400, 5, 1)), ib("n2", "mlx5_2", "0000:03:00.0", 400, 6, 1),
		}, "ib-400g 0(n1/mlx5_0 n2/mlx5_0) 1(n1/mlx5_1) 2(n1/mlx5_2 n2/mlx5_2)\nleft n2/mlx5_1: Down (physical " +
			"state Polling): no peer answers: cable, transceiver or switch port\n", ""},
		{"planes by subnet", []Port{eth("r1", "mlx5_2", "0000:23:00.0", "192.168.10.1/24"),
			eth("r1", "mlx5_3", "0000:43:00.0", "192.168.9.1/24"),
			eth("r2", "mlx5_4", "0000:23:00.0", "192.168.10.2/24"),
			eth("r2", "mlx5_9", "0000:43:00.0", "192.168.9.2/24")},
			"roce-200g* 0(r1/mlx5_3 r2/mlx5_9) 1(r1/mlx5_2 r2/mlx5_4)\n", ""},
		{"two rails in one subnet",
			[]Port{eth("r1", "mlx5_2", "0000:23:00.0", "192.168.10.1/24"),
				eth("r1", "mlx5_3", "0000:43:00.0", "192.168.10.2/24")},
			"roce-200g 0(r1/mlx5_2) 1(r1/mlx5_3)\n", "node r1 has mlx5_2:1, mlx5_3:1 in one subnet, 192.168.10.0/24"},
		{"a VF is in its PF's rail",
			[]Port{vf, eth("r1", "mlx5_2", "0000:23:00.0", "192.168.10.1/24"),
				eth("r1", "mlx5_3", "0000:43:00.0", "192.168.11.1/24")},
			"roce-200g 0(r1/mlx5_2 r1/mlx5_8) 1(r1/mlx5_3)\n", "1 of 3 ports have no IP address"},
	} {
		got := Group(c.ports)
		if d := cmp.Diff(c.want, text(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		var warnings []string
		for _, f := range got.Fabrics {
			warnings = append(warnings, f.Warnings...)
			for _, r := range f.Rails {
				if r.Reason == "" {
					t.Errorf("%s: rail %d of %s has no reason", c.name, r.Index, f.Name)
				}
			}
		}
		if w := strings.Join(warnings, "\n"); !strings.Contains(w, c.warn) || c.warn == "" && w != "" {
			t.Errorf("%s: warnings %q, want %q", c.name, w, c.warn)
		}
		for range 20 {
			rand.Shuffle(len(c.ports), func(i, j int) { c.ports[i], c.ports[j] = c.ports[j], c.ports[i] })
			if d := cmp.Diff(got, Group(c.ports), cmpopts.EquateComparable(netip.Prefix{})); d != "" {
				t.Errorf("%s: another order of ports gives another answer:\n%s", c.name, d)
			}
		}
	}
}

// Every state says why, and none is handed out in silence.
func TestUnusable(t *testing.T) {
	p := ib("n", "mlx5_0", "0000:01:00.0", 100, 1, 1)
	for s := device.PortNop; s <= device.PortActiveDefer; s++ {
		p.State = s
		if got := unusable(&p, false); (got == "") != (s == device.PortActive) {
			t.Errorf("%s: %q", s, got)
		}
	}
	p.State, p.Primary = device.PortActive, true
	if got := unusable(&p, false); !strings.Contains(got, "default route") {
		t.Errorf("primary: %q", got)
	}
}

func TestNames(t *testing.T) {
	if got := letters(0) + letters(25) + letters(26) + letters(27); got != "azaaab" {
		t.Errorf("letters: %s", got)
	}
	if natural("mlx5_2", "mlx5_10") >= 0 || natural("a", "b") >= 0 || natural("mlx5_2", "mlx5_2") != 0 {
		t.Error("natural order")
	}
}
