package controller

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// worldOf is a cluster with two nodes, whose pods hold addresses of both their ranges.
func worldOf() *world {
	n := v1alpha1.FabricNode{Status: v1alpha1.FabricNodeStatus{Fabrics: []v1alpha1.NodeFabric{
		{Name: "ib", Devices: []v1alpha1.FabricDevice{{Pods: []string{"team/q", "team/p"}},
			{Pods: []string{"team/p"}}}},
		{Name: "eth", Devices: []v1alpha1.FabricDevice{{Pods: []string{"team/r"}}}},
	}}}
	n.Name = "a"
	return &world{nodes: []v1alpha1.FabricNode{n}, holdings: []holding{
		{node: "a", ranges: assigned("ib", "10.0.0.0/26"), held: heldBy("ib", "10.0.0.40/32")},
		{node: "b", ranges: assigned("ib", "10.0.0.64/26"), held: heldBy("ib", "10.0.0.65/32")},
		{node: "gone", ranges: assigned("ib", "10.0.0.128/26"), held: heldBy("ib", "10.0.0.129/32"), gone: noon},
	}}
}

// A change of nodeRanges that would take an address from a pod names the address, the node and its pods.
func TestCheckCut(t *testing.T) {
	of := func(more string) string { return "ranges: [{range: 10.0.0.0/24, " + more + "}]" }
	force := fabricOf(t, "ib", of26)
	for name, tt := range map[string]struct{ spec, want string }{
		"the same":                                {of26, ""},
		"wider: both nodes have addresses of it":  {of("perNodePrefixLength: 25"), "10.0.0.40/32"},
		"narrower: its addresses are of one part": {of("perNodePrefixLength: 27"), ""},
		"an address is excluded":                  {of("perNodePrefixLength: 26, exclude: [10.0.0.40/32]"), "no range"},
		"another one is excluded":                 {of("perNodePrefixLength: 26, exclude: [10.0.0.192/26]"), ""},
		"what only a node that is gone has":       {of("perNodePrefixLength: 26, exclude: [10.0.0.129/32]"), ""},
		"the range is another node's by now": {of26 + ", static: [{node: b, range: 10.0.0.0/26}]",
			"(pods team/p, team/q)"},
		"another range": {"ranges: [{range: 10.7.0.0/24, perNodePrefixLength: 26}]", ""},
	} {
		err := checkCut(worldOf(), fabricOf(t, "ib", tt.spec), force, noon)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// An IPAM plugin must not have addresses that pods have of nodes' ranges.
func TestCheckSection(t *testing.T) {
	for spec, want := range map[string]string{
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/24}}}`:                         "in use on node a",
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/24, exclude: [10.0.0.0/25]}}}`: "",
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/24, exclude: [10.0.0.0/26]}}}`: "on node b",
		`{addresses: {ipam: {type: whereabouts, range: 10.8.0.0/24}}}`:                         "",
		`{addresses: {ipam: {type: dhcp}}}`:                                                    "",
	} {
		o := objectOf(t, "w", spec, "", 0)
		f, err := fabrics.Parse(&o)
		if err != nil {
			t.Fatal(err)
		}
		err = checkSection(worldOf(), f)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}

// The keys of a pool of whereabouts are distances from its first address. What is no distance is left out.
func TestLeases(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"range": "10.0.0.7/24",
		"allocations": map[string]any{
			"1": map[string]any{"podref": "team/p"}, "200": map[string]any{}, "-1": nil, "x": nil,
			"99999999999999999999": nil, "4294967295": nil,
		},
	}}}
	u.SetNamespace("kube-system")
	u.SetName("pool")
	all := leasesOf(u)
	got := map[netip.Addr]string{}
	for _, l := range all {
		got[l.address] = l.pool + " " + l.pod
	}
	if len(got) != 2 || got[netip.MustParseAddr("10.0.0.1")] != "kube-system/pool team/p" ||
		got[netip.MustParseAddr("10.0.0.200")] != "kube-system/pool " {
		t.Errorf("%v", got)
	}
	for spec, want := range map[string]string{
		of26: "10.0.0.1 to pod team/p (IPPool kube-system/pool), and 2 addresses",
		"ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26, exclude: [10.0.0.0/26]}]": "10.0.0.200 " +
			"to pod",
		"ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26, exclude: [10.0.0.0/26, 10.0.0.192/26]}]": "",
		"ranges: [{range: 10.9.0.0/24, perNodePrefixLength: 26}]":                                        "",
	} {
		err := clash(fabricOf(t, "ib", spec), all)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	u.Object["spec"] = map[string]any{"range": "10.0.0.0", "allocations": map[string]any{"1": nil}}
	if got := leasesOf(u); got != nil {
		t.Errorf("of a range that can't be read: %v", got)
	}
}

// Only another range, length, exclusion or static range gives other addresses.
func TestSameAddresses(t *testing.T) {
	parse := func(spec string) *fabrics.Fabric {
		o := objectOf(t, "ib", spec, "", 0)
		f, err := fabrics.Parse(&o)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	ranged := func(more string) string { return `{addresses: {nodeRanges: {` + of26 + more + `}}}` }
	const ipam = `{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/24}}}`
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{ranged(""), ranged(", reclaim: 1h"), true},
		{ranged(""), ranged(", static: [{node: a, range: 10.0.0.0/26}]"), false},
		{ranged(""), here27, false},
		{ranged(""), ipam, false},
		{ipam, ipam[:1] + "network: {mtu: 2044}, " + ipam[1:], true},
		{ipam, strings.Replace(ipam, "/24", "/25", 1), false},
	} {
		if got := sameAddresses(parse(tt.a), parse(tt.b)); got != tt.want {
			t.Errorf("%s and %s: %t", tt.a, tt.b, got)
		}
	}
}
