package subnet

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// fat is a fat tree: groups of nodes with a leaf per rail, spines above.
type fat struct {
	nodes, rails, group, spines, parallel int
	cables                                []*cable
}

// cable joins two ends.
type cable struct {
	a, b    string // H-3-1 or S-2
	ap, bp  int
	rate    string
	missing bool
}

func (f *fat) leaf(node, rail int) int { return node/f.group*f.rails + rail }

func newFat(nodes, rails, group, spines, parallel int) *fat {
	f := &fat{nodes: nodes, rails: rails, group: group, spines: spines, parallel: parallel}
	for n := range nodes {
		for r := range rails {
			f.cables = append(f.cables, &cable{a: fmt.Sprintf("H-%d-%d", n, r), ap: 1,
				b: fmt.Sprintf("S-1-%d", f.leaf(n, r)), bp: n%group + 1, rate: "4xNDR"})
		}
	}
	for l := range (nodes + group - 1) / group * rails {
		for s := range spines {
			for k := range parallel {
				f.cables = append(f.cables, &cable{a: fmt.Sprintf("S-1-%d", l), ap: group + 1 + s*parallel + k,
					b: fmt.Sprintf("S-2-%d", s), bp: l*parallel + k + 1, rate: "4xNDR"})
			}
		}
	}
	return f
}

// newThree is a tree of three levels, of 5,000 nodes: pods of 64 leaves with 32 spines each, and 64 core switches.
func newThree() *fat {
	const group, rails, pod = 64, 8, 64
	f := newFat(5000, rails, group, 0, 0)
	join := func(a string, ap int, b string, bp int) {
		f.cables = append(f.cables, &cable{a: a, ap: ap, b: b, bp: bp, rate: "4xNDR"})
	}
	for l := range 79 * rails {
		for s := range 32 {
			for k := range 2 {
				join(fmt.Sprintf("S-1-%d", l), 65+s*2+k, fmt.Sprintf("S-2-%d", l/pod*32+s), l%pod*2+k+1)
			}
		}
	}
	for s := range 10 * 32 {
		for c := range 32 {
			join(fmt.Sprintf("S-2-%d", s), 129+c, fmt.Sprintf("S-3-%d", s%2*32+c), s/2+1)
		}
	}
	return f
}

// of is the cable of a node's rail.
func (f *fat) of(node, rail int) *cable { return f.cables[node*f.rails+rail] }

func (f *fat) swap(a, b *cable) { a.b, a.bp, b.b, b.bp = b.b, b.bp, a.b, a.bp }

// up is the cable number k of a leaf upwards.
func (f *fat) up(leaf, k int) *cable { return f.cables[f.nodes*f.rails+leaf*f.spines*f.parallel+k] }

func end(id string) (guid uint64, desc string) {
	kind, rest, _ := strings.Cut(id, "-")
	first, second, _ := strings.Cut(rest, "-")
	a, _ := strconv.ParseUint(first, 10, 32)
	b, _ := strconv.ParseUint(second, 10, 32)
	if kind == "H" {
		return 0x100000 + a*64 + b*2, fmt.Sprintf("gpu-%d mlx5_%d", a, b)
	}
	return a<<32 + b, fmt.Sprintf("MF0;%s-%d:MQM9700/U1", []string{"", "leaf", "spine", "core"}[a], b)
}

// list is what ibnetdiscover -p prints.
func (f *fat) list() string {
	var b strings.Builder
	line := func(at string, port int, to string, toPort int, rate string) {
		kind := map[byte]string{'H': "CA", 'S': "SW"}
		g, d := end(at)
		o, e := end(to)
		if at[0] == 'H' {
			g++
		}
		if to[0] == 'H' {
			o++
		}
		width, speed, _ := strings.Cut(rate, "x")
		fmt.Fprintf(
			&b,
			"%s     7 %2d 0x%016x %sx %s - %s     9 %2d 0x%016x ( '%s' - '%s' )\n",
			kind[at[0]],
			port,
			g,
			width,
			speed,
			kind[to[0]],
			toPort,
			o,
			d,
			e,
		)
	}
	for _, c := range f.cables {
		if !c.missing {
			line(c.a, c.ap, c.b, c.bp, c.rate)
			line(c.b, c.bp, c.a, c.ap, c.rate)
		}
	}
	return b.String()
}

