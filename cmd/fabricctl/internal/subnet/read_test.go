package subnet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// What is not from ibsim: a director with external port numbers, SHARP inside of a switch, a description that forges a
// line's end, an HCA without a link, two HCAs back to back.
const odd = `#
# Topology file: generated on Sun Nov 22 22:45:55 2026
#
# Initiated from node 0000000000100000 port 0000000000100001

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xa01
switchguid=0xa01(a01)
Switch	41 "S-0000000000000a01"		# "MF0;ib-leaf-1:MQM8700/U1" enhanced port 0 lid 4 lmc 0
[1][ext 7]	"H-0000000000000b10"[1](b11) 		# "gpu-1 mlx5_0" lid 5 4xHDR
[2]	"H-0000000000000b20"[2](b22) 		# "gpu-2 mlx5_0" lid 9 4xSDR # "x" lid 6 2xHDR
[41]	"H-0000000000000a0f"[1](a0f) 		# "Mellanox Technologies Aggregation Node" lid 7 4xHDR

vendid=0x2c9
caguid=0xb10
Ca	1 "H-0000000000000b10"		# "gpu-1 mlx5_0"
[1](b11) 	"S-0000000000000a01"[1][ext 7]		# lid 5 lmc 0 "MF0;ib-leaf-1:MQM8700/U1" lid 4 4xHDR

caguid=0xb20
Ca	2 "H-0000000000000b20"		# "gpu-2 mlx5_0" [9] "S-0000000000000bad"[1] # "
[2](b22) 	"S-0000000000000a01"[2]		# lid 6 lmc 0 "MF0;ib-leaf-1:MQM8700/U1" lid 4 2xHDR

caguid=0xa0f
Ca	1 "H-0000000000000a0f"		# "Mellanox Technologies Aggregation Node"
[1](a0f) 	"S-0000000000000a01"[41]		# lid 7 lmc 0 "MF0;ib-leaf-1:MQM8700/U1" lid 4 4xHDR

caguid=0xb30
Ca	1 "H-0000000000000b30"		# "gpu-3 mlx5_0"
[1](b31) 	"H-0000000000000b40"[1](b41)		# lid 0 lmc 0 "gpu-4 mlx5_0" lid 0 4xEDR
`

func places(topo *Topology) string {
	var b strings.Builder
	for _, p := range topo.Ports {
		fmt.Fprintf(&b, "%s %s on %s:%s %s\n", p.Node, p.Port, p.Leaf, p.LeafPort, p.Rate)
	}
	return b.String()
}

func TestNetdiscover(t *testing.T) {
	topo := judge(t, odd)
	want := ` port 2 of "gpu-2 mlx5_0\" [9] \"S-0000000000000bad\"[1] # " on ib-leaf-1:2 2x HDR
gpu-1 mlx5_0:1 on ib-leaf-1:1 4x HDR
gpu-3 mlx5_0:1 on : ` + "\n"
	if got := places(topo); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if got := found(topo); got != "WARN fabric-isolated gpu-3 mlx5_0:1 hangs on no switch\n" {
		t.Errorf("found %s", got)
	}
	list := "CA     0  1 0x0b11 4x NDR - SW     0 32 0x0a01 ( 'gpu-1' - 'x mlx5_0' - 'leaf-1' )\n" +
		"SW     3  5 0x0a01 4x SDR 'leaf-1'\nCA     0  1 0x0b21 4x ??? 'gpu-2 mlx5_0'\n"
	topo = judge(t, list)
	want = " port 1 of \"gpu-1\" on leaf-1:32 4x NDR\ngpu-2 mlx5_0:1 on : \n"
	if got := places(topo); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "not the output of"},
		{"hello", "not the output of"},
		{"{}", "not the output of"},
		{"{", "not the output of"},
		{"vendid=1\n[1] nonsense\n", "line 2"},
		{"CA 1\n", "line 1"},
		{"vendid=1\n" + strings.Repeat("x", maxLine+1), "KiB"},
		{"Switch 41 \"S-00\"\n[1] \"H-1\"[1] # \"a\"\n", "no port GUID"},
	} {
		g := New()
		if err := g.Read(strings.NewReader(c.text), "n"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v, want %s", c.text, err, c.want)
		}
	}
	if err := New().Finish(); err == nil {
		t.Error("nothing is something")
	}
	err := New().Read(strings.NewReader(`{"lldp":{}}`), "")
	if err == nil || !strings.Contains(err.Error(), "gpu-1.json") {
		t.Errorf("LLDP of nobody: %v", err)
	}
}

