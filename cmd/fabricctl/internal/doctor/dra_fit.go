package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// demand is what the scheduler has to find on one node.
type demand struct {
	fabric      string
	count       int
	selectors   []string // CEL, as resource.k8s.io/v1 has it
	tolerations []resourcev1.DeviceToleration
}

// demandOf is a request for devices of a Fabric.
func demandOf(r *request) (demand, bool) {
	d := demand{
		fabric: fabricOf(r.Class), count: r.Count, selectors: r.Selectors, tolerations: r.Tolerations,
	}
	return d, d.fabric != "" && !r.All
}

func (d *demand) String() string {
	s := fmt.Sprintf("%d %s of fabric %s", d.count, plural(d.count, "device"), d.fabric)
	for i, selector := range d.selectors {
		s += []string{" with ", " and "}[min(i, 1)] + quoted(selector)
	}
	return s
}

// quoted is a selector on one line, and not longer than a line.
func quoted(selector string) string {
	return fmt.Sprintf("%#q", quote.Clip(oneLine(selector), 120))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// selectors are compiled by the scheduler's own code. It evaluates each with a bounded cost.
type selectors []cel.CompilationResult

func compile(list []string) (out selectors, err error) {
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	for _, s := range list {
		c := compiler.CompileCELExpression(s, cel.Options{DisableCostEstimation: true})
		if c.Error != nil {
			return nil, fmt.Errorf("selector %s: %s", quoted(s), oneLine(c.Error.Detail))
		}
		out = append(out, c)
	}
	return out, nil
}

// match reports whether all selectors are true for a device. An error is one for the scheduler too: it then gives no
// device of that node.
func (list selectors) match(v *resourcev1.Device) (bool, error) {
	for _, s := range list {
		ok, _, err := s.DeviceMatches(context.Background(), cel.Device{
			Driver: draDriver, AllowMultipleAllocations: v.AllowMultipleAllocations,
			Attributes: v.Attributes, Capacity: v.Capacity,
		})
		if err != nil {
			return false, fmt.Errorf("selector %s: %w", quoted(s.Expression), err)
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}

// problem is the taint by which no request with these tolerations gets the device; empty: no taint does that.
func (o *offer) problem(tolerations []resourcev1.DeviceToleration) string {
	for _, t := range o.device.Taints {
		tolerated := func(l resourcev1.DeviceToleration) bool { return resourceclaim.ToleratesTaint(l, t) }
		if !slices.Contains(unusable, t.Effect) || slices.ContainsFunc(tolerations, tolerated) {
			continue
		}
		if t.Key == draDriver+"/unhealthy" && t.Value != "" {
			return t.Value
		}
		return strings.TrimSuffix(t.Key+" "+t.Value, " ")
	}
	return ""
}

// nodeHas is what a node has of a demand.
type nodeHas struct{ offered, healthy, free int }

// unmet says why no node has what is asked for; empty: one has.
func (d *DRA) unmet(want *demand) string {
	selectors, err := compile(want.selectors)
	if err != nil {
		return err.Error()
	}
	nodes := map[string]*nodeHas{}
	var bad, taken, failed []string
	for _, o := range d.offers() {
		if o.fabric != want.fabric {
			continue
		}
		if ok, err := selectors.match(o.device); err != nil {
			failed = append(failed, fmt.Sprintf("%s %s: %v", o.node, o.name, err))
			continue
		} else if !ok {
			continue
		}
		n := nodes[o.node]
		if n == nil {
			n = &nodeHas{}
			nodes[o.node] = n
		}
		n.offered++
		if problem := o.problem(want.tolerations); problem != "" {
			bad = append(bad, fmt.Sprintf("%s %s %s", o.node, o.name, problem))
			continue
		}
		n.healthy++
		if len(o.holders) > 0 && !ptr.Deref(o.device.AllowMultipleAllocations, false) {
			taken = append(taken, fmt.Sprintf("%s %s has %s", o.node, o.name, few(o.holders)))
			continue
		}
		n.free++
	}
	slices.Sort(bad)
	slices.Sort(taken)
	switch most := func(of func(*nodeHas) int) int { return mostOf(nodes, of) }; {
	case len(nodes) == 0 && len(failed) > 0:
		return "no device can be judged: " + few(failed)
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