func judge(t testing.TB, texts ...string) *Topology {
	t.Helper()
	g := New()
	for _, text := range texts {
		if err := g.Read(strings.NewReader(text), "gpu-1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Finish(); err != nil {
		t.Fatal(err)
	}
	return g.Judge(nil)
}

func found(topo *Topology) string {
	var b strings.Builder
	for _, f := range topo.Findings {
		if f.Status != doctor.OK {
			fmt.Fprintf(&b, "%s %s %s\n", f.Status, f.ID, f.Evidence)
		}
	}
	return b.String()
}

// faults are what may be wrong with a tree, and what is said then.
var faults = []struct {
	name  string
	f     *fat
	spoil func(f *fat)
	want  string
}{
	{"as it should be", newFat(64, 8, 32, 8, 4), func(*fat) {}, ""},
	{
		"swapped within a node", newFat(64, 8, 32, 8, 4), func(f *fat) { f.swap(f.of(3, 1), f.of(3, 5)) },
		"FAIL fabric-wrong-rail gpu-3 mlx5_1:1 is on leaf-5 port 4, and the same port of nodes cabled like it " +
			"is on " +
			"leaf-1: swap its cable with that of gpu-3 mlx5_5:1 on leaf-1 port 4\n" +
			"FAIL fabric-wrong-rail gpu-3 mlx5_5:1 is on leaf-1 port 4, and the same port of nodes cabled like it is " +
			"on leaf-5: swap its cable with that of gpu-3 mlx5_1:1 on leaf-5 port 4\n",
	},
	{
		"swapped between groups", newFat(64, 8, 32, 8, 4), func(f *fat) { f.swap(f.of(3, 1), f.of(40, 1)) },
		"FAIL fabric-wrong-rail gpu-3 mlx5_1:1 is on leaf-9 port 9, and the same port of nodes cabled like it " +
			"is on " +
			"leaf-1: swap its cable with that of gpu-40 mlx5_1:1 on leaf-1 port 4\n" +
			"FAIL fabric-wrong-rail gpu-40 mlx5_1:1 is on leaf-1 port 4, and the same port of nodes cabled like it " +
			"is on leaf-9: swap its cable with that of gpu-3 mlx5_1:1 on leaf-9 port 9\n",
	},
	{
		"swapped with two rails", newFat(8, 2, 8, 2, 4), func(f *fat) { f.swap(f.of(3, 0), f.of(3, 1)) },
		"FAIL fabric-wrong-rail gpu-3 mlx5_0:1 is on leaf-1 port 4, and the same port of nodes cabled like it " +
			"is on " +
			"leaf-0: swap its cable with that of gpu-3 mlx5_1:1 on leaf-0 port 4\n" +
			"FAIL fabric-wrong-rail gpu-3 mlx5_1:1 is on leaf-0 port 4, and the same port of nodes cabled like it is " +
			"on leaf-1: swap its cable with that of gpu-3 mlx5_0:1 on leaf-1 port 4\n",
	},
	{
		"every node has a fault of its own", newFat(4, 8, 4, 2, 2), func(f *fat) {
			for n := range 4 {
				f.of(n, n).missing = true
			}
		},
		"", // each has as many links as the others
	},
	{
		"a cable of a node", newFat(64, 8, 32, 8, 4), func(f *fat) { f.of(40, 3).missing = true },
		"FAIL fabric-cable-missing gpu-40 mlx5_3:1 has no link: 31 of 32 nodes that are cabled alike have one, on " +
			"leaf-11\n",
	},
	{
		"an uplink", newFat(64, 8, 32, 8, 4), func(f *fat) { f.up(2, 5).missing = true },
		"FAIL fabric-cable-missing leaf-2 has 31 uplinks: 15 of 16 switches like it have 32; it has 3 of 4 to " +
			"spine-1\n",
	},
	{
		"slow ones", newFat(8, 4, 8, 4, 2), func(f *fat) { f.of(1, 2).rate, f.up(2, 5).rate = "4xHDR", "1xNDR" },
		"FAIL fabric-link-slow gpu-1 mlx5_2:1 on leaf-2 port 2 runs at 200 Gb/s (4x HDR): 7 of 8 links like " +
			"it at " +
			"400 Gb/s (4x NDR)\n" +
			"FAIL fabric-link-slow leaf-2 port 14 to spine-2 port 6 runs at 100 Gb/s (1x NDR): 31 of 32 links like " +
			"it at 400 Gb/s (4x NDR)\n",
	},
	{
		"oversubscribed", newFat(32, 2, 16, 2, 4), func(*fat) {},
		"WARN fabric-oversubscribed 2:1 on 4 leaves: leaf-0 (6400 Gb/s to nodes, 3200 Gb/s up), leaf-1 (6400 Gb/s to " +
			"nodes, 3200 Gb/s up), leaf-2 (6400 Gb/s to nodes, 3200 Gb/s up), leaf-3 (6400 Gb/s to nodes, 3200 Gb/s " +
			"up)\n",
	},
	{
		"two nodes only", newFat(2, 2, 2, 2, 1), func(f *fat) { f.swap(f.of(0, 0), f.of(0, 1)) },
		"", // who of two is right?
	},
	{
		"a leaf to a leaf", newFat(64, 8, 32, 8, 4), func(f *fat) {
			f.cables = append(f.cables, &cable{a: "S-1-0", ap: 65, b: "S-1-1", bp: 65, rate: "4xNDR"})
		},
		"WARN fabric-shortcut leaf-0 port 65 to leaf-1 port 65, both of level 1\n",
	},
}

func TestFaults(t *testing.T) {
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			c.spoil(c.f)
			topo := judge(t, c.f.list())
			if got := found(topo); got != c.want {
				t.Errorf("got:\n%swant:\n%s", got, c.want)
			}
			if topo.Levels != 2 {
				t.Errorf("%d levels: %s", topo.Levels, topo.Reason)
			}
		})
	}
}
