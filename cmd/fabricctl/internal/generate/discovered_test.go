package generate

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// generated is the output, and what the caller is told beside it.
func generated(t *testing.T, kind string, n *node.Node, o Options) (text string, told []string) {
	t.Helper()
	o.Warn = func(s string) { told = append(told, s) }
	text, err := Generate(kind, []*node.Node{n}, o)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return text, told
}

// A port that has trained down makes no fabric of its own, and is named in the output and beside it.
func TestTrainedDown(t *testing.T) {
	m := machines.Named("h20")
	m.Slow("mlx5_7")
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds {
		text, told := generated(t, kind, n, options())
		if len(told) != 1 || !strings.Contains(told[0], "h20 mlx5_7:1 ") {
			t.Errorf("%s: told %q", kind, told)
		}
		head, _, _ := strings.Cut(text, "\napiVersion")
		if !strings.Contains(head, "# Warning: h20 mlx5_7:1 ") || strings.Contains(text, "200g") {
			t.Errorf("%s:\n%s", kind, text)
		}
		if kind == "pod" && !strings.Contains(text, "nvidia.com/ib_400g: 3\n") {
			t.Errorf("not the rails that are left:\n%s", text)
		}
	}
	for _, hca := range []string{"mlx5_0", "mlx5_3"} { // the slow ones are more than the others
		m.Slow(hca)
	}
	if n, err = node.Open(m.FS, journal.Store{}); err != nil {
		t.Fatal(err)
	}
	if text, told := generated(t, "fabric", n, options()); len(told) != 3 || strings.Count(text, "name: ib-") != 2 {
		t.Errorf("told %q\n%s", told, text)
	}
	for i := range n.HCAs { // three at a quarter carry less than the fast one alone: nccl-env leaves them out, too
		if p := &n.HCAs[i].Ports[0]; p.RateGb == 200 {
			p.RateGb, p.Rate = 100, "100 Gb/sec (1X NDR)"
		}
	}
	if text, told := generated(t, "fabric", n, options()); len(told) != 3 || strings.Contains(text, "100g") {
		t.Errorf("told %q\n%s", told, text)
	}
	env := nccl.Choose(&node.PodView{Node: n, All: n})
	if got := env.Names(); len(got) != 1 || len(env.Left) < 3 {
		t.Errorf("nccl-env: %v, left %v", got, env.Left)
	}
}

// The ports of a BlueField beside other rails have the host's storage: a Fabric of them is written only if asked for.
func TestFrontEnd(t *testing.T) {
	n := open(t, "gb200")[0]
	n.HCAs = append(n.HCAs, node.HCA{
		Name: "mlx5_bf", PCI: "0006:03:00.0", Kind: "PF", ID: "15b3:a2dc", Model: "BlueField-3",
		Ports: []node.Port{{
			Number: 1, LinkLayer: device.Ethernet, State: "Active", Phys: "LinkUp", RateGb: 200, Netdev: "front0",
		}},
	})
	n.Netdevs = append(n.Netdevs, node.Netdev{Name: "front0", PCI: "0006:03:00.0"})
	for _, kind := range []string{"fabric", "nad", "device-plugin"} {
		text, told := generated(t, kind, n, options())
		if len(told) != 1 || !strings.Contains(told[0], "mlx5_bf:1") || strings.Contains(text, "name: roce") ||
			!strings.Contains(text, "# Warning: roce-200g ") {
			t.Errorf("%s: told %q\n%s", kind, told, text)
		}
	}
	o := options()
	o.Fabric = "roce-200g"
	if text, told := generated(t, "fabric", n, o); len(told) != 0 || !strings.Contains(text, "name: roce-200g\n") {
		t.Errorf("told %q\n%s", told, text)
	}
	// Where there are no others they are the rails.
	n.HCAs = slices.DeleteFunc(n.HCAs, func(h node.HCA) bool { return h.Model != "BlueField-3" })
	if text, told := generated(t, "fabric", n, options()); len(told) != 0 || !strings.Contains(text, "name: "+
		"roce-200g\n") {
		t.Errorf("told %q\n%s", told, text)
	}
}
