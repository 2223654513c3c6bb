package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// AgentPods are the pods of fabric-agent.
type AgentPods struct {
	On map[string]bool // Node -> whether its pod is ready
}

// nodeReasons are the reasons for which a node is not Ready that keep it from serving pods at all, with their cure.
var nodeReasons = map[string]string{
	"WrongRDMAMode": "one RDMA mode on the nodes of a Fabric: kubectl fabric node-mode exclusive NODE (or shared), " +
		"which drains and reboots it",
	"PluginMissing":    "delete the pod of fabric-agent on that node: it installs the plugin again",
	"StateNotWritable": "df -h /run on that node",
	"WritesUnconfined": "kubectl apply -k deployments/base, or helm upgrade: the admission policies of this version",
	"FabricUnreadable": "update fabric-agent: kubectl -n fabric-system rollout status daemonset fabric-agent",
	"NoRange":          "see cluster-node-ranges",
	"NoConfiguration": "the message says what is missing: modprobe ib_ipoib; or df -h /etc/cni/multus/net.d on that " +
		"node",
	"IPAMMissing": "install the IPAM plugin on these nodes, or kubectl edit fabric NAME: spec.addresses.ipam.type, " +
		"or addresses.nodeRanges",
}

// unreadyNode is the status of a node that is not Ready for this reason: Fail if it can serve no pod at all.
func unreadyNode(reason string) Status {
	if nodeReasons[reason] != "" {
		return Fail
	}
	return Warn
}

// clusterFabricNodes finds nodes that are not Ready, by reason: of a rail that is down in a whole row there is one
// line.
func clusterFabricNodes(c *Cluster) (out []Finding) {
	names, first := map[string][]string{}, map[string]string{}
	for i := range c.FabricNodes {
		n := &c.FabricNodes[i]
		ready := apimeta.FindStatusCondition(n.Status.Conditions, v1alpha1.FabricNodeReady)
		if n.Spec.Gone != nil || ready == nil || ready.Status == metav1.ConditionTrue {
			continue
		}
		names[ready.Reason] = append(names[ready.Reason], n.Name)
		first[ready.Reason] = cmp.Or(first[ready.Reason], n.Name+": "+because(ready))
	}
	for _, r := range slices.Sorted(maps.Keys(names)) {
		text := first[r]
		if len(names[r]) > 1 {
			text += fmt.Sprintf("; and %s on %s", r, few(names[r][1:]))
		}
		f := finding("cluster-fabricnodes", unreadyNode(r), "not Ready: "+text)
		f.Cure = cmp.Or(nodeReasons[r], f.Cure)
		out = append(out, f)
	}
	if len(c.FabricNodes) == 0 {
		return nil
	}
	return pass(out, "cluster-fabricnodes", fmt.Sprintf("%d nodes are Ready", len(c.FabricNodes)))
}

// clusterAgents finds nodes that no agent speaks for. A node without devices may well have none: a nodeSelector.
func clusterAgents(c *Cluster) (out []Finding) {
	if c.AgentPods == nil || !c.agent() {
		return nil
	}
	there := map[string]*FabricNode{}
	for i := range c.FabricNodes {
		there[c.FabricNodes[i].Name] = &c.FabricNodes[i]
	}
	var silent, without, stale, dead []string
	nodes := map[string]bool{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		name := n.Name
		nodes[name] = true
		ready, pod := c.AgentPods.On[name]
		switch f := there[name]; {
		case pod && f == nil && ready:
			silent = append(silent, name)
		case pod && !ready:
			dead = append(dead, name)
		case !pod && f != nil && f.Spec.Gone == nil:
			stale = append(stale, name)
		case !pod && f == nil && hasDevices(n):
			without = append(without, name)
		}
	}
	say := func(s Status, list []string, text string) {
		if len(list) > 0 {
			out = append(out, finding("cluster-agents", s, text+few(list)))
		}
	}
	say(Fail, silent, "the agent runs, and has made no FabricNode: ")
	say(Fail, dead, "the pod of fabric-agent is not ready on ")
	say(Fail, stale, "a FabricNode, and no pod of fabric-agent any more: ")
	say(Warn, without, "devices, and no pod of fabric-agent: ")
	if len(c.Nodes) > 0 {
		var gone []string
		for i := range c.FabricNodes {
			if f := &c.FabricNodes[i]; !nodes[f.Name] && f.Spec.Gone == nil {
				gone = append(gone, f.Name)
			}
		}
		say(Warn, gone, "a FabricNode whose Node is gone, and the controller has not noticed: ")
	}
	return pass(out, "cluster-agents", fmt.Sprintf("%d nodes", len(c.AgentPods.On)))
}

