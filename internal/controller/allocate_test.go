package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// noon is when the rounds of these tests are.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// assigned are ranges of one Fabric.
func assigned(fabric string, all ...string) (out []v1alpha1.AssignedRange) {
	for _, r := range all {
		out = append(out, v1alpha1.AssignedRange{Fabric: fabric, Subnet: "10.0.0.0/24", Range: r})
	}
	return out
}

// heldBy are addresses that pods hold of a Fabric.
func heldBy(fabric string, all ...string) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, p := range all {
		out[fabric] = append(out[fabric], netip.MustParsePrefix(p))
	}
	return out
}

// texts are changes as a text: "a: 10.0.0.0/26, had 10.0.0.64/26".
func texts(all []change) string {
	var out []string
	for _, c := range all {
		text := c.node + ":"
		for _, r := range c.ranges {
			text += " " + r.Range
		}
		for _, r := range c.former {
			text += ", had " + r.Range
		}
		if !c.gone.IsZero() {
			text += " (gone)"
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

const of26 = "ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26}]"

// ofIB are the Fabrics that most nodes of these tests have devices of.
var ofIB = []string{"ib"}

// done is what a node that is done with all former ranges reports.
func done(v1alpha1.AssignedRange) bool { return true }

// allocations are what nodes have and want, and what is done about that.
var allocations = map[string]struct {
	spec         string // of nodeRanges; empty: of26
	holdings     []holding
	waits        bool // without fresh
	takes, gives string
	waiting      string
}{
	"each node gets one, by its name": {
		holdings: []holding{{node: "b", wants: ofIB}, {node: "a", wants: ofIB}, {node: "without devices"}},
		gives:    "a: 10.0.0.0/26; b: 10.0.0.64/26",
	},
	"none before others are heard, but who has one keeps it": {
		holdings: []holding{{node: "a", wants: ofIB}, {node: "b", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")}},
		waits:    true, waiting: "[a]",
	},
	"not even the one that its pods have addresses of: others may have some of it": {
		holdings: []holding{{node: "a", wants: ofIB, held: heldBy("ib", "10.0.0.70/32")}, {node: "b", wants: ofIB}},
		waits:    true, waiting: "[a b]",
	},
	"the one that most of its pods have addresses of": {
		holdings: []holding{{node: "a", wants: ofIB, held: heldBy("ib", "10.0.0.1/32", "10.0.0.68/31")}},
		gives:    "a: 10.0.0.64/26",
	},
	"none that others' pods have addresses of": {
		holdings: []holding{{node: "a", wants: ofIB}, {node: "b", held: heldBy("ib", "10.0.0.9/32")},
			{node: "c", held: heldBy("gone", "10.0.0.64/30")}},
		gives: "a: 10.0.0.128/26",
	},
	"none that others had": {
		holdings: []holding{{node: "a", wants: ofIB}, {node: "b", former: assigned("ib", "10.0.0.0/26")}},
		gives:    "a: 10.0.0.64/26",
	},
	"what a node is done with is anybody's": {
		holdings: []holding{{node: "b", former: assigned("ib", "10.0.0.0/26"), released: done}},
		gives:    "b:",
	},
	"a range of another length becomes a former one": {
		spec:     "ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 27}]",
		holdings: []holding{{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")}},
		gives:    "a: 10.0.0.0/27, had 10.0.0.0/26",
	},
	"what a longer one has in common with the own is no former one": {
		spec:     "ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 25}]",
		holdings: []holding{{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")}},
		gives:    "a: 10.0.0.0/25",
	},
	"the ranges of a Fabric that is not in force any more are former ones": {
		holdings: []holding{{node: "a", ranges: assigned("gone", "10.0.0.0/26")}},
		gives:    "a:, had 10.0.0.0/26",
	},
	"those of a Fabric that can't be read stay": {
		holdings: []holding{{node: "a", wants: ofIB, ranges: assigned("unread", "10.1.0.0/26")}},
		gives:    "a: 10.1.0.0/26 10.0.0.0/26",
	},
	"of two nodes that have one, the first keeps it": {
		holdings: []holding{{node: "b", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")},
			{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")}},
		gives: "b: 10.0.0.64/26, had 10.0.0.0/26",
	},
	"a static one is that node's": {
		spec:     of26 + ", static: [{node: b, range: 10.0.0.0/26}]",
		holdings: []holding{{node: "a", wants: ofIB}, {node: "b", wants: ofIB}},
		gives:    "a: 10.0.0.64/26; b: 10.0.0.0/26",
	},
	"a Node that is gone keeps its range, and is marked": {
		holdings: []holding{{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26"), gone: noon}},
		gives:    "a: 10.0.0.0/26 (gone)",
	},
	"it is back": {
		holdings: []holding{{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26"), marked: true}},
		gives:    "a: 10.0.0.0/26",
	},
	"what is as it should be is not changed": {
		holdings: []holding{{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.128/26")},
			{node: "b", ranges: assigned("ib", "10.0.0.64/26")}},
	},
}

func TestAllocate(t *testing.T) {
	for name, tt := range allocations {
		t.Run(name, func(t *testing.T) {
			if tt.spec == "" {
				tt.spec = of26
			}
			list := []fabrics.Fabric{*fabricOf(t, "ib", tt.spec)}
			a, err := allocate(list, map[string]bool{"unread": true}, tt.holdings, noon, !tt.waits)
			if err != nil {
				t.Fatal(err)
			}
			if got := texts(a.takes); got != tt.takes {
				t.Errorf("it takes %q, want %q", got, tt.takes)
			}
			if got := texts(a.gives); got != tt.gives {
				t.Errorf("it gives %q, want %q", got, tt.gives)
			}
			want := tt.waiting
			if want == "" {
				want = "[]"
			}
			if got := fmt.Sprint(a.usage["ib"].Waiting); got != want || a.waiting() != (tt.waiting != "") {
				t.Errorf("nodes that wait: %s, want %s", got, want)
			}
		})
	}
}

// A range that all others have is taken from a Node that is gone, once reclaim has passed, and before it is given.
func TestAllocateReclaims(t *testing.T) {
	const two = "ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26, exclude: [10.0.0.128/25]}], reclaim: 1h"
	list := []fabrics.Fabric{*fabricOf(t, "ib", two)}
	holdings := func(gone, paused time.Duration) []holding {
		return []holding{
			{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")},
			{node: "gone", wants: ofIB, ranges: assigned("ib", "10.0.0.64/26"), gone: noon.Add(-gone), marked: true,
				paused: paused, held: heldBy("ib", "10.0.0.65/32")},
			{node: "new", wants: ofIB},
		}
	}
	for _, tt := range []struct {
		gone, paused time.Duration
		takes, gives string
	}{
		{gone: 59 * time.Minute},
		{gone: 2 * time.Hour, paused: 61 * time.Minute}, // there was no leader who could have seen it come back
		{gone: time.Hour, takes: "gone:, had 10.0.0.64/26 (gone)", gives: "new: 10.0.0.64/26"},
	} {
		a, err := allocate(list, nil, holdings(tt.gone, tt.paused), noon, true)
		if err != nil {
			t.Fatal(err)
		}
		if takes, gives := texts(a.takes), texts(a.gives); takes != tt.takes || gives != tt.gives {
			t.Errorf("gone for %s: it takes %q and gives %q, want %q and %q", tt.gone, takes, gives, tt.takes,
				tt.gives)
		}
		if full := a.usage["ib"].Exhausted != nil; full != (tt.takes == "") {
			t.Errorf("gone for %s: exhausted: %t", tt.gone, full)
		}
	}
}

// An address that pods of a node have of another node's range is a conflict: neither range is changed.
func TestAllocateConflict(t *testing.T) {
	list := []fabrics.Fabric{*fabricOf(t, "ib", of26)}
	a, err := allocate(list, nil, []holding{
		{node: "a", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")},
		{node: "b", wants: ofIB, ranges: assigned("ib", "10.0.0.64/26"), held: heldBy("ib", "10.0.0.5/32")},
	}, noon, true)
	if err != nil {
		t.Fatal(err)
	}
	c := a.usage["ib"].Conflicts
	if len(a.takes)+len(a.gives) > 0 || len(c) != 1 || c[0].Node != "b" || c[0].Owner != "a" {
		t.Errorf("it takes %q and gives %q; conflicts %+v", texts(a.takes), texts(a.gives), c)
	}
}

// More former ranges than a FabricNode can have: the latest stay.
func TestFormerBounded(t *testing.T) {
	h := &holding{ranges: assigned("ib", "10.9.0.0/26")}
	for i := range maxFormer {
		h.former = append(h.former, assigned("ib", fmt.Sprintf("10.0.%d.0/26", i))...)
	}
	out := formerOf(h, nil)
	if len(out) != maxFormer || out[len(out)-1] != h.ranges[0] || out[0] != h.former[1] {
		t.Errorf("%d former ranges, from %v to %v", len(out), out[0], out[len(out)-1])
	}
}

// Nodes wait that have devices of a Fabric and no range of it: an earlier leader may be about to give them one.
func TestWaiting(t *testing.T) {
	holdings := []holding{
		{node: "waits", wants: []string{"plain", "ib"}},
		{node: "has", wants: ofIB, ranges: assigned("ib", "10.0.0.0/26")},
		{node: "has that of another", wants: ofIB, ranges: assigned("plain", "10.0.0.0/26")},
		{node: "gone", wants: ofIB, gone: noon},
		{node: "plain", wants: []string{"plain"}},
	}
	a, err := allocate([]fabrics.Fabric{*fabricOf(t, "ib", of26), {Name: "plain"}}, nil, holdings, noon, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(a.usage["ib"].Waiting); len(a.usage) != 1 || got != "[has that of another waits]" {
		t.Errorf("%s of %d Fabrics", got, len(a.usage))
	}
}