// LLDP of lldpctl with several interfaces, with one, and of networkctl.
func TestLLDP(t *testing.T) {
	g := New()
	for _, f := range []struct{ node, text string }{
		{"gpu-1", `{"lldp":{"interface":[{"eth0":{"via":"LLDP","chassis":{"leaf-a":{"id":
			{"type":"mac","value":"AA:01"}}},
			"port":{"id":{"type":"ifname","value":"swp1"}}}},{"eth1":{"chassis":{"leaf-b":{"id":{"value":"aa:02"}}},
			"port":{"id":{"value":"swp1"}}}}]}}`},
		{"gpu-2", `{"lldp":{"interface":{"eth0":{"chassis":{"id":{"type":"mac","value":"aa:01"}},
			"port":{"id":{"value":"swp2"}}}}}}`},
		{"gpu-3", `{"Neighbors":[{"InterfaceName":"eth1","Neighbors":[{"ChassisID":"aa:02","SystemName":"leaf-b",
			"PortID":"swp3"}]}]}`},
	} {
		if err := g.Read(strings.NewReader(f.text), f.node); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	topo := g.Judge([]topology.Port{{Node: "gpu-3", HCA: "mlx5_1", Port: 1, Netdev: "eth1", PCI: "0000:18:00.0",
		LinkLayer: device.Ethernet}})
	want := "gpu-1 eth0 on lldp:aa:01:swp1 \ngpu-1 eth1 on leaf-b:swp1 \ngpu-2 eth0 on lldp:aa:01:swp2 \n" +
		"gpu-3 mlx5_1:1 on leaf-b:swp3 \n"
	if got := places(topo); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if topo.Levels != 1 || !strings.Contains(topo.Reason, "LLDP") || found(topo) != "" {
		t.Errorf("%d levels, %s, %s", topo.Levels, topo.Reason, found(topo))
	}
}

// Inventories say whose a GUID is. A description with the name of a node that has an inventory is not believed, nor one
// that two ports have.
func TestIdentify(t *testing.T) {
	list := "CA 1  1 0x0b11 4x NDR - SW 9 1 0x0a01 ( 'localhost mlx5_0' - 'leaf-1' )\n" +
		"CA 1  1 0x0b21 4x NDR - SW 9 2 0x0a01 ( 'gpu-1 mlx5_3' - 'leaf-1' )\n" +
		"CA 1  1 0x0b31 4x NDR - SW 9 3 0x0a01 ( 'gpu-7 mlx5_0' - 'leaf-1' )\n" +
		"CA 1  1 0x0b41 4x NDR - SW 9 4 0x0a01 ( 'gpu-7 mlx5_0' - 'leaf-1' )\n" +
		"CA 1  1 0x0b51 4x NDR - SW 9 5 0x0a01 ( 'MT4129 ConnectX7 Mellanox Technologies' - 'leaf-1' )\n"
	g := New()
	if err := g.Read(strings.NewReader(list), ""); err != nil {
		t.Fatal(err)
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	topo := g.Judge([]topology.Port{
		{Node: "gpu-1", HCA: "mlx5_0", Port: 1, GUID: 0xb11, LinkLayer: device.InfiniBand, State: device.PortActive,
			Kind: "PF"},
		{Node: "gpu-1", HCA: "mlx5_1", Port: 1, GUID: 0xb99, LinkLayer: device.InfiniBand, State: device.PortActive,
			Kind: "PF"},
		{Node: "gpu-1", HCA: "mlx5_5", Port: 1, GUID: 0xb98, LinkLayer: device.InfiniBand, State: device.PortDown,
			Kind: "PF"},
	})
	want := "WARN fabric-identity 0x0000000000000b21 says that it is gpu-1 mlx5_3, and the inventory of that node " +
		"has no " +
		"such GUID\n" +
		"WARN fabric-identity 2 ports say that they are gpu-7 mlx5_0:1: 0x0000000000000b31, 0x0000000000000b41\n" +
		"WARN fabric-isolated gpu-1: 1 of 2 Active InfiniBand ports of its inventory are not in what the fabric's " +
		"tools saw\n"
	if got := found(topo); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if len(topo.Nodes) != 1 || topo.Nodes[0].Node != "gpu-1" || !topo.Nodes[0].Inventory {
		t.Errorf("nodes %+v", topo.Nodes)
	}
}

// The inventory says why a link is missing, and that some nodes have no such port.
func TestMissingWithInventory(t *testing.T) {
	f := newFat(8, 4, 8, 4, 2)
	f.of(2, 1).missing, f.of(5, 3).missing = true, true
	var ports []topology.Port
	for n := range 8 {
		for r := range 4 {
			if n == 5 && r == 3 {
				continue
			}
			id, _ := end(fmt.Sprintf("H-%d-%d", n, r))
			p := topology.Port{Node: fmt.Sprintf("gpu-%d", n), HCA: fmt.Sprintf("mlx5_%d", r), Port: 1,
				GUID: device.GUID(id + 1), PCI: fmt.Sprintf("0000:%d8:00.0", r), LinkLayer: device.InfiniBand,
				State: device.PortActive, Phys: device.PhysLinkUp, Kind: "PF"}
			if n == 2 && r == 1 {
				p.State, p.Phys = device.PortDown, device.PhysPolling
			}
			ports = append(ports, p)
		}
	}
	g := New()
	if err := g.Read(strings.NewReader(f.list()), ""); err != nil {
		t.Fatal(err)
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	want := "FAIL fabric-cable-missing gpu-2 mlx5_1:1 has no link, its inventory says Down (physical state Polling): " +
		"7 of 8 nodes that are cabled alike have one, on leaf-1\n"
	if got := found(g.Judge(ports)); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// 5,000 nodes with eight rails in three levels: read and judged in a second or two, with a domain for each level.
func TestLarge(t *testing.T) {
	text := newThree().list()
	start := time.Now()
	topo := judge(t, text)
	t.Logf("%d MB in %v", len(text)>>20, time.Since(start).Round(time.Millisecond))
	if len(topo.Nodes) != 5000 || len(topo.Ports) != 40000 || len(topo.Groups) != 79 || topo.Levels != 3 ||
		found(topo) != "" {
		t.Errorf("%d nodes, %d ports, %d groups, %d levels: %.400s", len(topo.Nodes), len(topo.Ports), len(topo.Groups),
			topo.Levels, found(topo))
	}
	domains := map[string]int{}
	for _, n := range topo.Nodes {
		for i, tier := range n.Tiers {
			domains[fmt.Sprintf("%d %s", i, tier.Name)]++
		}
	}
	if len(domains) != 79+10+1 || domains["2 core-0"] != 5000 || domains["1 spine-32"] != 512 ||
		domains["0 leaf-8"] != 64 {
		t.Errorf("%d domains: %v", len(domains), domains)
	}
}

// A ring of switches is no tree: which leaf a port hangs on is judged, levels are not.
func TestRing(t *testing.T) {
	f := newFat(16, 2, 4, 0, 0)
	for i := range 8 {
		f.cables = append(f.cables, &cable{a: fmt.Sprintf("S-1-%d", i), ap: 40, b: fmt.Sprintf("S-1-%d", (i+1)%8),
			bp: 41, rate: "4xNDR"})
	}
	f.of(2, 1).missing = true
	topo := judge(t, f.list())
	want := "FAIL fabric-cable-missing gpu-2 mlx5_1:1 has no link: 3 of 4 nodes that are cabled alike have one, " +
		"on leaf-1\n"
	if got := found(topo); got != want || topo.Levels != 0 || !strings.Contains(topo.Reason, "ring") {
		t.Errorf("%d levels, %s: %s", topo.Levels, topo.Reason, got)
	}
	if got := topo.Nodes[0].Tiers; len(got) != 1 || got[0].Name != "leaf-0" {
		t.Errorf("tiers %+v", got)
	}
}
