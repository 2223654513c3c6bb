package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// fabricNode is what the agent of a machine writes under the name of a Node, with the Active InfiniBand ports in the
// Fabric ib.
func fabricNode(t *testing.T, machine, name string) FabricNode {
	t.Helper()
	n, err := node.Open(machines.Named(machine).FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	n.Name = name
	f := FabricNode{Node: n}
	f.Name, f.Status.Agent, f.Status.RDMAMode = name, "v1", n.RDMAMode
	f.Status.Plugin.SHA256 = "0123456789abcdef"
	f.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready"}}
	var devices []v1alpha1.FabricDevice
	for i := range n.HCAs {
		for j := range n.HCAs[i].Ports {
			p := &n.HCAs[i].Ports[j]
			if g := &p.GUID; !g.IsUnset() {
				*g += device.GUID(len(name)+int(name[len(name)-1])) << 16
			}
			if p.LinkLayer == device.InfiniBand && p.Active() {
				devices = append(devices, v1alpha1.FabricDevice{ID: n.HCAs[i].PCI, HCA: n.HCAs[i].Name})
			}
		}
	}
	if len(devices) > 0 {
		f.Status.Fabrics = []v1alpha1.NodeFabric{{Name: "ib", Devices: devices}}
		f.Spec.Ranges = []v1alpha1.AssignedRange{{Fabric: "ib", Range: "10.0.0.0/28"}}
	}
	return f
}

// agents is a cluster with fabric-agent in which all is well.
func agents(t *testing.T) *Cluster {
	t.Helper()
	p := cluster(t)
	p.Version = "v1"
	p.CRDs = append(p.CRDs, "fabrics.fabric.dev", "fabricnodes.fabric.dev")
	p.FabricNodes = []FabricNode{
		fabricNode(t, "plain", "cp"),
		fabricNode(t, "h20", "g1"),
		fabricNode(t, "h20", "g2"),
		fabricNode(t, "h20", "g3"),
	}
	p.Controller = &Controller{
		Namespace: "fabric-system", Found: true, Name: "fabric-controller", Wanted: 2, Ready: 2, Leader: "a", Silent: 2,
		Lasts: 15,
	}
	p.AgentPods = &AgentPods{On: map[string]bool{"cp": true, "g1": true, "g2": true, "g3": true}}
	f := v1alpha1.Fabric{}
	f.Name, f.UID = "ib", "1"
	f.Spec.Attachment, f.Spec.Match.Discovered = v1alpha1.WholeDevice, "ib-200g"
	f.Spec.Addresses = &v1alpha1.Addresses{NodeRanges: &v1alpha1.NodeRanges{}}
	f.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.FabricReady, Status: "True"}, {Type: v1alpha1.FabricDegraded, Status: "False"},
	}
	p.Fabrics = []v1alpha1.Fabric{f}
	own := &p.NADs.Items[0]
	own.Metadata.Annotations[resourceAnnotation] = "fabric.dev/ib"
	own.Metadata.Owners = []Owner{{Kind: "Fabric", UID: "1"}}
	own.Spec.Config = "" // it is a file of each node
	return p
}

// change is what is found once something of a picture is otherwise.
type change[P any] struct {
	name  string
	spoil func(p P)
	want  string
}

