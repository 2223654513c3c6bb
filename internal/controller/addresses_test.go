package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// says checks a verdict: its reason, and parts of its error or note.
func (v verdict) says(t *testing.T, name, reason string, parts ...string) {
	t.Helper()
	text := v.note
	if v.err != nil {
		text = v.err.Error()
	}
	if v.reason != reason || len(parts) == 0 && text != "" {
		t.Errorf("%s: %s: %s, want %s", name, v.reason, text, reason)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: %s: %s lacks %q", name, v.reason, text, part)
		}
	}
}

// Usage of nodeRanges: what stops nodes comes before what will.
func TestNodeRangesVerdict(t *testing.T) {
	f := fabricOf(t, "ib", of26)
	some := noderange.Conflict{Node: "a", Held: netip.MustParsePrefix("10.0.0.70/32"), Owner: "b",
		Range: netip.MustParsePrefix("10.0.0.64/26")}
	for name, tt := range map[string]struct {
		usage  Usage
		reason string
		parts  []string
	}{
		"nothing was allocated": {Usage{}, sufficient, nil},
		"there is room":         {Usage{Left: 3, Total: 4}, sufficient, nil},
		"nearly all are given": {Usage{Left: 1, Total: 100}, poolNearlyFull,
			[]string{"over ", " of the 100 ranges"}},
		"all are given": {Usage{Total: 4}, poolNearlyFull, []string{"the next node gets none"}},
		"a node has none": {Usage{Total: 4, Exhausted: errors.New("no /26")}, rangeTooSmall,
			[]string{"no /26"}},
		"its static one is used": {Usage{Exhausted: fmt.Errorf("x: %w", noderange.ErrReserved)}, rangeReserved,
			[]string{"x"}},
		"others must be heard": {Usage{Waiting: []string{"n"}, Unheard: []string{"z", "y"}, Total: 4}, waitingFor,
			[]string{"n: no range yet", "at most: y, z"}},
		"only a node that has gone is not heard": {Usage{Unheard: []string{"z"}, Left: 4, Total: 4}, sufficient, nil},
		"two nodes may have one address": {Usage{Conflicts: []noderange.Conflict{some}, Total: 4}, conflict,
			[]string{"a holds 10.0.0.70/32 of 10.0.0.64/26, which is b's"}},
	} {
		nodeRanges(f, tt.usage).says(t, name, tt.reason, tt.parts...)
	}
}

