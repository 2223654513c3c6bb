package draw_test

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/subnet"
)

// cabled is a two-level fat tree of nodes with rails, as ibnetdiscover -p prints it. Two cables of node 5 are swapped,
// one of node 17 is missing, and so is an uplink of leaf-11.
func cabled(t *testing.T, rails, nodes, group, spines int, sound bool) *subnet.Topology {
	t.Helper()
	var b strings.Builder
	line := func(kind string, guid, port int, desc string, leaf, leafPort int) {
		fmt.Fprintf(&b, "%s 1 %d 0x%x 4x NDR - SW 1 %d 0x%x ( '%s' - 'leaf-%02d' )\n", kind, port, guid, leafPort,
			0x1000+leaf, desc, leaf)
	}
	for n := range nodes {
		for r := range rails {
			at := r
			if !sound && n == 5 && (r == 2 || r == 6) {
				at = 8 - r
			}
			if sound || n != 17 || r != 3 {
				line("CA", 0x100000+n*16+r, 1, fmt.Sprintf("gpu-%d mlx5_%d", n, r), n/group*rails+at, n%group+1)
			}
		}
	}
	for l := range nodes / group * rails {
		for s := range spines {
			for k := range group / spines {
				if sound || l != 11 || s != 2 || k != 0 {
					line("SW", 0x2000+s, l*group/spines+k+1, fmt.Sprintf("spine-%02d", s), l, group+s*group/spines+k+1)
				}
			}
		}
	}
	g := subnet.New()
	if err := g.Read(strings.NewReader(b.String()), ""); err != nil {
		t.Fatal(err)
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	return g.Judge(nil)
}

func topologyPage(t *testing.T, topo *subnet.Topology) string {
	t.Helper()
	var page bytes.Buffer
	if err := draw.TopologyHTML(&page, topo); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// Every node is a box if there are few, every group if there are many; nodes with faults are always. The texts stay in
// their boxes.
func TestTopologyInBrowser(t *testing.T) {
	browser(t)
	for name, c := range map[string]struct {
		topo *subnet.Topology
		want string // boxes, badges, rows of tables
	}{
		"few":    {cabled(t, 8, 8, 8, 4, true), "LOOK 20 0 15 []"},
		"many":   {cabled(t, 8, 64, 32, 8, false), "LOOK 28 0 30 []"},
		"larger": {cabled(t, 4, 480, 8, 8, true), "LOOK 88 0 251 []"},
	} {
		if title, _ := view(t, topologyPage(t, c.topo)); title != c.want {
			t.Errorf("%s: %s, want %s", name, title, c.want)
		}
	}
}

// What is wrong is red, and the line to where the cable is now.
func TestTopologySVG(t *testing.T) {
	var b bytes.Buffer
	if err := draw.TopologySVG(&b, cabled(t, 8, 64, 32, 8, false)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mlx5_2:1 should be on leaf-02, is on leaf-06", "mlx5_3:1 has no link", "31 uplinks",
		"leaf-11 to spine-02: 3 links"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	if n := strings.Count(b.String(), "stroke-dasharray"); n != 3 {
		t.Errorf("%d red lines, want 3: two cables, and the uplink", n)
	}
}

// The picture of docs/topology.md, made and compared as those of TestImages are.
func TestTopologyImage(t *testing.T) {
	const file = "../../../../docs/images/topology.png"
	if *update {
		browser(t)
		_, shot := viewIn(t, topologyPage(t, cabled(t, 8, 64, 32, 8, false)), "1984,580")
		if err := os.WriteFile(file, shot, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	size, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil || size.Width != 1984 || size.Height != 580 || len(b) > 250<<10 {
		t.Errorf("%v, %d x %d, %d bytes", err, size.Width, size.Height, len(b))
	}
}
