package noderange_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/noderange"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func prefixes(text ...string) (out []netip.Prefix) {
	for _, t := range text {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func spec(ranges ...string) noderange.Spec {
	s := noderange.Spec{Fabric: "ib", Reclaim: time.Hour}
	for _, r := range ranges {
		prefix, bits, _ := strings.Cut(r, " ")
		n := 0
		if _, err := fmt.Sscan(bits, &n); err != nil {
			panic(err)
		}
		s.Ranges = append(s.Ranges, noderange.Range{Prefix: netip.MustParsePrefix(prefix), Bits: n})
	}
	return s
}

func assign(t *testing.T, p *noderange.Pool, node, want string, reclaimed ...string) {
	t.Helper()
	own, from, err := p.Assign(node, noon)
	got := fmt.Sprint(own)
	if errors.Is(err, noderange.ErrExhausted) && strings.Contains(err.Error(), node) {
		got = "none"
	} else if err != nil {
		t.Error(err)
	}
	if got != want || fmt.Sprint(from) != fmt.Sprint(reclaimed) {
		t.Errorf("%s has %s from %s, want %s from %s", node, got, from, want, reclaimed)
	}
}

func newPool(t *testing.T, s noderange.Spec, owners ...noderange.Owner) *noderange.Pool {
	t.Helper()
	p, err := noderange.New(s, owners)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func owner(node string, own ...string) noderange.Owner {
	return noderange.Owner{Node: node, Own: prefixes(own...)}
}

func gone(since time.Duration, node string, own ...string) noderange.Owner {
	return noderange.Owner{Node: node, Own: prefixes(own...), Gone: noon.Add(-since)}
}

func TestAssign(t *testing.T) {
	p := newPool(t, spec("10.0.0.0/24 26"))
	assign(t, p, "a", "[10.0.0.0/26]")
	assign(t, p, "b", "[10.0.0.64/26]")
	assign(t, p, "a", "[10.0.0.0/26]")
	assign(t, p, "c", "[10.0.0.128/26]")
	assign(t, p, "d", "[10.0.0.192/26]")
	assign(t, p, "e", "none")
	if got := fmt.Sprint(p.Own("b"), p.Own("e")); got != "[10.0.0.64/26] []" {
		t.Error(got)
	}
}

// The range of a Node that is gone stays its own for an hour. Then the one that has been gone for longest loses it.
func TestReclaim(t *testing.T) {
	owners := []noderange.Owner{
		owner("a", "10.0.0.0/26"), gone(59*time.Minute, "b", "10.0.0.64/26"),
		gone(time.Hour, "c", "10.0.0.128/26"), gone(2*time.Hour, "d", "10.0.0.192/26"),
	}
	p := newPool(t, spec("10.0.0.0/24 26"), owners...)
	assign(t, p, "e", "[10.0.0.192/26]", "d")
	assign(t, p, "d", "[10.0.0.128/26]", "c")
	assign(t, p, "f", "none")
	p = newPool(t, spec("10.0.0.0/24 26"), owners...)
	assign(t, p, "d", "[10.0.0.192/26]") // it comes back, and is not gone any more
	assign(t, p, "e", "[10.0.0.128/26]", "c")
	assign(t, p, "f", "none")
}

func TestDualStack(t *testing.T) {
	p := newPool(t, spec("10.0.0.0/25 26", "fd00::/64 112"), owner("b", "10.0.0.0/26", "fd00::/112"))
	assign(t, p, "a", "[10.0.0.64/26 fd00::1:0/112]")
	assign(t, p, "c", "none")
	assign(t, p, "b", "[10.0.0.0/26 fd00::/112]")
	// A second family came, and takes no node's first range away.
	p = newPool(t, spec("10.0.0.0/24 26", "fd00::/64 112"), owner("b", "10.0.0.0/26"))
	assign(t, p, "a", "[10.0.0.64/26 fd00::/112]")
	assign(t, p, "b", "[10.0.0.0/26 fd00::1:0/112]")
}

func TestStatic(t *testing.T) {
	s := spec("10.0.0.0/24 26")
	s.Static = map[string][]netip.Prefix{"x": prefixes("10.0.0.0/26"), "y": prefixes("10.0.0.64/26")}
	p := newPool(t, s, owner("a", "10.0.0.0/26"), owner("y", "10.0.0.128/26"))
	assign(t, p, "a", "[10.0.0.192/26]") // it had what is x's now
	_, _, err := p.Assign("x", noon)
	if want := "node a had it, and has not said yet"; !errors.Is(err, noderange.ErrReserved) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	assign(t, p, "y", "[10.0.0.64/26]")
	assign(t, p, "b", "none") // what y had
	// They have said that they hold nothing of it.
	p = newPool(t, s, owner("a", "10.0.0.192/26"), owner("y", "10.0.0.64/26"))
	assign(t, p, "x", "[10.0.0.0/26]")
	assign(t, p, "b", "[10.0.0.128/26]")
	assign(t, p, "c", "none")
}

// What a node had by another spec stays its own until it gets something else: its pods may have these addresses.
func TestOtherSpec(t *testing.T) {
	s := spec("10.0.0.0/24 25")
	p := newPool(t, s, owner("a", "10.0.0.0/26"), owner("b", "10.0.0.64/26"))
	assign(t, p, "c", "[10.0.0.128/25]")
	assign(t, p, "a", "none") // b's is in the way
	p = newPool(t, spec("10.1.0.0/24 26"), owner("a", "10.0.0.0/26"))
	assign(t, p, "a", "[10.1.0.0/26]")
	s = spec("10.0.0.0/24 26")
	s.Ranges[0].Without = prefixes("10.0.0.70/32")
	p = newPool(t, s, owner("b", "10.0.0.64/26"))
	assign(t, p, "b", "[10.0.0.0/26]")
	assign(t, p, "a", "[10.0.0.128/26]")
}

// A node that has no range gets the one that holds what its pods have; no other node gets it, nor what a node had.
func TestClaim(t *testing.T) {
	holds := func(node string, held ...string) noderange.Owner {
		return noderange.Owner{Node: node, Held: prefixes(held...)}
	}
	claim := func(p *noderange.Pool, node, want string) {
		t.Helper()
		own, ok := p.Claim(node)
		if got := fmt.Sprint(own, ok); got != want {
			t.Errorf("%s claims %s, want %s", node, got, want)
		}
	}
	p := newPool(t, spec("10.0.0.0/24 26"),
		holds("b", "10.0.0.2/31", "10.0.0.4/32", "10.0.0.70/32"), holds("c", "10.0.0.130/32", "10.1.0.0/32"),
		noderange.Owner{Node: "e", Former: prefixes("10.0.0.192/26")})
	claim(p, "a", "[] false")
	assign(t, p, "a", "none")
	claim(p, "b", "[10.0.0.0/26] true")
	claim(p, "c", "[10.0.0.128/26] true")
	claim(p, "e", "[10.0.0.192/26] true")
	assign(t, p, "a", "none") // b holds an address of the one that is left
	if left, total := p.Usage(); left != 0 || total != 4 {
		t.Error(left, total)
	}
	// What two hold something of is neither's, what is another's by its spec stays so, and that is a conflict.
	p = newPool(t, spec("10.0.0.0/24 26"), holds("a", "10.0.0.1/32", "10.0.0.65/32"), holds("b", "10.0.0.2/32"),
		owner("c", "10.0.0.64/26"))
	claim(p, "a", "[] false")
	claim(p, "b", "[] false")
	claim(p, "c", "[10.0.0.64/26] true")
	assign(t, p, "a", "[10.0.0.128/26]")
	want := "[{a 10.0.0.65/32 c 10.0.0.64/26}]"
	if got := fmt.Sprint(p.Conflicts()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// What pods hold of another fabric is no node's.
	p = newPool(t, spec("10.0.0.0/25 26"), noderange.Owner{Node: "a", OthersHeld: prefixes("10.0.0.9/32")},
		noderange.Owner{Node: "b", OthersFormer: prefixes("10.0.0.64/27")})
	claim(p, "a", "[] false")
	assign(t, p, "a", "none")
	assign(t, p, "b", "none")
	// One static range, and the addresses that its node holds are elsewhere.
	s := spec("10.0.0.0/24 26")
	s.Static = map[string][]netip.Prefix{"a": prefixes("10.0.0.0/26")}
	p = newPool(t, s, holds("a", "10.0.0.130/32"), holds("b", "10.0.0.3/32"))
	claim(p, "a", "[] false")
	assign(t, p, "c", "[10.0.0.64/26]")
	// A second family came.
	p = newPool(t, spec("10.0.0.0/24 26", "fd00::/64 112"), holds("a", "10.0.0.70/32"))
	claim(p, "a", "[] false")
	assign(t, p, "b", "[10.0.0.0/26 fd00::/112]")
	assign(t, p, "a", "[10.0.0.64/26 fd00::1:0/112]")
}

// A node can't claim more than a few ranges.
func TestClaimTooMuch(t *testing.T) {
	var all []netip.Prefix
	for i := range 256 {
		all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 32))
	}
	for name, held := range map[string][]netip.Prefix{
		"one of each": all, "the whole": prefixes("10.0.0.0/16"), "more": prefixes("0.0.0.0/0", "::/0"),
	} {
		p := newPool(t, spec("10.0.0.0/16 24"), noderange.Owner{Node: "bad", Held: held},
			noderange.Owner{Node: "worse", OthersHeld: held})
		if got := fmt.Sprint(p.Excess()); got != "[bad worse]" {
			t.Errorf("%s: %s", name, got)
		}
		if left, _ := p.Usage(); left < 256-64 {
			t.Errorf("%s: %d are left", name, left)
		}
	}
	// What a node had may be as wide as it likes.
	p := newPool(t, spec("fd00::/48 112"), noderange.Owner{Node: "a", Former: prefixes("fd00::/64")})
	assign(t, p, "b", "[fd00:0:0:1::/112]")
}

// Two nodes have one range, whatever wrote that: the first in the list keeps it.
func TestTwice(t *testing.T) {
	p := newPool(t, spec("10.0.0.0/24 26"), owner("a", "10.0.0.0/26"), owner("b", "10.0.0.0/26"))
	assign(t, p, "b", "[10.0.0.64/26]")
	assign(t, p, "a", "[10.0.0.0/26]")
}

func TestBounds(t *testing.T) {
	for own, want := range map[string]struct {
		bounds   string
		capacity int
	}{
		"10.0.0.0/26":   {"10.0.0.1-10.0.0.63", 62}, // the first one is the gateway's
		"10.0.0.64/26":  {"10.0.0.64-10.0.0.127", 64},
		"10.0.0.192/26": {"10.0.0.192-10.0.0.254", 63},
		"10.0.0.0/24":   {"10.0.0.1-10.0.0.254", 253},
	} {
		r := spec("10.0.0.0/24 26").Ranges[0]
		p := netip.MustParsePrefix(own)
		if a, b := r.Bounds(p); a.String()+"-"+b.String() != want.bounds {
			t.Errorf("%s: %s-%s, want %s", own, a, b, want.bounds)
		}
		if n := r.Capacity(p); n != want.capacity {
			t.Errorf("%s: %d addresses, want %d", own, n, want.capacity)
		}
	}
}

// Whatever nodes come, go and bring along: no two have an address in common, and each has what the spec wants.
func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 128, 129, 0, 65, 66, 200})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := spec("10.0.0.0/24 28", "fd00::/120 124")
		s.Static = map[string][]netip.Prefix{"3": prefixes("10.0.0.16/28")}
		var owners []noderange.Owner
		for len(in) >= 4 && in[0] >= 128 {
			o := owner(fmt.Sprint(in[0]%32),
				fmt.Sprintf("10.0.0.%d/28", in[1]&^15), fmt.Sprintf("fd00::%x/124", in[2]&^15))
			if in[3]%2 == 0 {
				o.Gone = noon.Add(-time.Duration(in[3]) * time.Minute)
			}
			owners, in = append(owners, o), in[4:]
		}
		p := newPool(t, s, owners...)
		has := map[string][]netip.Prefix{}
		for _, b := range in {
			node := fmt.Sprint(b % 32)
			own, reclaimed, err := p.Assign(node, noon)
			if err != nil {
				continue
			}
			for _, r := range reclaimed {
				delete(has, r)
			}
			has[node] = own
		}
		for a, x := range has {
			if len(x) != 2 || x[0].Bits() != 28 || x[1].Bits() != 124 {
				t.Errorf("%s has %s", a, x)
			}
			for b, y := range has {
				if a != b && (x[0].Overlaps(y[0]) || x[1].Overlaps(y[1])) {
					t.Errorf("%s has %s and %s has %s", a, x, b, y)
				}
			}
		}
	})
}

