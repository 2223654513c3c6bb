package generate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/deployments/helm"
	"github.com/fabric-cni/fabric-cni/internal/admit"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// written are the Fabrics that are generated for nodes, after the API server and the controller have taken them.
func written(t *testing.T, nodes []*node.Node, o Options) (out []*fabrics.Fabric) {
	t.Helper()
	judge, err := admit.New(helm.Fabrics)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Generate("fabric", nodes, o)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if wrong, err := judge.Judge(doc); err != nil || wrong != "" {
			t.Errorf("the API server says %q, %v of:\n%s", wrong, err, doc)
		}
		object := &v1alpha1.Fabric{}
		if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
			t.Fatal(err)
		}
		f, err := fabrics.Parse(object)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		for _, other := range out {
			if err := fabrics.Overlap(f, other); err != nil {
				t.Error(err)
			}
		}
		out = append(out, f)
	}
	return out
}

// What is generated is taken, for every recorded machine and for several of them together.
func TestFabricsAreAccepted(t *testing.T) {
	for _, names := range [][]string{{"h20"}, {"roce"}, {"gb200"}, {"v100"}, {"a100"}, {"v100", "a100", "a100-2"},
		{"h20", "roce", "gb200", "v100", "a100"}} {
		if got := written(t, open(t, names...), options()); len(got) == 0 {
			t.Errorf("%v: no Fabric", names)
		}
	}
	six := options()
	six.Range, six.Exclude = netip.MustParsePrefix("fd00:10::/64"), []netip.Prefix{
		netip.MustParsePrefix("fd00:10::1/120"), netip.MustParsePrefix("fd00:10::/120"),
	}
	got := written(t, open(t, "h20"), six)
	if r := got[0].NodeRanges.Ranges[0]; r.Bits != 124 || len(r.Without) != 1 {
		t.Errorf("%+v", r)
	}
}

// rails are nodes with so many ports, as the topology wants them.
func rails(change func(node, rail int, h *node.HCA, d *node.Netdev)) (out []*node.Node) {
	for i := range 2 {
		n := &node.Node{Name: fmt.Sprintf("n%d", i), RDMAMode: "exclusive"}
		for r := range 4 {
			pci := fmt.Sprintf("0000:%x0:00.0", r+1)
			name := fmt.Sprintf("rail%d", r)
			h := node.HCA{
				Name: fmt.Sprintf("mlx5_%d", r), PCI: pci, Kind: "PF",
				Ports: []node.Port{{
					Number: 1, LinkLayer: device.InfiniBand, State: "Active", Phys: "LinkUp", RateGb: 400,
					LID: uint16(10*i + r + 1), SMLID: 1, Prefix: device.DefaultSubnetPrefix, Netdev: name,
				}},
			}
			d := node.Netdev{Name: name, PCI: pci}
			change(i, r, &h, &d)
			n.HCAs, n.Netdevs = append(n.HCAs, h), append(n.Netdevs, d)
		}
		out = append(out, n)
	}
	return out
}

func ethernet(h *node.HCA, d *node.Netdev, addr string) {
	h.Ports[0].LinkLayer = device.Ethernet
	if addr != "" {
		d.Addrs = []netip.Prefix{netip.MustParsePrefix(addr)}
	}
}

