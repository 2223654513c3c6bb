package doctor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// published is the inventory of a machine under the name of a Node.
func published(t *testing.T, machine, name string) node.Published {
	t.Helper()
	n, err := node.Open(machines.Named(machine).FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	n.Name = name
	for i := range n.HCAs {
		for j := range n.HCAs[i].Ports {
			if g := &n.HCAs[i].Ports[j].GUID; !g.IsUnset() {
				*g += device.GUID(len(name)+int(name[len(name)-1])) << 16
			}
		}
	}
	return node.Published{Agent: "v1", Plugin: "0123456789abcdef", Node: n}
}

func TestCheckInventories(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(c *Cluster)
		want  string
	}{
		{"in order", func(*Cluster) {}, ""},
		{"no inventory at all", func(c *Cluster) { c.Inventories = nil }, ""},
		{"agents", func(c *Cluster) { c.Inventories[1].Agent = "v0" }, "WARN cluster-versions fabric-agent: v1 on " +
			"cp, g1, g3; v0 on g2\n"},
		{"plugins", func(c *Cluster) { c.Inventories[1].Plugin = ""; c.Inventories[2].Plugin = "fedcba9876543210" },
			"WARN cluster-versions plugin fabric, by checksum: 0123456789ab on cp, g1; fedcba987654 on g3; none on " +
				"g2\n"},
		{"fabricctl", func(c *Cluster) { c.Version = "v2" }, "WARN cluster-versions fabricctl is v2, fabric-agent " +
			"v1 on cp, g1, g2, g3\n"},
		{"one GUID twice", func(c *Cluster) {
			c.Inventories[1].Node.HCAs[0].Ports[0].GUID = c.Inventories[0].Node.HCAs[0].Ports[0].GUID
		},
			"FAIL cluster-guids g1 mlx5_0:1 and g2 mlx5_0:1 have the port GUID a0:88:c2:03:01:2d:00:11\n"},
		{"a node without", func(c *Cluster) { c.Inventories = c.Inventories[:3] }, "WARN cluster-inventory node cp " +
			"has published nothing\n"},
		{"a port that is down", func(c *Cluster) { c.Inventories[1].Node.HCAs[0].Ports[0].State = "Down" },
			"WARN cluster-nodes g2 has 4 Active ports, most nodes with H20 have 5\n"},
		{"kinds without labels", func(c *Cluster) {
			for i := range c.Nodes.Items {
				c.Nodes.Items[i].Metadata.Labels = nil
			}
			c.Inventories[2].Node.HCAs[0].Ports[0].State = "Init"
		}, "WARN cluster-nodes g3 has 4 Active ports, most nodes with 8 GPUs H20 have 5\n"},
		{"a name that is not everywhere", func(c *Cluster) {
			c.NADs.Items[0].Metadata.Annotations = nil
			c.NADs.Items[0].Spec.Config = `{"type":"fabric","device":"ibs108"}`
			c.Inventories[1] = published(t, "gb200", "g2")
			c.Nodes.Items[1].Metadata.Labels = nil
		}, "WARN cluster-fabrics ml/ib names the interface ibs108, which is not on g2\n"},
		{"no network", func(c *Cluster) { c.NADs.Items = nil }, "WARN cluster-fabrics there are the fabrics ib-400g " +
			"(3 nodes, 4 rails), and no network for any\n"},
	} {
		p := cluster(t)
		p.Version = "v1"
		p.Inventories = []node.Published{
			published(t, "h20", "g1"),
			published(t, "h20", "g2"),
			published(t, "h20", "g3"),
			published(t, "plain", "cp"),
		}
		c.spoil(p)
		if d := cmp.Diff(c.want, text(CheckCluster(p))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}