// parsed is a fabric with these addresses.
func parsed(t *testing.T, addresses string) *fabrics.Fabric {
	t.Helper()
	o := objectOf(t, "ib", "{addresses: {"+addresses+"}}", "", 0)
	f, err := fabrics.Parse(&o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAddressesOfWhereabouts(t *testing.T) {
	f := parsed(t, "ipam: {type: whereabouts, range: 10.0.0.0/24}")
	pool := func(name, prefix string, n int) []usedPool {
		return []usedPool{{name, netip.MustParsePrefix(prefix), n}}
	}
	ours := func(n int) []usedPool { return pool("10.0.0.0-24", "10.0.0.0/24", n) }
	for name, tt := range map[string]struct {
		kinds   map[schema.GroupVersionKind]bool
		pools   []usedPool
		reason  string
		parts   []string
		summary string
	}{
		"it is not installed": {map[schema.GroupVersionKind]bool{whereaboutsPools: false}, nil, ipamMissing,
			[]string{"install"}, ""},
		"it has made no pool yet":      {nil, nil, sufficient, nil, "0/254"},
		"there is room":                {nil, ours(9), sufficient, nil, "9/254"},
		"a pool of another network":    {nil, pool("10.9.0.0-24", "10.9.0.0/24", 254), sufficient, nil, "0/254"},
		"nearly all are given":         {nil, ours(250), poolNearlyFull, []string{"IPPool 10.0.0.0-24"}, "250/254"},
		"the next pod gets no address": {nil, ours(254), poolFull, []string{"all 254"}, "254/254"},
	} {
		c := &Controller{pools: pools{kinds: tt.kinds, whereabouts: tt.pools}}
		a := c.judgeAddresses(&judged{force: f}, &sum{}, &world{})
		a.verdict.says(t, name, tt.reason, tt.parts...)
		if a.counts.Summary != tt.summary {
			t.Errorf("%s: %s, want %s", name, a.counts.Summary, tt.summary)
		}
	}
}

func TestAddressesOfNVIPAM(t *testing.T) {
	f := parsed(t, "ipam: {type: nv-ipam, poolName: p, poolType: ippool}")
	section := sectionOf(f)
	if len(section.Refs) != 1 {
		t.Fatalf("it uses %v", section.Refs)
	}
	ref := section.Refs[0]
	kind := kindOf(ref)
	used := func(name string, devices int) v1alpha1.FabricNode {
		n := nodeWith(name, make([]v1alpha1.FabricDevice, devices)...)
		n.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		return n
	}
	young := used("young", 1)
	young.CreationTimestamp = metav1.NewTime(noon)
	w := &world{nodes: []v1alpha1.FabricNode{used("a", 2), used("b", 1), young}}
	known := map[schema.GroupVersionKind]bool{kind: true}
	given := func(blocks int, given map[string]int) pools {
		p := &nvipam.Pool{Kind: "IPPool", Namespace: "ns", Name: "p", Blocks: blocks, Given: given}
		return pools{kinds: known, nvipam: map[ranges.Ref]*nvipam.Pool{ref: p}}
	}
	for name, tt := range map[string]struct {
		pools  pools
		reason string
		parts  []string
	}{
		"not looked for yet": {pools{}, sufficient, nil},
		"it is not installed": {pools{kinds: map[schema.GroupVersionKind]bool{kind: false}}, ipamMissing,
			[]string{"no IPPools of nv-ipam"}},
		"there is no such": {pools{kinds: known}, poolMissing, []string{"no IPPool p"}},
		"it can't be read": {pools{kinds: known, unreadable: map[ranges.Ref]error{ref: errors.New("no subnet")}},
			poolNotReady, []string{"no subnet"}},
		"each has its block": {given(9, map[string]int{"a": 2, "b": 1}), sufficient, nil},
		"one has none": {given(9, map[string]int{"a": 2}), poolNotReady,
			[]string{"IPPool ns/p has no block for b: "}},
		"no block is left for one": {given(1, map[string]int{"a": 2}), rangeTooSmall,
			[]string{"none is left for b"}},
		"one is too small": {given(9, map[string]int{"a": 1, "b": 1}), rangeTooSmall,
			[]string{"a has 1 and needs 2"}},
		"all are given": {given(2, map[string]int{"a": 2, "b": 1}), poolNearlyFull,
			[]string{"of the 2 blocks"}},
	} {
		c := &Controller{pools: tt.pools, Now: func() time.Time { return noon }}
		c.judgeAddresses(&judged{force: f}, &sum{}, w).verdict.says(t, name, tt.reason, tt.parts...)
	}
}

// The plugin is missing on a node: that is said, unless something stops all nodes.
func TestAddressesWithoutPlugin(t *testing.T) {
	c := &Controller{Now: func() time.Time { return noon }}
	a := c.judgeAddresses(&judged{force: parsed(t, "ipam: {type: dhcp}")}, &sum{missing: []string{"b", "a"}}, &world{})
	a.verdict.says(t, "dhcp", ipamMissing, "is not on a, b: ")
	a = c.judgeAddresses(&judged{force: fabricOf(t, "ib", of26)}, &sum{missing: []string{"a"}}, &world{})
	a.verdict.says(t, "nodeRanges need no plugin", sufficient)
	many := &sum{need: need{inCluster: 100, onNode: 100}}
	a = c.judgeAddresses(&judged{force: fabricOf(t, "ib", of26)}, many, &world{})
	a.verdict.says(t, "more devices than addresses", rangeTooSmall, "")
	a = c.judgeAddresses(&judged{}, &sum{missing: []string{"a"}}, &world{})
	a.verdict.says(t, "nothing is in force", sufficient)
}
