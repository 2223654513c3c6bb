package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// clusterVersions compares what runs on the nodes, and with what asks.
func clusterVersions(c *Cluster) (out []Finding) {
	if len(c.Inventories) == 0 {
		return nil
	}
	agents, plugins := map[string][]string{}, map[string][]string{}
	for i := range c.Inventories {
		p := &c.Inventories[i]
		agents[p.Agent] = append(agents[p.Agent], p.Node.Name)
		plugins[cmp.Or(p.Plugin, "none")] = append(plugins[cmp.Or(p.Plugin, "none")], p.Node.Name)
	}
	if len(agents) > 1 {
		out = append(out, finding("cluster-versions", Warn, "fabric-agent: "+spread(agents, 20)))
	}
	if len(plugins) > 1 {
		out = append(out, finding("cluster-versions", Warn, "plugin fabric, by checksum: "+spread(plugins, 12)))
	}
	if _, ok := agents[c.Version]; !ok && len(agents) == 1 && c.Version != "" {
		f := finding("cluster-versions", Warn, "fabricctl is "+c.Version+", fabric-agent "+spread(agents, 20))
		f.Cure = "the fabricctl of that release, or the one in the agent's image: kubectl -n fabric-system exec " +
			"ds/fabric-agent -- fabricctl"
		out = append(out, f)
	}
	return pass(out, "cluster-versions", fmt.Sprintf("one version on %d nodes", len(c.Inventories)))
}

// spread is "v1 on a, b; v2 on c", the usual one first. Keys are cut, as checksums are long.
func spread(by map[string][]string, width int) string {
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), strings.Compare(a, b))
	})
	var parts []string
	for _, k := range keys {
		names := by[k]
		slices.Sort(names)
		if len(names) > 4 {
			names = append(names[:4:4], fmt.Sprintf("%d more", len(names)-4))
		}
		parts = append(parts, k[:min(len(k), width)]+" on "+strings.Join(names, ", "))
	}
	return strings.Join(parts, "; ")
}

// clusterInventory finds nodes that have not told what they have.
func clusterInventory(c *Cluster) (out []Finding) {
	if len(c.Inventories) == 0 {
		return nil
	}
	for _, n := range c.Nodes.Items {
		if !slices.ContainsFunc(c.Inventories, func(p node.Published) bool { return p.Node.Name == n.Metadata.Name }) {
			out = append(out, finding("cluster-inventory", Warn, "node "+n.Metadata.Name+" has published nothing"))
		}
	}
	return pass(out, "cluster-inventory", fmt.Sprintf("%d nodes", len(c.Inventories)))
}

// clusterGUIDs finds port GUIDs that two nodes have.
func clusterGUIDs(c *Cluster) (out []Finding) {
	first := map[device.GUID]string{}
	for i := range c.Inventories {
		n := c.Inventories[i].Node
		for j := range n.HCAs {
			for _, p := range n.HCAs[j].Ports {
				if p.LinkLayer != device.InfiniBand || p.GUID.IsUnset() {
					continue
				}
				here := fmt.Sprintf("%s %s:%d", n.Name, n.HCAs[j].Name, p.Number)
				if other, ok := first[p.GUID]; ok &&
					!strings.HasPrefix(other, n.Name+" ") { // host-guid finds those of one node
					out = append(
						out,
						finding("cluster-guids", Fail, other+" and "+here+" have the port GUID "+p.GUID.String()),
					)
				}
				first[p.GUID] = cmp.Or(first[p.GUID], here)
			}
		}
	}
	if len(first) == 0 {
		return nil
	}
	return pass(out, "cluster-guids", fmt.Sprintf("%d port GUIDs", len(first)))
}

// clusterFabrics compares networks that name a device with the nodes, which may call it something else.
func clusterFabrics(c *Cluster) (out []Finding) {
	if len(c.Inventories) == 0 {
		return nil
	}
	var ports []topology.Port
	for i := range c.Inventories {
		ports = append(ports, c.Inventories[i].Node.Ports()...)
	}
	all := topology.Group(ports)
	for i := range c.NADs.Items {
		n := &c.NADs.Items[i]
		conf, err := n.conf()
		name := cmp.Or(conf.Device, conf.Master)
		if err != nil || name == "" || conf.Type != "fabric" {
			continue
		}
		var without []string
		for j := range c.Inventories {
			if p := c.Inventories[j].Node; len(p.HCAs) > 0 && p.Netdev(name) == nil && !has(p, name) {
				without = append(without, p.Name)
			}
		}
		if len(without) > 0 {
			out = append(
				out,
				finding(
					"cluster-fabrics",
					Warn,
					fmt.Sprintf(
						"%s/%s names the interface %s, which is not on %s",
						n.Metadata.Namespace,
						n.Metadata.Name,
						name,
						strings.Join(without, ", "),
					),
				),
			)
		}
	}
	var names []string
	for _, f := range all.Fabrics {
		names = append(names, fmt.Sprintf("%s (%d nodes, %d rails)", f.Name, len(f.Nodes()), len(f.Rails)))
	}
	if len(names) > 0 && !slices.ContainsFunc(c.NADs.Items, func(n NAD) bool { return n.rail() }) {
		out = append(
			out,
			finding(
				"cluster-fabrics",
				Warn,
				"there are the fabrics "+strings.Join(names, ", ")+", and no network for any",
			),
		)
	}
	return pass(out, "cluster-fabrics", cmp.Or(strings.Join(names, ", "), "no node has an Active port"))
}

// has reports whether a device that is in a pod now has this name on the host.
func has(n *node.Node, netdev string) bool {
	return slices.ContainsFunc(n.Ports(), func(p topology.Port) bool { return p.Netdev == netdev })
}

// rail reports whether the network gives a pod a device of a fabric.
func (n *NAD) rail() bool {
	c, err := n.conf()
	return err == nil && slices.Contains(railTypes, c.Type)
}

var railTypes = []string{"fabric", "sriov", "ib-sriov", "host-device", "ipoib"}

// kinds puts nodes together that should be alike: the same GPUs, by the label of GPU feature discovery or by the
// inventory.
func (c *Cluster) kinds() map[string][]ClusterNode {
	out := map[string][]ClusterNode{}
	for _, n := range c.Nodes.Items {
		kind := n.Metadata.Labels["nvidia.com/gpu.product"]
		if p := c.inventory(n.Metadata.Name); kind == "" && p != nil && len(p.GPUs) > 0 {
			kind = fmt.Sprintf("%d GPUs %s", len(p.GPUs), cmp.Or(p.GPUs[0].Model, p.GPUs[0].ID))
		}
		if kind != "" {
			out[kind] = append(out[kind], n)
		}
	}
	return out
}

func (c *Cluster) inventory(name string) *node.Node {
	for i := range c.Inventories {
		if c.Inventories[i].Node.Name == name {
			return c.Inventories[i].Node
		}
	}
	return nil
}

// activePorts counts the ports of a node that carry traffic, those in pods included; -1: not known.
func (c *Cluster) activePorts(name string) int {
	n := c.inventory(name)
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
