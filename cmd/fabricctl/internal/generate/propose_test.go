package generate

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// asked is a network of so many nodes, each with so many ports.
func asked(name string, nodes, ports int) *Object {
	x := &Object{Network: Network{Name: name}}
	for range ports {
		var r topology.Rail
		for n := range nodes {
			r.Ports = append(r.Ports, topology.Port{Node: string(rune('a'+n%26)) + strings.Repeat("x", n/26)})
		}
		x.Rails = append(x.Rails, r)
	}
	x.need()
	return x
}

// A proposed range has room for the nodes, and nothing has addresses of it.
func TestPropose(t *testing.T) {
	for _, c := range []struct {
		name         string
		nodes, ports int
		more         int // --nodes
		uses         []string
		want         string
	}{
		{"few nodes", 2, 4, 0, nil, "198.18.0.0/22"},
		{"40 nodes", 40, 8, 0, nil, "198.18.0.0/20"},
		{"nodes that will come", 2, 8, 1000, nil, "198.18.0.0/16"},
		{"many ports", 2, 20, 0, nil, "198.18.0.0/21"},
		{"what is used", 2, 4, 0, []string{"198.18.0.0/23", "198.18.5.1/32"}, "198.18.8.0/22"},
		{"benchmarks are measured here", 2, 4, 0, []string{"198.18.0.0/15"}, "100.64.0.0/22"},
		{"OVN's join network", 2, 4, 0, []string{"198.18.0.0/15", "100.64.0.0/16"}, "100.65.0.0/22"},
		{"Cilium's default", 2, 4, 0, []string{"198.0.0.0/8", "100.64.0.0/10", "10.0.0.0/8"}, "172.16.0.0/22"},
		{"little is left", 2, 4, 0, []string{"198.0.0.0/8", "100.64.0.0/10", "10.0.0.0/8", "172.16.0.0/12",
			"192.168.0.0/17", "192.168.128.0/18", "192.168.192.0/19", "192.168.224.0/20", "192.168.240.0/21",
			"192.168.248.0/22", "192.168.252.0/23"}, "192.168.254.0/23"},
		{"nothing is left", 2, 4, 0, []string{"0.0.0.0/0"},
			"no range is free that has room for 2 nodes with 4 addresses"},
	} {
		o := &Options{Nodes: c.more, Taken: &Taken{Net: &clusternet.Net{Compared: []string{"Nodes (2)"}}}}
		for _, u := range c.uses {
			o.Taken.Uses = append(o.Taken.Uses, clusternet.Use{Prefix: netip.MustParsePrefix(u), What: "it"})
		}
		x, chosen := asked("ib", c.nodes, c.ports), newChooser(nil, o)
		if err := chosen.choose(x, netip.Prefix{}); err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
			continue
		}
		if x.Range.String() != c.want || !strings.Contains(x.Why, "is free: compared with Nodes (2)") {
			t.Errorf("%s: %s (%s), want %s", c.name, x.Range, x.Why, c.want)
		}
		if x.Room < max(c.nodes, c.more) || pool.Usable(netip.PrefixFrom(x.Range.Addr(), x.PerNode)) < c.ports {
			t.Errorf("%s: %s has room for %d nodes with /%d", c.name, x.Range, x.Room, x.PerNode)
		}
		if slices.ContainsFunc(o.Taken.Uses, func(u clusternet.Use) bool { return u.Prefix.Overlaps(x.Range) }) {
			t.Errorf("%s: %s is not free", c.name, x.Range)
		}
		next := asked("roce", c.nodes, c.ports) // the next network gets another one
		if err := chosen.choose(next, netip.Prefix{}); err == nil && next.Range.Overlaps(x.Range) {
			t.Errorf("%s: two Fabrics have %s and %s", c.name, x.Range, next.Range)
		}
	}
}

// A Fabric that is there keeps its addresses, and others keep off them.
func TestKeep(t *testing.T) {
	fabric := v1alpha1.Fabric{Spec: v1alpha1.FabricSpec{
		Match: v1alpha1.Match{Discovered: "ib"}, Addresses: &v1alpha1.Addresses{NodeRanges: &v1alpha1.NodeRanges{
			Ranges: []v1alpha1.NodeRange{{Range: "198.18.0.0/16", PerNodePrefixLength: 27}}}}}}
	fabric.Name = "ib"
	o := &Options{Taken: &Taken{Net: &clusternet.Net{}, Fabrics: []v1alpha1.Fabric{fabric}}}
	kept, other, same := asked("ib", 2, 4), asked("roce", 2, 4), asked("ib", 2, 4)
	chosen := newChooser(nil, o)
	if err := chosen.choose(kept, netip.Prefix{}); err != nil || kept.Keep == nil || kept.Range.IsValid() {
		t.Errorf("%v %+v", err, kept)
	}
	if err := chosen.choose(other, netip.Prefix{}); err != nil || other.Range.String() != "198.19.0.0/22" {
		t.Errorf("%v %s", err, other.Range)
	}
	o.Range = netip.MustParsePrefix("198.18.0.0/20")
	if err := chosen.choose(same, o.Range); err != nil || len(same.Warn) > 0 || same.Range != o.Range {
		t.Errorf("%v %+v", err, same)
	}
	o.Taken.Uses = []clusternet.Use{{Prefix: o.Range, What: "ServiceCIDR kubernetes", Sure: true}}
	err := newChooser(nil, o).choose(asked("ib", 2, 4), o.Range)
	const want = "--range 198.18.0.0/20: range 198.18.0.0/20 meets ServiceCIDR kubernetes"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if err := newChooser(nil, &Options{}).choose(asked("ib", 2, 4), netip.Prefix{}); !errors.Is(err, ErrNoRange) {
		t.Error(err)
	}
}