// The match is as narrow as it has to be, and the mode is that of the nodes.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(node, rail int, h *node.HCA, d *node.Netdev)
		want   string
	}{
		{"one fabric", func(int, int, *node.HCA, *node.Netdev) {}, "ib-400g InfiniBand 400 WholeDevice"},
		{"two rates", func(_, r int, h *node.HCA, _ *node.Netdev) {
			if r == 3 {
				h.Ports[0].RateGb = 200
			}
		}, "ib-400g InfiniBand 400 WholeDevice\nib-200g InfiniBand 200 WholeDevice"},
		{"two prefixes", func(_, r int, h *node.HCA, _ *node.Netdev) {
			if r > 1 {
				h.Ports[0].Prefix, h.Ports[0].LID = 0xfec0000000000001, h.Ports[0].LID+100
			}
		}, "ib-400g-a InfiniBand 400 fe80:: WholeDevice\nib-400g-b InfiniBand 400 fec0:0:0:1:: WholeDevice"},
		{"two subnet managers", func(_, r int, h *node.HCA, _ *node.Netdev) {
			if r > 1 {
				h.Ports[0].SMLID = 9
			}
		}, "ib-400g-a InfiniBand 400 [0000:10:00.0 0000:20:00.0] WholeDevice\n" +
			"ib-400g-b InfiniBand 400 [0000:30:00.0 0000:40:00.0] WholeDevice"},
		{"subnet managers on other ports of the next node", func(i, r int, h *node.HCA, _ *node.Netdev) {
			if (r+i)%2 == 1 {
				h.Ports[0].SMLID = 9
			}
		}, "ib-400g-a InfiniBand 400 [0000:10:00.0 0000:20:00.0 0000:30:00.0 0000:40:00.0] WholeDevice warning: " +
			"this match also fits n0 mlx5_1:1, n0 mlx5_3:1, n1 mlx5_0:1, n1 mlx5_2:1: add to it by hand\nib-400g-b " +
			"InfiniBand 400 [0000:10:00.0 0000:20:00.0 0000:30:00.0 0000:40:00.0] WholeDevice warning: this " +
			"match also fits n0 mlx5_0:1, n0 mlx5_2:1, n1 mlx5_1:1, n1 mlx5_3:1: add to it by hand"},
		{"planes in the order of addresses", func(i, r int, h *node.HCA, d *node.Netdev) {
			ethernet(h, d, fmt.Sprintf("10.0.%d.%d/24", r, i+1))
		}, "roce-400g-rail0 Ethernet 400 rail 0 WholeDevice\nroce-400g-rail1 Ethernet 400 rail 1 WholeDevice\n" +
			"roce-400g-rail2 Ethernet 400 rail 2 WholeDevice\nroce-400g-rail3 Ethernet 400 rail 3 WholeDevice"},
		{"planes in another order", func(i, r int, h *node.HCA, d *node.Netdev) {
			ethernet(h, d, fmt.Sprintf("10.0.%d.%d/24", 3-r, i+1))
		}, "roce-400g-rail0 Ethernet 400 rail 3 WholeDevice\nroce-400g-rail1 Ethernet 400 rail 2 WholeDevice\n" +
			"roce-400g-rail2 Ethernet 400 rail 1 WholeDevice\nroce-400g-rail3 Ethernet 400 rail 0 WholeDevice"},
		{"a port that is down counts", func(i, r int, h *node.HCA, d *node.Netdev) {
			ethernet(h, d, fmt.Sprintf("10.0.%d.%d/24", r, i+1))
			if r == 1 && i == 1 {
				h.Ports[0].State, h.Ports[0].RateGb = "Down", 10
			}
		}, "roce-400g-rail0 Ethernet 400 rail 0 WholeDevice\nroce-400g-rail1 Ethernet 400 rail 1 WholeDevice\n" +
			"roce-400g-rail2 Ethernet 400 rail 2 WholeDevice\nroce-400g-rail3 Ethernet 400 rail 3 WholeDevice"},
		{"the default route is kept on the host", func(_, r int, h *node.HCA, d *node.Netdev) {
			ethernet(h, d, "")
			d.Default = r == 0
		}, "roce-400g Ethernet 400 WholeDevice"},
	} {
		nodes := rails(c.change)
		if c.name == "the default route is kept on the host" {
			for _, n := range nodes {
				n.Primary = "rail0"
			}
		}
		if d := cmp.Diff(c.want, summary(t, nodes)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestMode(t *testing.T) {
	for _, c := range []struct {
		modes [2]string
		eth   bool
		want  string
	}{
		{[2]string{"shared", "shared"}, false, "ib-400g InfiniBand 400 IPoIBChild 8"},
		{[2]string{"shared", "shared"}, true, "roce-400g Ethernet 400 WholeDevice auto"},
		{[2]string{"", ""}, false, "ib-400g InfiniBand 400 WholeDevice auto"},
		{[2]string{"shared", "exclusive"}, false, "ib-400g InfiniBand 400 WholeDevice warning: the RDMA mode is " +
			"exclusive on n1 and shared on n0: one of them is what this Fabric needs, and the other nodes have to be " +
			"changed (options ib_core netns_mode=, and a reboot)"},
	} {
		nodes := rails(func(_, _ int, h *node.HCA, d *node.Netdev) {
			if c.eth {
				ethernet(h, d, "")
			}
		})
		nodes[0].RDMAMode, nodes[1].RDMAMode = c.modes[0], c.modes[1]
		if d := cmp.Diff(c.want, summary(t, nodes)); d != "" {
			t.Errorf("%v (-want +got):\n%s", c.modes, d)
		}
	}
}

// summary is what is generated, a line per Fabric.
func summary(t *testing.T, nodes []*node.Node) string {
	t.Helper()
	written(t, nodes, options())
	var ports []topology.Port
	for _, n := range nodes {
		ports = append(ports, n.Ports()...)
	}
	all := topology.Group(ports)
	o := options()
	list, err := networks(all, &o, nodes)
	if err != nil {
		t.Fatal(err)
	}
	found, err := objects(list, nodes, &o)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range found {
		x := &found[i]
		s := fmt.Sprintf("%s %s %d", x.Name, x.LinkLayer, x.RateGb)
		if x.Prefix != "" {
			s += " " + x.Prefix
		}
		if x.Rail >= 0 {
			s += fmt.Sprintf(" rail %d", x.Rail)
		}
		if len(x.Devices) > 0 {
			s += fmt.Sprintf(" %v", x.Devices)
		}
		s += " " + string(x.Attachment)
		if x.Attachment == v1alpha1.IPoIBChild {
			s += fmt.Sprintf(" %d", x.Shares)
		} else if x.RDMA == "" {
			s += " auto"
		}
		for _, w := range x.Warn {
			s += " warning: " + w
		}
		out = append(out, s)
	}
	return strings.Join(out, "\n")
}

// A node's range has room for what it needs, and there are enough of them.
func TestNodeRanges(t *testing.T) {
	for _, c := range []struct {
		in   string
		out  string
		set  func(o *Options)
		mode string
		want string
	}{
		{in: "10.0.0.0/16", want: "10.0.0.0/16 28"},
		{in: "10.0.3.0/16", want: "10.0.0.0/16 28"},
		{in: "10.0.0.0/16", mode: "shared", want: "10.0.0.0/16 26"}, // 4 devices for 8 pods each
		{in: "10.0.0.0/27", want: "10.0.0.0/27 28"},
		{in: "10.0.0.0/28", want: "range 10.0.0.0/28 has room for 1 nodes with 14 addresses each (/28), 2 nodes are " +
			"needed"},
		{in: "10.0.0.0/26", out: "10.0.0.16/28", want: "10.0.0.0/26 28"},
		{in: "10.0.0.0/26", out: "10.0.0.0/27,10.0.0.40/32", want: "has room for 1 nodes"},
		{in: "10.0.0.0/26", out: "10.0.0.0/8", want: "has room for 0 nodes"},
		{in: "10.0.0.0/16", set: func(o *Options) { o.Nodes = 4097 }, want: "has room for 4096 nodes"},
		{in: "10.0.0.0/29", want: "range 10.0.0.0/29 has room for"},
	} {
		o := options()
		o.Range, o.Exclude = netip.MustParsePrefix(c.in), nil
		for _, e := range strings.FieldsFunc(c.out, func(r rune) bool { return r == ',' }) {
			o.Exclude = append(o.Exclude, netip.MustParsePrefix(e))
		}
		if c.set != nil {
			c.set(&o)
		}
		nodes := rails(func(int, int, *node.HCA, *node.Netdev) {})
		for _, n := range nodes {
			n.RDMAMode = c.mode
		}
		text, err := Generate("fabric", nodes, o)
		got := fmt.Sprint(err)
		if err == nil {
			r := written(t, nodes, o)[0].NodeRanges.Ranges[0]
			got = fmt.Sprint(r.Prefix, " ", r.Bits)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s without %q: %s, want %s\n%s", c.in, c.out, got, c.want, text)
		}
	}
}

// Names and order of what is generated do not depend on the order of the nodes.
func TestFabricOrder(t *testing.T) {
	nodes := open(t, "h20", "roce", "gb200", "v100", "a100")
	want, err := Generate("fabric", nodes, options())
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(nodes)
	if got, err := Generate("fabric", nodes, options()); err != nil || got != want {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
}

// dualPort are nodes with RoCE HCAs of two ports. With 16 bits all addresses are in one subnet, with 24 each port has
// its own.
func dualPort(bits int) []*node.Node {
	nodes := rails(func(node, rail int, h *node.HCA, d *node.Netdev) {
		ethernet(h, d, fmt.Sprintf("10.0.%d.%d/%d", rail, node+1, bits))
	})
	for i, n := range nodes {
		for r := range n.HCAs {
			h := &n.HCAs[r]
			p := h.Ports[0]
			p.Number, p.Netdev = 2, fmt.Sprintf("rail%dp2", r)
			h.Ports = append(h.Ports, p)
			n.Netdevs = append(n.Netdevs, node.Netdev{
				Name: p.Netdev, PCI: strings.Replace(h.PCI, ".0", ".1", 1),
				Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/%d", 10+r, i+1, bits))},
			})
		}
	}
	return nodes
}

// The ports of one HCA are in two subnets that do not reach each other: two Fabrics match the one RDMA device.
func TestPortsOfTwoFabrics(t *testing.T) {
	text, err := Generate("fabric", dualPort(24), options())
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, "both Fabrics match the one RDMA device"); n != 8 {
		t.Errorf("%d warnings, one for each of 8 Fabrics wanted: %s", n, text)
	}
}

// HCAs with two ports of RoCE: the Fabric gives pods both, and a pod asks for as many devices as there are HCAs.
func TestAllPorts(t *testing.T) {
	nodes := dualPort(16)
	for _, f := range written(t, nodes, options()) {
		if !f.AllPorts {
			t.Errorf("%s: allPorts is not set: %v", f.Name, f.Network)
		}
	}
	for kind, want := range map[string]string{
		"pod": "roce-400g, roce-400g, roce-400g, roce-400g\n", "claim": "count: 4\n",
		"deployment": "8 interfaces, net1 to net4, and net1p2",
	} {
		text, err := Generate(kind, nodes, options())
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: want %q in %s, %v", kind, want, text, err)
		}
	}
}