func BenchmarkAssign(b *testing.B) {
	for b.Loop() {
		p, err := noderange.New(spec("10.0.0.0/8 21"), nil)
		if err != nil {
			b.Fatal(err)
		}
		for i := range 5000 {
			if _, _, err := p.Assign(fmt.Sprint("node-", i), noon); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	static := spec("10.0.0.0/24 26")
	static.Static = map[string][]netip.Prefix{"later": prefixes("10.0.0.192/26"), "a": prefixes("10.0.0.0/26")}
	without := spec("10.0.0.0/24 26")
	without.Ranges[0].Without = prefixes("10.0.0.65/32")
	for _, c := range []struct {
		name        string
		spec        noderange.Spec
		owners      []noderange.Owner
		left, total int
	}{
		{"nobody", spec("10.0.0.0/24 26"), nil, 4, 4},
		{"one", spec("10.0.0.0/24 26"), []noderange.Owner{owner("a", "10.0.0.64/26")}, 3, 4},
		{"not valid any more", spec("10.0.0.0/24 26"), []noderange.Owner{owner("a", "10.0.0.0/25")}, 2, 4},
		{"static", static, []noderange.Owner{owner("a", "10.0.0.0/26")}, 2, 4},
		{"excluded", without, nil, 3, 3},
		{"the scarcer of two", spec("10.0.0.0/16 26", "fd00::/120 121"), []noderange.Owner{owner("a", "10.0.0.0/26",
			"fd00::/121")}, 1, 2},
		{"wide", spec("fd00::/48 80"), nil, 1<<31 - 1, 1<<31 - 1},
	} {
		left, total := newPool(t, c.spec, c.owners...).Usage()
		if left != c.left || total != c.total {
			t.Errorf("%s: %d of %d, want %d of %d", c.name, left, total, c.left, c.total)
		}
	}
}
