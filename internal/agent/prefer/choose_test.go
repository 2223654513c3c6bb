package prefer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/prefer"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// rails are the rails of a recorded machine's first fabric, called after their RDMA devices, and its GPUs.
func rails(t *testing.T, m *machines.Machine) (units []prefer.Unit, gpus []node.Place) {
	t.Helper()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.Fabrics().Fabrics[0].Rails {
		h := n.HCA(n.Fabrics().Fabrics[0].Rails[i].Ports[0].HCA)
		units = append(units, prefer.Unit{ID: h.Name, Slot: h.PCI, Place: h.Place()})
	}
	for i := range n.GPUs {
		gpus = append(gpus, n.GPUs[i].Place())
	}
	return units, gpus
}

// dgx has what an NVIDIA DGX A100 has: four switches with two GPUs and two HCAs each, two of them in each NUMA node.
func dgx() (units []prefer.Unit, gpus []node.Place) {
	for i := range 8 {
		root := fmt.Sprintf("pci0000:%d0", i/2)
		at := func(port int) node.Place {
			return node.Place{NUMA: i / 4, Path: []string{root, fmt.Sprintf("0000:%d0:01.1", i/2),
				fmt.Sprintf("0000:%d1:00.0", i/2), fmt.Sprintf("0000:%d2:%02x.0", i/2, 2*i+port),
				fmt.Sprintf("0000:%d%x:00.0", i/2, 3+4*(i%2)+port)}}
		}
		units = append(units, prefer.Unit{ID: fmt.Sprint("mlx5_", i), Slot: fmt.Sprint(i), Place: at(0)})
		gpus = append(gpus, at(1))
	}
	return units, gpus
}

func ids(units []prefer.Unit) (out []string) {
	for _, u := range units {
		out = append(out, u.ID)
	}
	return out
}