// hasDevices reports whether something else than an agent says that the node has an HCA or GPUs: a device plugin, or
// node feature discovery (15b3 is Mellanox in the PCI ID database).
func hasDevices(n *corev1.Node) bool {
	for name := range n.Status.Allocatable {
		r := string(name)
		if countOf(n, r) > 0 && (r == "nvidia.com/gpu" || strings.HasPrefix(r, "fabric.dev/") ||
			strings.HasPrefix(r, "rdma/")) {
			return true
		}
	}
	for l := range n.Labels {
		if strings.HasPrefix(l, "feature.node.kubernetes.io/pci-") && strings.Contains(l, "15b3") ||
			l == "feature.node.kubernetes.io/rdma.capable" {
			return true
		}
	}
	return false
}

// clusterVersions compares what runs on the nodes, and with what asks.
func clusterVersions(c *Cluster) (out []Finding) {
	agents, plugins := map[string][]string{}, map[string][]string{}
	for i := range c.FabricNodes {
		n := &c.FabricNodes[i]
		if n.Spec.Gone != nil || n.Status.Agent == "" {
			continue
		}
		agents[n.Status.Agent] = append(agents[n.Status.Agent], n.Name)
		sum := cmp.Or(n.Status.Plugin.SHA256, "none")
		plugins[sum] = append(plugins[sum], n.Name)
	}
	if len(agents) == 0 {
		return nil
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
	return pass(out, "cluster-versions", fmt.Sprintf("one version on %d nodes", len(c.FabricNodes)))
}

// spread is "v1 on a, b; v2 on c", the usual one first. Keys are cut, as checksums are long.
func spread(by map[string][]string, width int) string {
	const most = 8
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(by[b]), len(by[a])), strings.Compare(a, b))
	})
	var parts []string
	for i, k := range keys {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d others", len(keys)-most))
			break
		}
		slices.Sort(by[k])
		parts = append(parts, strings.ToValidUTF8(k[:min(len(k), width)], "")+" on "+few(by[k]))
	}
	return strings.Join(parts, "; ")
}

// present calls f for each inventory of a Node that there is.
func (c *Cluster) present(f func(n *FabricNode)) {
	for i := range c.FabricNodes {
		if n := &c.FabricNodes[i]; n.Node != nil && n.Spec.Gone == nil {
			f(n)
		}
	}
}

// clusterGUIDs finds port GUIDs that two nodes have.
func clusterGUIDs(c *Cluster) (out []Finding) {
	first := map[device.GUID]string{}
	c.present(func(f *FabricNode) {
		n := f.Node
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
	})
	if len(first) == 0 {
		return nil
	}
	return pass(out, "cluster-guids", fmt.Sprintf("%d port GUIDs", len(first)))
}

// clusterDiscovered finds fabrics that the nodes have, and that no pod can ask for.
func clusterDiscovered(c *Cluster) (out []Finding) {
	var ports []topology.Port
	used := map[string]bool{} // "node HCA"
	c.present(func(f *FabricNode) {
		ports = append(ports, f.Node.Ports()...)
		for _, nf := range f.Status.Fabrics {
			for _, d := range nf.Devices {
				used[f.Name+" "+d.HCA] = true
			}
		}
	})
	if len(ports) == 0 {
		return nil
	}
	all := topology.Group(ports)
	var names []string
	for i := range all.Fabrics {
		f := &all.Fabrics[i]
		taken := slices.ContainsFunc(f.Rails, func(r topology.Rail) bool {
			return slices.ContainsFunc(r.Ports, func(p topology.Port) bool { return used[p.Node+" "+p.HCA] })
		})
		text := fmt.Sprintf("%s (%d nodes, %d rails)", f.Name, len(f.Nodes()), len(f.Rails))
		names = append(names, text)
		if !taken {
			out = append(out, finding("cluster-discovered", Warn, "no Fabric has the ports of "+text))
		}
	}
	return pass(out, "cluster-discovered", cmp.Or(strings.Join(names, ", "), "no node has an Active port"))
}
