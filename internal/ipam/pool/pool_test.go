package pool_test

import (
	"net/netip"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
)

// What is not given anyhow, or excluded twice, counts once.
func TestUsable(t *testing.T) {
	for _, c := range []struct {
		in, exclude string
		want        int
	}{
		{"10.0.0.0/28", "", 14},
		{"10.0.0.7/28", "", 14},
		{"10.0.0.0/30", "", 2},
		{"10.0.0.0/31", "", 0},
		{"10.0.0.0/32", "", 0},
		{"10.0.0.0/28", "10.0.0.4/30", 10},
		{"10.0.0.0/28", "10.0.0.0/30 10.0.0.8/29", 4},
		{"10.0.0.0/28", "10.0.0.0/28", 0},
		{"10.0.0.0/28", "10.0.0.0/24", 0},
		{"10.0.0.0/28", "10.0.0.4/30 10.0.0.5/32 10.0.0.4/30", 10},
		{"10.0.0.0/28", "10.0.1.0/30 fd00::/64", 14},
		{"10.0.0.0/28", "10.0.0.15/32", 14},
		{"255.255.255.0/24", "255.255.255.128/25", 127},
		{"0.0.0.0/0", "", pool.Max},
		{"fd00::/124", "", 14},
		{"fd00::/64", "", pool.Max},
		{"fd00::/64", "fd00::/65", pool.Max}, // half of a /64 is left
		{"fd00::/64", "fd00::/65 fd00:0:0:0:8000::/65", 0},
		{"fd00::/98", "", 1<<30 - 2},
		{"fd00::/97", "", 1<<31 - 2}, // the last one that can be counted
		{"fd00::/96", "", pool.Max},
		{"::/0", "", pool.Max},
	} {
		var exclude []netip.Prefix
		for _, e := range strings.Fields(c.exclude) {
			exclude = append(exclude, netip.MustParsePrefix(e))
		}
		if got := pool.Usable(netip.MustParsePrefix(c.in), exclude...); got != c.want {
			t.Errorf("%s without %s: %d, want %d", c.in, c.exclude, got, c.want)
		}
	}
	if got := pool.Usable(netip.Prefix{}); got != 0 {
		t.Errorf("no prefix: %d, want 0", got)
	}
}

func TestBetween(t *testing.T) {
	for _, c := range []struct {
		first, last string
		want        int
	}{
		{"10.0.0.1", "10.0.0.1", 1},
		{"10.0.0.1", "10.0.0.254", 254},
		{"10.0.0.2", "10.0.0.1", 0},
		{"10.0.0.2", "fd00::1", 0},
		{"fd00::", "fd00::7fff:fffe", pool.Max},
		{"fd00::", "fd00::7fff:fffd", pool.Max - 1},
		{"fd00::", "fd00::ffff:ffff:ffff:ffff", pool.Max},
		{"fd00::", "fd00:1::", pool.Max},
	} {
		if got := pool.Between(netip.MustParseAddr(c.first), netip.MustParseAddr(c.last)); got != c.want {
			t.Errorf("%s to %s: %d, want %d", c.first, c.last, got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	var b netipx.IPSetBuilder
	b.AddPrefix(netip.MustParsePrefix("10.0.0.0/30"))
	b.AddPrefix(netip.MustParsePrefix("fd00::/126"))
	s, err := b.IPSet()
	if err != nil || pool.Count(s) != 8 {
		t.Errorf("%d, %v", pool.Count(s), err)
	}
	b.AddPrefix(netip.MustParsePrefix("fd01::/97"))
	b.AddPrefix(netip.MustParsePrefix("fd02::/97"))
	if s, err = b.IPSet(); err != nil || pool.Count(s) != pool.Max {
		t.Errorf("%d, %v", pool.Count(s), err)
	}
}

func TestLevelOf(t *testing.T) {
	for _, c := range []struct {
		given, have int
		want        pool.Level
	}{
		{0, 10, pool.Room}, {8, 10, pool.Room}, {9, 10, pool.NearlyFull}, {10, 10, pool.Full},
		{11, 10, pool.Full}, {0, 0, pool.Full},
		{228, 254, pool.Room}, {229, 254, pool.NearlyFull}, {2, 3, pool.Room}, {1932735282, pool.Max, pool.Room},
		{1932735283, pool.Max, pool.NearlyFull},
	} {
		if got := pool.LevelOf(c.given, c.have); got != c.want {
			t.Errorf("%d of %d: %v, want %v", c.given, c.have, got, c.want)
		}
	}
}