// Which rails pods get with which GPUs, by their numbers.
func TestRailsOfGPUs(t *testing.T) {
	machine := func(m *machines.Machine) func(*testing.T) ([]prefer.Unit, []node.Place) {
		return func(t *testing.T) ([]prefer.Unit, []node.Place) { return rails(t, m) }
	}
	h20, gb200, a100, roce := machine(machines.H20()), machine(machines.GB200()), machine(machines.A100("a100", 0)),
		machine(machines.RoCE())
	gb300 := machine(machines.GB300())
	dgx := func(*testing.T) ([]prefer.Unit, []node.Place) { return dgx() }
	for _, c := range []struct {
		name string
		of   func(*testing.T) ([]prefer.Unit, []node.Place)
		gpus string // the pod's
		free string // rails; empty: all
		size int
		want string
	}{
		{"gb300: one GPU, the HCA whose Data Direct function is at its switch", gb300, "0", "", 1, "mlx5_1"},
		{"gb300: the other GPUs", gb300, "2 1", "", 2, "mlx5_0 mlx5_3"},
		{"h20: one GPU, the rail at its switch", h20, "5", "", 1, "mlx5_4"},
		{"h20: two GPUs of one switch", h20, "2 3", "", 1, "mlx5_3"},
		{"h20: two GPUs of two switches", h20, "1 6", "", 2, "mlx5_0 mlx5_7"},
		{"h20: the rail at the switch is taken: one of the same NUMA node", h20, "6", "0 1 2", 1, "mlx5_4"},
		{"h20: a third rail is near one of the two GPUs", h20, "4 6", "", 3, "mlx5_0 mlx5_4 mlx5_7"},
		{"h20: no GPU: rails of one NUMA node", h20, "", "1 2 3", 2, "mlx5_4 mlx5_7"},
		{"h20: no GPU: the first rails", h20, "", "", 2, "mlx5_0 mlx5_3"},
		{"h20: no GPU, one rail", h20, "", "2 3", 1, "mlx5_4"},
		{"gb200: GPUs have no bridge with any rail: those of the NUMA node", gb200, "2", "", 1, "mlx5_2"},
		{"gb200: two GPUs", gb200, "2 3", "", 2, "mlx5_2 mlx5_3"},
		{"gb200: a GPU of each NUMA node", gb200, "1 2", "", 2, "mlx5_0 mlx5_2"},
		{"a100: there is one rail", a100, "7", "", 1, "mlx5_0"},
		{"roce: a GPU below the second switch of its rail", roce, "7", "", 1, "mlx5_5"},
		{"dgx: one of the two at the switch", dgx, "3", "", 1, "mlx5_2"},
		{"dgx: the other one if a pod has the first", dgx, "3", "0 1 3 4 5 6 7", 1, "mlx5_3"},
		{"dgx: one at each switch, not two at one", dgx, "1 5", "", 2, "mlx5_0 mlx5_4"},
		{"dgx: two at each switch", dgx, "1 5", "", 4, "mlx5_0 mlx5_1 mlx5_4 mlx5_5"},
		{"dgx: half of the node", dgx, "4 5 6 7", "", 4, "mlx5_4 mlx5_5 mlx5_6 mlx5_7"},
		{"dgx: no GPU: two at one switch", dgx, "", "1 2 3 7", 2, "mlx5_2 mlx5_3"},
		{"dgx: no GPU: four of one NUMA node", dgx, "", "0 2 4 5 6 7", 4, "mlx5_4 mlx5_5 mlx5_6 mlx5_7"},
	} {
		units, all := c.of(t)
		var gpus []node.Place
		for _, g := range strings.Fields(c.gpus) {
			gpus = append(gpus, all[number(t, g)])
		}
		free := ids(units)
		if c.free != "" {
			free = nil
			for _, f := range strings.Fields(c.free) {
				free = append(free, units[number(t, f)].ID)
			}
		}
		rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] }) // as kubelet does
		if got := strings.Join(prefer.Choose(units, free, nil, c.size, gpus), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// On no machine, whatever is free and whatever GPUs a pod has, is there a choice that has rails nearer to the GPUs: all
// choices are compared.
func TestNoneIsNearer(t *testing.T) {
	check := func(name string, units []prefer.Unit, all []node.Place) {
		for range 1000 {
			var gpus []node.Place
			for _, g := range all {
				if rand.IntN(3) == 0 {
					gpus = append(gpus, g)
				}
			}
			var free []prefer.Unit
			for _, u := range units {
				if rand.IntN(4) > 0 {
					free = append(free, u)
				}
			}
			if len(free) == 0 {
				continue
			}
			size := 1 + rand.IntN(len(free))
			got := prefer.Choose(units, ids(free), nil, size, gpus)
			far, least := 0, -1
			for set := range 1 << len(free) {
				var some []prefer.Unit
				for i, u := range free {
					if set&(1<<i) != 0 {
						some = append(some, u)
					}
				}
				if len(some) != size {
					continue
				}
				sum := apart(some, gpus)
				if least < 0 || sum < least {
					least = sum
				}
				if slices.Equal(ids(some), got) {
					far = sum
				}
			}
			if far != least {
				t.Fatalf("%s: %v of %v for GPUs %v: %d, but one has %d", name, got, ids(free), gpus, far, least)
			}
		}
	}
	for _, m := range []*machines.Machine{machines.H20(), machines.GB200(), machines.GB300(), machines.RoCE(),
		machines.V100()} {
		units, gpus := rails(t, m)
		check(m.Name, units, gpus)
	}
	units, gpus := dgx()
	check("dgx", units, gpus)
}

// apart is how far the GPUs are from the nearest units, and then these from the nearest GPUs; without any GPU, how far
// the units are from each other.
func apart(units []prefer.Unit, gpus []node.Place) (sum int) {
	for _, g := range gpus {
		least := node.SYS
		for _, u := range units {
			least = min(least, u.Place.Distance(g))
		}
		sum += 1000 * int(least)
	}
	for i, u := range units {
		least := node.SYS
		for _, g := range gpus {
			least = min(least, u.Place.Distance(g))
		}
		sum += int(least)
		for _, v := range units[:i] {
			if len(gpus) == 0 {
				sum += int(u.Place.Distance(v.Place))
			}
		}
	}
	return sum
}

// A node with more rails than can all be compared is answered as well: to compare all would take years.
func TestManyRails(t *testing.T) {
	var units []prefer.Unit
	for i := range 64 {
		path := []string{fmt.Sprint("pci0000:", i/8), fmt.Sprint("up", i/2), fmt.Sprint("down", i), "function"}
		units = append(units, prefer.Unit{
			ID: fmt.Sprintf("rail%02d", i), Slot: fmt.Sprint(i), Place: node.Place{NUMA: i / 32, Path: path},
		})
	}
	got := prefer.Choose(units, ids(units), nil, 16, []node.Place{units[35].Place})
	if want := ids(units[32:48]); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Shares and virtual functions of one card share its port: a container gets two of them only if nothing else is left,
// and those of which most are free.
func TestSharesAreSpread(t *testing.T) {
	var units []prefer.Unit
	for i := range 3 {
		for s := range 4 {
			units = append(units, prefer.Unit{ID: fmt.Sprintf("rail%d-%d", i, s), Slot: fmt.Sprint(i),
				Place: node.Place{NUMA: i / 2, Path: []string{fmt.Sprint("pci0000:", i), fmt.Sprint("vf", s)}}})
		}
	}
	for _, c := range []struct {
		free, must string // empty free: all
		size       int
		gpus       []node.Place
		want       string
	}{
		{"", "", 1, nil, "rail0-0"},
		{"", "", 2, nil, "rail0-0 rail1-0"},
		{"", "", 3, nil, "rail0-0 rail1-0 rail2-0"},
		{"", "", 4, nil, "rail0-0 rail0-1 rail1-0 rail2-0"},
		{"rail0-3 rail1-1 rail1-2 rail2-0", "", 1, nil, "rail1-1"},
		{"rail0-3 rail1-1 rail1-2 rail2-0", "rail1-3", 2, nil, "rail1-3 rail0-3"},
		{"rail1-1 rail1-2", "", 2, nil, "rail1-1 rail1-2"},
		{"", "rail2-3", 2, nil, "rail2-3 rail0-0"},
		{"", "", 1, []node.Place{{NUMA: 1}}, "rail2-0"},
		{"", "", 2, []node.Place{{NUMA: 1}}, "rail0-0 rail2-0"},
	} {
		free := strings.Fields(c.free)
		if c.free == "" {
			free = ids(units)
		}
		got := strings.Join(prefer.Choose(units, free, strings.Fields(c.must), c.size, c.gpus), " ")
		if got != c.want {
			t.Errorf("%d of %q with %q: %s, want %s", c.size, c.free, c.must, got, c.want)
		}
	}
}

// What kubelet relies on holds for everything that it may say: the ids are from those available, with all that must be
// in, as many as asked for, no id twice, and the same whatever the order.
func FuzzChoose(f *testing.F) {
	f.Add([]byte{8, 3, 0xff, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{0})
	f.Add([]byte{40, 30, 0, 0xaa, 0x55, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		next := func() int {
			if len(b) == 0 {
				return 0
			}
			n := b[0]
			b = b[1:]
			return int(n)
		}
		n, size := next()%48, next()%52-2
		var units []prefer.Unit
		var available, must []string
		var gpus []node.Place
		for i := range n {
			what := next()
			u := prefer.Unit{ID: fmt.Sprint("u", i), Place: node.Place{NUMA: what%3 - 1}}
			if what&8 != 0 {
				u.Slot = fmt.Sprint(what % 5)
			}
			if what&16 != 0 {
				u.Place.Path = []string{fmt.Sprint(what % 2), fmt.Sprint(what % 7)}
			}
			if what&32 != 0 { // a unit that has just left the node is still available to kubelet
				units = append(units, u)
			}
			if what&64 != 0 {
				available = append(available, u.ID)
				if what&128 != 0 {
					must = append(must, u.ID)
				}
			}
			if what%11 == 0 {
				gpus = append(gpus, u.Place)
			}
		}
		got := prefer.Choose(units, available, must, size, gpus)
		if want := max(len(must), min(size, len(available))); len(got) != want {
			t.Fatalf("%d ids, want %d", len(got), want)
		}
		seen := map[string]bool{}
		for _, id := range got {
			if seen[id] || !slices.Contains(available, id) {
				t.Fatalf("%v: %s is there twice, or not available", got, id)
			}
			seen[id] = true
		}
		for _, id := range must {
			if !seen[id] {
				t.Fatalf("%v: %s is missing", got, id)
			}
		}
		slices.Reverse(available)
		slices.Reverse(must)
		if again := prefer.Choose(units, available, must, size, gpus); !slices.Equal(again, got) {
			t.Fatalf("%v, and in another order %v", got, again)
		}
	})
}
