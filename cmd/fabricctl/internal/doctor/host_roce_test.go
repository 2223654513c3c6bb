package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// qos is a RoCE node whose rails all have PFC for priority 3, DSCP 26 on it, connections with ToS 106, and ECN; spoil
// changes that. It comes by way of a recording.
func qos(t *testing.T, spoil func(m *machines.Machine)) *Host {
	t.Helper()
	m := machines.RoCE()
	for i := range 4 {
		hca, netdev := fmt.Sprintf("mlx5_%d", 2+i), fmt.Sprintf("xgbe%d", 2+i)
		live := m.Live.Netdevs[netdev]
		live.DCB = &node.DCB{PFC: []int{3}}
		for dscp := range 64 {
			live.DCB.DSCP = append(live.DCB.DSCP, node.DSCPPriority{DSCP: dscp, Priority: dscp >> 3})
		}
		m.Live.Netdevs[netdev] = live
		m.File("sys/kernel/config/rdma_cm/"+hca+"/ports/1/default_roce_tos", "106")
		m.HCAFile(hca, "tc/1/traffic_class", "Global tclass=106")
		for p := range 8 {
			on := map[bool]string{true: "1", false: "0"}[p == 3]
			m.NetFile(netdev, fmt.Sprintf("ecn/roce_np/enable/%d", p), on)
			m.NetFile(netdev, fmt.Sprintf("ecn/roce_rp/enable/%d", p), on)
		}
	}
	spoil(m)
	return recorded(t, m.Done())[1]
}

func TestHostRoCE(t *testing.T) {
	const all = "PFC for 3, priority by DSCP, default_roce_tos 106, traffic_class 106, ECN for 3 (notification) and " +
		"3 (reaction)"
	for name, c := range map[string]struct {
		spoil func(m *machines.Machine)
		want  string
	}{
		"alike": {func(*machines.Machine) {}, ""},
		"one rail without PFC": {func(m *machines.Machine) { m.Live.Netdevs["xgbe4"].DCB.PFC = nil },
			"WARN host-roce-qos roce-200g: the rails differ: " + all + " on mlx5_2:1, mlx5_3:1, mlx5_5:1; " +
				strings.Replace(all, "PFC for 3", "PFC for none", 1) + " on mlx5_4:1\n"},
		"one rail without a mark": {func(m *machines.Machine) { m.HCAFile("mlx5_4", "tc/1/traffic_class", "") },
			"WARN host-roce-qos roce-200g: the rails differ: " + all + " on mlx5_2:1, mlx5_3:1, mlx5_5:1; " +
				strings.Replace(all, ", traffic_class 106", "", 1) + " on mlx5_4:1\n"},
		"a mark of another priority": {func(m *machines.Machine) {
			for i := range 4 {
				m.Live.Netdevs[fmt.Sprintf("xgbe%d", 2+i)].DCB.DSCP[26].Priority = 5
			}
		}, func() (out string) {
			for i := range 4 {
				out += fmt.Sprintf("WARN host-roce-qos mlx5_%d:1 (xgbe%d): default_roce_tos 106 is DSCP 26, which has "+
					"priority 5 here, and PFC is on for 3 only\n", 2+i, 2+i)
			}
			return out
		}()},
		"priority by VLAN tag": {func(m *machines.Machine) { // doctor can't see what the tag says
			for i := range 4 {
				m.Live.Netdevs[fmt.Sprintf("xgbe%d", 2+i)].DCB.DSCP = nil
			}
		}, ""},
	} {
		h := qos(t, c.spoil)
		list := hostRoCE(h, h.Node.Fabrics())
		if d := cmp.Diff(c.want, text(list)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if c.want == "" && (len(list) != 1 || !strings.HasPrefix(list[0].Evidence, "roce-200g: PFC for 3, "+
			"priority by ")) {
			t.Errorf("%s: %+v", name, list)
		}
	}
	// Where nothing is known nothing is said, and of InfiniBand neither.
	for _, m := range []*machines.Machine{machines.RoCE(), machines.H20()} {
		h := host(t, m)
		if list := hostRoCE(h, h.Node.Fabrics()); len(list) > 0 {
			t.Errorf("%+v", list)
		}
	}
}

// Nodes are compared with each other: firmware, MTU, marks and rate.
func TestNodesAlike(t *testing.T) {
	spoil(t, agents, CheckCluster, []change[*Cluster]{
		{"firmware", func(c *Cluster) { c.FabricNodes[2].Node.HCA("mlx5_3").Firmware = "28.36.1010" },
			"WARN cluster-firmware ConnectX-7 MT_0000000223: 28.39.1002 on g1, g2, g3; 28.36.1010 on g2\n"},
		{"another board", func(c *Cluster) {
			h := c.FabricNodes[2].Node.HCA("mlx5_3")
			h.Firmware, h.Board = "28.36.1010", "MT_0000000999"
		}, ""},
		{"MTU", func(c *Cluster) { c.FabricNodes[3].Node.Netdev("ibs112").MTU = 2044 },
			"WARN cluster-mtu ib-400g: MTU 4092 on g1, g2, g3; 2044 on g3\n"},
		{"marks that differ", func(c *Cluster) {
			for i, f := range c.FabricNodes[1:] {
				for j := range f.Node.HCAs {
					p := &f.Node.HCAs[j].Ports[0]
					switch i {
					case 0:
						p.TOS = new(106)
					case 2:
						p.TOS, p.TrafficClass = new(0), new(106)
					}
				}
			}
		}, "WARN cluster-roce-qos ib-400g: default_roce_tos 0 on g3; 106 on g1\n" +
			"WARN cluster-roce-qos ib-400g: traffic_class none on g1, g2; 106 on g3\n"},
		{"a mark that is not known of all nodes", func(c *Cluster) {
			for j := range c.FabricNodes[1].Node.HCAs {
				c.FabricNodes[1].Node.HCAs[j].Ports[0].TOS = new(106)
			}
		}, ""},
		{"the same mark on all nodes", func(c *Cluster) {
			for _, f := range c.FabricNodes[1:] {
				for j := range f.Node.HCAs {
					f.Node.HCAs[j].Ports[0].TOS = new(106)
				}
			}
		}, ""},
		{"an interface that is in a pod", func(c *Cluster) {
			n := c.FabricNodes[3].Node
			n.Netdevs = slices.DeleteFunc(slices.Clone(n.Netdevs),
				func(d node.Netdev) bool { return d.Name == "ibs112" })
		}, ""},
		{"rate", func(c *Cluster) { c.FabricNodes[3].Node.HCA("mlx5_4").Ports[0].RateGb = 200 },
			"WARN cluster-rate mlx5_4:1 (0000:7e:00.0) on g3: 200 Gb/s, on 2 other nodes 400\n"},
		{"half of the nodes are slower", func(c *Cluster) {
			c.FabricNodes = c.FabricNodes[:3]
			c.AgentPods.On = map[string]bool{"cp": true, "g1": true, "g2": true}
			c.Nodes = c.Nodes[:2]
			c.FabricNodes[2].Node.HCA("mlx5_4").Ports[0].RateGb = 200
		}, "WARN cluster-agents a FabricNode whose Node is gone, and the controller has not noticed: cp\n"},
	})
}
