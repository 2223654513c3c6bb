package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The selectors that are understood here: those that fabricctl generate claim writes.
var (
	railSelector = regexp.MustCompile(`^\s*device\.attributes\["fabric\.dev"\]\.rail\s*==\s*(\d{1,9})\s*$`)
	rateSelector = regexp.MustCompile(
		`^\s*device\.attributes\["fabric\.dev"\]\.\??rateGb(?:\.orValue\(0\))?\s*>=\s*(\d{1,9})\s*$`)
)

// demand is what the scheduler has to find on one node.
type demand struct {
	fabric    string
	count     int
	rail      int64 // -1: any
	rate      int64 // at least; 0: any
	tolerates bool
	partial   bool // it has selectors that are not understood
}

// demandOf is a request for devices of a Fabric.
func demandOf(r *request) (demand, bool) {
	d := demand{fabric: fabricOf(r.Class), count: r.Count, rail: -1, tolerates: r.Tolerates}
	if d.fabric == "" || r.All {
		return d, false
	}
	for _, s := range r.Selectors {
		if m := railSelector.FindStringSubmatch(s); m != nil {
			d.rail, _ = strconv.ParseInt(m[1], 10, 64) // nine digits fit
		} else if m := rateSelector.FindStringSubmatch(s); m != nil {
			d.rate, _ = strconv.ParseInt(m[1], 10, 64)
		} else {
			d.partial = true
		}
	}
	return d, true
}

func (d *demand) String() string {
	s := fmt.Sprintf("%d %s of fabric %s", d.count, plural(d.count, "device"), d.fabric)
	if d.rail >= 0 {
		s += fmt.Sprintf(" on rail %d", d.rail)
	}
	if d.rate > 0 {
		s += fmt.Sprintf(" with %d Gb/s or more", d.rate)
	}
	return s
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func (d *demand) fits(o *offer) bool {
	return o.fabric == d.fabric && (d.rail < 0 || o.rail == d.rail) && (d.rate == 0 || o.rate >= d.rate)
}

// nodeHas is what a node has of a demand.
type nodeHas struct{ offered, healthy, free int }

// unmet says why no node has what is asked for; empty: one has, as far as can be told without CEL.
func (d *DRA) unmet(want *demand) string {
	nodes := map[string]*nodeHas{}
	var bad, taken []string
	for _, o := range d.offers() {
		if !want.fits(&o) {
			continue
		}
		n := nodes[o.node]
		if n == nil {
			n = &nodeHas{}
			nodes[o.node] = n
		}
		n.offered++
		if o.problem != "" && !want.tolerates {
			bad = append(bad, fmt.Sprintf("%s %s %s", o.node, o.name, o.problem))
			continue
		}
		n.healthy++
		if len(o.holders) > 0 && !o.multiple {
			taken = append(taken, fmt.Sprintf("%s %s has %s", o.node, o.name, few(o.holders)))
			continue
		}
		n.free++
	}
	slices.Sort(bad)
	slices.Sort(taken)
	switch most := func(of func(*nodeHas) int) int { return mostOf(nodes, of) }; {
	case len(nodes) == 0:
		return fmt.Sprintf("no node offers %s", want)
	case most((*nodeHas).isHealthy) < want.count:
		if len(bad) == 0 {
			bad = d.problems(want.fabric)
		}
		text := fmt.Sprintf("no node has %s with state Active: %s", want, histogram(nodes, (*nodeHas).isHealthy))
		if len(bad) > 0 {
			text += " (unhealthy: " + few(bad) + ")"
		}
		return text
	case most((*nodeHas).isFree) < want.count:
		return fmt.Sprintf("no node has %s that %s free: %s (%s)", want, areIs(want.count),
			histogram(nodes, (*nodeHas).isFree), few(taken))
	}
	return ""
}

func areIs(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func (n *nodeHas) isHealthy() int { return n.healthy }
func (n *nodeHas) isFree() int    { return n.free }

func mostOf(nodes map[string]*nodeHas, of func(*nodeHas) int) (most int) {
	for _, n := range nodes {
		most = max(most, of(n))
	}
	return most
}

// histogram is how many nodes have how many: "37 nodes have 7, 2 nodes have 4".
func histogram(nodes map[string]*nodeHas, of func(*nodeHas) int) string {
	by := map[int]int{}
	for _, n := range nodes {
		by[of(n)]++
	}
	var out []string
	for _, have := range slices.SortedFunc(maps.Keys(by), func(a, b int) int { return cmp.Compare(b, a) }) {
		verb := "have"
		if by[have] == 1 {
			verb = "has"
		}
		out = append(out, fmt.Sprintf("%d %s %s %d", by[have], plural(by[have], "node"), verb, have))
	}
	const most = 6
	if len(out) > most {
		out = append(out[:most], "the others have fewer")
	}
	return strings.Join(out, ", ")
}

// problems are what FabricNodes say of devices of a Fabric that should not be given: where the API server keeps no
// taints, they are in no slice.
func (d *DRA) problems(fabric string) (out []string) {
	for i := range d.FabricNodes {
		n := &d.FabricNodes[i]
		for _, f := range n.Status.Fabrics {
			for _, v := range f.Devices {
				if f.Name == fabric && v.Problem != "" && n.Spec.Gone == nil {
					out = append(out, fmt.Sprintf("%s %s %s", n.Name, v.ID, v.Problem))
				}
			}
		}
	}
	return out
}