// spoil makes each change to a picture of its own.
func spoil[P any](t *testing.T, picture func(*testing.T) P, check func(P) []Finding, list []change[P]) {
	t.Helper()
	for _, c := range list {
		p := picture(t)
		c.spoil(p)
		if d := cmp.Diff(c.want, text(check(p))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestCheckAgents(t *testing.T) {
	spoil(t, agents, CheckCluster, []change[*Cluster]{
		{"in order", func(*Cluster) {}, ""},
		{"no agent at all", func(c *Cluster) {
			c.FabricNodes, c.Fabrics, c.CRDs, c.AgentPods.On = nil, nil, c.CRDs[:3], nil
			c.Controller.Found, c.Controller.Leader, c.NADs.Items = false, "", nil
		}, ""},
		{"agents", func(c *Cluster) { c.FabricNodes[2].Status.Agent = "v0" },
			"WARN cluster-versions fabric-agent: v1 on cp, g1, g3; v0 on g2\n"},
		{"plugins", func(c *Cluster) {
			c.FabricNodes[2].Status.Plugin.SHA256 = ""
			c.FabricNodes[3].Status.Plugin.SHA256 = "fedcba9876543210"
		}, "WARN cluster-versions plugin fabric, by checksum: 0123456789ab on cp, g1; fedcba987654 on g3; none on " +
			"g2\n"},
		{"fabricctl", func(c *Cluster) { c.Version = "v2" }, "WARN cluster-versions fabricctl is v2, fabric-agent v1 " +
			"on cp, g1, g2, g3\n"},
		{"one GUID twice", func(c *Cluster) {
			c.FabricNodes[2].Node.HCAs[0].Ports[0].GUID = c.FabricNodes[1].Node.HCAs[0].Ports[0].GUID
		},
			"FAIL cluster-guids g1 mlx5_0:1 and g2 mlx5_0:1 have the port GUID a0:88:c2:03:01:2d:00:11\n"},
		{"an agent that writes nothing", func(c *Cluster) { c.FabricNodes = c.FabricNodes[1:] },
			"FAIL cluster-agents the agent runs, and has made no FabricNode: cp\n"},
		{"a pod that is not ready", func(c *Cluster) { c.AgentPods.On["g2"] = false },
			"FAIL cluster-agents the pod of fabric-agent is not ready on g2\n"},
		{"nodes without agents", func(c *Cluster) {
			c.AgentPods.On = map[string]bool{"g1": true}
			c.FabricNodes = c.FabricNodes[1:3]
			c.Nodes[0].Labels = nil // what is known of the others is their label
		}, "FAIL cluster-agents a FabricNode, and no pod of fabric-agent any more: g2\nWARN cluster-agents devices, " +
			"and no pod of fabric-agent: g3\n"},
		{"a Node that is gone", func(c *Cluster) {
			c.FabricNodes = append(c.FabricNodes, c.FabricNodes[1])
			c.FabricNodes[4].Name = "gone"
		}, "WARN cluster-agents a FabricNode whose Node is gone, and the controller has not noticed: gone\n"},
		{"and the controller knows", func(c *Cluster) {
			c.FabricNodes = append(c.FabricNodes, c.FabricNodes[1])
			c.FabricNodes[4].Name, c.FabricNodes[4].Spec.Gone = "gone", &metav1.Time{}
			c.FabricNodes[4].Status.Agent, c.FabricNodes[4].Status.RDMAMode = "v0", "shared"
		}, ""},
		{"a port that is down", func(c *Cluster) { c.FabricNodes[2].Node.HCAs[0].Ports[0].State = "Down" },
			"WARN cluster-nodes g2 has 4 Active ports, most nodes with H20 have 5\n"},
		{"kinds without labels", func(c *Cluster) {
			for i := range c.Nodes {
				c.Nodes[i].Labels = nil
			}
			c.FabricNodes[3].Node.HCAs[0].Ports[0].State = "Init"
		}, "WARN cluster-nodes g3 has 4 Active ports, most nodes with 8 GPUs H20 have 5\n"},
		{"ports in no Fabric", func(c *Cluster) {
			for i := range c.FabricNodes {
				c.FabricNodes[i].Status.Fabrics = nil
			}
		}, "WARN cluster-discovered no Fabric has the ports of ib-400g (3 nodes, 4 rails)\n"},
		{"an inventory that can't be read", func(c *Cluster) { c.FabricNodes[3].Node = nil }, ""},
		{"nodes that are not ready", func(c *Cluster) {
			for i, reason := range []string{"PortDown", "PortDown", "PluginMissing", "PortDown"} {
				c.FabricNodes[i].Status.Conditions[0] = metav1.Condition{
					Type: "Ready", Status: "False", Reason: reason, Message: "message " + c.FabricNodes[i].Name,
				}
			}
		}, "FAIL cluster-fabricnodes not Ready: g2: PluginMissing: message g2\nWARN cluster-fabricnodes not Ready: " +
			"cp: PortDown: message cp; and PortDown on g1, g3\n"},
	})
}

// Of thousands of nodes with the same trouble there is one line.
func TestManyNodes(t *testing.T) {
	p := agents(t)
	n := p.FabricNodes[1]
	n.Node, n.Spec.Ranges, n.Status.RDMAMode, n.Status.Agent = nil, nil, "shared", "v0"
	n.Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: "False", Reason: "NoRange", Message: strings.Repeat("x", 4000)},
	}
	p.Fabrics[0].Spec.Network.RDMAMode = v1alpha1.RDMAExclusive
	for range 5000 {
		p.FabricNodes = append(p.FabricNodes, n)
		p.Nodes = append(p.Nodes, p.Nodes[0])
	}
	for i := range p.FabricNodes {
		if i > 3 {
			p.FabricNodes[i].Name = fmt.Sprintf("x%d", i)
			same := *p.FabricNodes[1].Node // port GUIDs, too
			same.Name = p.FabricNodes[i].Name
			p.FabricNodes[i].Node = &same
		}
	}
	list := CheckCluster(p)
	if len(list) > 80 {
		t.Errorf("%d findings", len(list))
	}
	for _, f := range list {
		if len(f.Evidence) > 500 {
			t.Errorf("%d bytes: %.200s", len(f.Evidence), f.Evidence)
		}
	}
}
