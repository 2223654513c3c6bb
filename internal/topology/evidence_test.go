package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What decides whether ports that name different subnet managers are of one fabric, and what the texts say of it.
func TestSubnetManagers(t *testing.T) {
	node := func(name string, lid uint16, managers ...uint16) (out []Port) {
		for i, sm := range managers {
			out = append(out, ib(name, fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("0000:0%d:00.0", i+1), 400,
				lid+uint16(i), sm))
		}
		return out
	}
	three := func(a, b, c []Port) []Port { return append(append(append([]Port{}, a...), b...), c...) }
	vf := ib("n2", "mlx5_8", "0000:01:00.2", 400, 10, 7)
	vf.Slot, vf.Kind = "0000:01:00.0", "VF"
	slow := ib("n1", "mlx5_9", "0000:09:00.0", 200, 90, 7)
	for _, c := range []struct {
		name  string
		ports []Port
		want  string
		says  string
	}{
		{"it failed over between two looks", three(node("n1", 10, 3, 3), node("n2", 20, 7, 7), node("n3", 30, 3, 3)),
			"ib-400g 0(n1/mlx5_0 n2/mlx5_0 n3/mlx5_0) 1(n1/mlx5_1 n2/mlx5_1 n3/mlx5_1)\n",
			"LID 3 on n1, n3; LID 7 on n2): taken for one subnet whose manager has moved"},
		{"a node sees both at once", three(node("n1", 10, 3, 7), node("n2", 20, 3, 7), nil),
			"ib-400g-a 0(n1/mlx5_0 n2/mlx5_0)\nib-400g-b 0(n1/mlx5_1 n2/mlx5_1)\n", ""},
		{"a node sees both at once, at another rate", three(node("n1", 10, 3), node("n2", 20, 7), []Port{slow}),
			"ib-400g-a 0(n1/mlx5_0)\nib-400g-b 0(n2/mlx5_0)\nib-200g 0(n1/mlx5_9)\n", ""},
		{"a LID in both", three(node("n1", 10, 3, 3), node("n2", 11, 7, 7), nil),
			"ib-400g-a 0(n1/mlx5_0) 1(n1/mlx5_1)\nib-400g-b 0(n2/mlx5_0) 1(n2/mlx5_1)\n", ""},
		{"a VF with the LID of a port is no proof", three(node("n1", 10, 3), []Port{vf}, nil),
			"ib-400g 0(n1/mlx5_0 n2/mlx5_8)\n", "whose manager has moved"},
		{"one of two planes failed over", three(node("n1", 10, 3, 7), node("n2", 20, 3, 9), node("n3", 30, 3, 9)),
			"ib-400g-a 0(n1/mlx5_0 n2/mlx5_0 n3/mlx5_0)\nib-400g-b 0(n1/mlx5_1 n2/mlx5_1 n3/mlx5_1)\n",
			"LID 9 on n2, n3; LID 7 on n1): taken for one subnet"},
		{"two are proven apart, the third could be either", three(node("n1", 10, 3, 7), node("n2", 20, 9), nil),
			"ib-400g-a 0(n1/mlx5_0)\nib-400g-b 0(n1/mlx5_1)\nib-400g-c 0(n2/mlx5_0)\n",
			"the subnet manager at LID 9 may be one of those at LIDs 3 and 7 that has moved"},
	} {
		got := Group(c.ports)
		if d := cmp.Diff(c.want, text(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		var all []string
		for _, f := range got.Fabrics {
			all = append(all, f.Warnings...)
		}
		if said := strings.Join(all, "\n"); !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: warnings %q, want %q", c.name, said, c.says)
		}
	}
	moved := Group(three(node("n1", 10, 3, 3), node("n2", 20, 7), nil)).Fabrics[0]
	if moved.SMLID != 3 || cmp.Diff([]uint16{3, 7}, moved.SMLIDs) != "" ||
		!strings.Contains(moved.Reason, "subnet manager at LIDs 3 and 7, 400 Gb/s") {
		t.Errorf("%+v", moved)
	}
}

// What nodes say does not make work without end: beyond a number of managers they stay apart.
func TestManySubnetManagers(t *testing.T) {
	var ports []Port
	for i := range uint16(200) {
		ports = append(ports, ib(fmt.Sprintf("n%d", i), "mlx5_0", "0000:01:00.0", 400, i+1, i+1))
	}
	if got := len(Group(ports).Fabrics); got != len(ports) {
		t.Errorf("%d fabrics", got)
	}
}

// Rails are IP subnets where nodes share them; routers between racks make no rail more.
func TestRoutedRails(t *testing.T) {
	rack := func(node string, subnets ...string) (out []Port) {
		for i, s := range subnets {
			if s != "" {
				out = append(out, eth(node, fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("0000:%d0:00.0", i+1), s))
			}
		}
		return out
	}
	join := func(lists ...[]Port) (out []Port) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	const both = " 0(a/mlx5_0 b/mlx5_0) 1(a/mlx5_1 b/mlx5_1)"
	for _, c := range []struct {
		name   string
		ports  []Port
		want   string
		reason string
		warn   string
	}{
		{"a subnet for each rail in each rack",
			join(rack("a", "10.1.0.1/24", "10.1.1.1/24"), rack("b", "10.2.0.1/24", "10.2.1.1/24")),
			"roce-200g" + both + "\n", "a and b have no subnet in common: routed, so rails go by the place", ""},
		{"a subnet for each port", join(rack("a", "10.1.0.1/31", "10.1.0.3/31"), rack("b", "10.1.0.5/31",
			"10.1.0.7/31")),
			"roce-200g" + both + "\n", "10.1.0.0/31 has room for a port and its switch only: routed", ""},
		{"one node with a subnet for each port", rack("a", "10.1.0.1/31", "10.1.0.3/31"),
			"roce-200g 0(a/mlx5_0) 1(a/mlx5_1)\n", "10.1.0.0/31 has room for a port and its switch only", ""},
		{"the same with IPv6", rack("a", "2001:db8::1/127", "2001:db8::3/127"),
			"roce-200g 0(a/mlx5_0) 1(a/mlx5_1)\n", "2001:db8::/127 has room", ""},
		{"a subnet for each rack", join(rack("a", "10.1.0.1/24", "10.1.0.2/24"), rack("b", "10.2.0.1/24",
			"10.2.0.2/24")),
			"roce-200g" + both + "\n", "a and b have no subnet in common: routed", "node a has mlx5_0:1, mlx5_1:1 " +
				"in one"},
		{"racks whose nodes are not alike",
			join(rack("a", "10.1.0.1/24", "10.1.1.1/24", ""), rack("b", "", "10.2.0.1/24", "10.2.1.1/24")),
			"roce-200g 0(a/mlx5_0 b/mlx5_1) 1(a/mlx5_1 b/mlx5_2)\n", "a and b have no subnet in common: routed", ""},
		{"two cables between two nodes",
			join(rack("a", "10.1.0.1/30", "10.1.0.5/30"), rack("b", "10.1.0.2/30", "10.1.0.6/30")),
			"roce-200g*" + both + "\n", "Ethernet, 200 Gb/s", ""},
		{"another port down on each node", join(rack("a", "10.1.0.1/24", "10.1.1.1/24", ""),
			rack("b", "10.1.0.2/24", "", "10.1.2.2/24")),
			"roce-200g* 0(a/mlx5_0 b/mlx5_0) 1(a/mlx5_1) 2(b/mlx5_2)\n", "Ethernet, 200 Gb/s", ""},
		{"an address in no other node's subnets", join(rack("a", "10.1.0.1/24", "10.1.1.1/24"),
			rack("b", "10.1.0.2/24", "10.1.9.2/24")),
			"roce-200g*" + both + "\n", "Ethernet, 200 Gb/s",
			"no node has all 3 subnets, so rails go by the place of the hardware, and at one, 0000:20:00.0, there " +
				"are several: 10.1.1.0/24, 10.1.9.0/24"},
		{"swapped cables", join(rack("a", "10.1.0.1/24", "10.1.1.1/24"), rack("b", "10.1.1.2/24", "10.1.0.2/24")),
			"roce-200g* 0(a/mlx5_0 b/mlx5_1) 1(a/mlx5_1 b/mlx5_0)\n", "Ethernet, 200 Gb/s", ""},
	} {
		got := Group(c.ports)
		if d := cmp.Diff(c.want, text(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		f := got.Fabrics[0]
		if !strings.Contains(f.Reason, c.reason) || f.Routed != strings.Contains(f.Reason, "routed") {
			t.Errorf("%s: routed %v, reason %q, want %q", c.name, f.Routed, f.Reason, c.reason)
		}
		if w := strings.Join(f.Warnings, "\n"); !strings.Contains(w, c.warn) || c.warn == "" && w != "" {
			t.Errorf("%s: warnings %q, want %q", c.name, w, c.warn)
		}
	}
}
