package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// clusterNodes compares nodes with the same GPUs: they should have as many of each resource, and as many Active ports.
func clusterNodes(c *Cluster) (out []Finding) {
	inventories := map[string]*node.Node{}
	c.present(func(f *FabricNode) { inventories[f.Name] = f.Node })
	kinds := c.kinds(inventories)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		nodes := kinds[kind]
		names := map[string]bool{}
		for _, n := range nodes {
			for r := range n.Status.Allocatable {
				names[string(r)] = names[string(r)] || strings.Contains(string(r), "/")
			}
		}
		for _, r := range slices.Sorted(maps.Keys(names)) {
			if names[r] {
				out = append(out, odd(kind, "of "+r, nodes, func(n *corev1.Node) int { return countOf(n, r) })...)
			}
		}
		out = append(
			out,
			odd(kind, "Active ports", nodes,
				func(n *corev1.Node) int { return activePorts(inventories[n.Name]) })...)
	}
	out = append(out, c.withoutDevices(kinds)...)
	if len(kinds) == 0 {
		return out
	}
	return pass(out, "cluster-nodes", fmt.Sprintf("%d kinds of GPU nodes, each alike", len(kinds)))
}

// withoutDevices finds nodes whose device plugin has registered a resource and offers none of it, which others offer.
// Those with GPUs of a known kind are compared already.
func (c *Cluster) withoutDevices(kinds map[string][]corev1.Node) (out []Finding) {
	compared := map[string]bool{}
	for _, nodes := range kinds {
		for _, n := range nodes {
			compared[n.Name] = len(nodes) > 1
		}
	}
	none, some := map[string][]string{}, map[string]int{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		for name := range n.Status.Allocatable {
			switch r := string(name); {
			case !extended(r):
			case countOf(n, r) > 0:
				some[r]++
			case !compared[n.Name]:
				none[r] = append(none[r], n.Name)
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(none)) {
		if some[r] > 0 {
			out = append(out, finding("cluster-nodes", Warn, fmt.Sprintf("none of %s on %s, which other nodes "+
				"offer (%d)",
				r, few(none[r]), some[r])))
		}
	}
	return out
}

// odd reports nodes with another count than most of their kind. A negative count is not known, and left out.
func odd(kind, what string, nodes []corev1.Node, count func(*corev1.Node) int) (out []Finding) {
	by := map[int]int{}
	for i := range nodes {
		if n := count(&nodes[i]); n >= 0 {
			by[n]++
		}
	}
	usual := 0
	for _, n := range slices.Sorted(maps.Keys(by)) {
		if by[n] >= by[usual] {
			usual = n
		}
	}
	others := map[int][]string{}
	for i := range nodes {
		if n := count(&nodes[i]); n >= 0 && n != usual {
			others[n] = append(others[n], nodes[i].Name)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(others)) {
		verb := "has"
		if len(others[n]) > 1 {
			verb = "have"
		}
		out = append(out, finding("cluster-nodes", Warn, fmt.Sprintf("%s %s %d %s, most nodes with %s have %d",
			few(others[n]), verb, n, what, kind, usual)))
	}
	return out
}

// countOf is how many of a resource a node has for pods.
func countOf(n *corev1.Node, resource string) int {
	q := n.Status.Allocatable[corev1.ResourceName(resource)]
	return int(q.Value())
}

// kinds puts nodes together that should be alike: the same GPUs, by the label of GPU feature discovery or by the
// inventory.
func (c *Cluster) kinds(inventories map[string]*node.Node) map[string][]corev1.Node {
	out := map[string][]corev1.Node{}
	for _, n := range c.Nodes {
		kind := n.Labels["nvidia.com/gpu.product"]
		if p := inventories[n.Name]; kind == "" && p != nil && len(p.GPUs) > 0 {
			kind = fmt.Sprintf("%d GPUs %s", len(p.GPUs), cmp.Or(p.GPUs[0].Model, p.GPUs[0].ID))
		}
		if kind != "" {
			out[kind] = append(out[kind], n)
		}
	}
	return out
}

// activePorts counts the ports of a node that carry traffic, those in pods included; -1: not known.
func activePorts(n *node.Node) int {
	if n == nil {
		return -1
	}
	active := 0
	for i := range n.HCAs {
		for j := range n.HCAs[i].Ports {
			if n.HCAs[i].Kind == "PF" && n.HCAs[i].Ports[j].Active() {
				active++
			}
		}
	}
	return active
}
