package noderange_test

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/noderange"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func spec() noderange.Spec {
	return noderange.Spec{Fabric: "ib", Prefix: netip.MustParsePrefix("10.0.0.0/24"), Bits: 26, Reclaim: time.Hour}
}

// cluster is the table and the Nodes that there are.
type cluster struct {
	t     *testing.T
	spec  noderange.Spec
	table noderange.Table
	nodes map[string]bool
	now   time.Time
}

func (c *cluster) allocate(node, want string) {
	c.t.Helper()
	nodes := func() (map[string]bool, error) { return c.nodes, nil }
	own, table, err := c.spec.Allocate(c.table, node, nodes, c.now)
	c.table = table
	if want == "" {
		if !errors.Is(err, noderange.ErrExhausted) || !strings.Contains(err.Error(), node) {
			c.t.Errorf("%s: %s, %v: there should be nothing left", node, own, err)
		}
		return
	}
	if err != nil || own.String() != want {
		c.t.Errorf("%s has %s, %v, want %s", node, own, err, want)
	}
}

func TestAllocate(t *testing.T) {
	c := &cluster{
		t:     t,
		spec:  spec(),
		nodes: map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true},
		now:   noon,
	}
	c.allocate("a", "10.0.0.0/26")
	c.allocate("b", "10.0.0.64/26")
	c.allocate("a", "10.0.0.0/26")
	c.allocate("c", "10.0.0.128/26")
	c.allocate("d", "10.0.0.192/26")
	c.allocate("e", "")
	// b leaves. It keeps its range for an hour from the moment when another node noticed that it is gone.
	delete(c.nodes, "b")
	c.now = c.now.Add(24 * time.Hour)
	c.allocate("e", "")
	c.now = c.now.Add(59 * time.Minute)
	c.allocate("e", "")
	c.allocate("b", "10.0.0.64/26") // it comes back
	c.nodes["b"] = true
	c.now = c.now.Add(2 * time.Minute)
	c.allocate("e", "")
	delete(c.nodes, "b")
	c.allocate("e", "")
	c.now = c.now.Add(time.Hour)
	c.allocate("e", "10.0.0.64/26")
	c.allocate("b", "") // too late
	if len(c.table) != 4 {
		t.Errorf("%v", c.table)
	}
}

// The mark of a Node that was gone is removed by any node that sees it again.
func TestMarkIsRemoved(t *testing.T) {
	c := &cluster{t: t, spec: spec(), nodes: map[string]bool{"b": true}, now: noon,
		table: noderange.Table{"a": "10.0.0.0/25", "b": "10.0.0.128/25 gone 2026-01-01T00:00:00Z"}}
	c.allocate("e", "")
	if c.table["b"] != "10.0.0.128/25" || c.table["a"] != "10.0.0.0/25 gone 2026-01-02T12:00:00Z" {
		t.Errorf("%v", c.table)
	}
}

func prefixes(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }

func TestOtherSettings(t *testing.T) {
	table := noderange.Table{"a": "10.0.0.0/26", "b": "10.0.0.64/26", "x": "nonsense"}
	for name, tt := range map[string]struct {
		change func(*noderange.Spec)
		want   string
	}{
		"the same":       {func(*noderange.Spec) {}, "10.0.0.64/26"},
		"shorter ranges": {func(s *noderange.Spec) { s.Bits = 25 }, "10.0.0.128/25"},
		"longer ranges":  {func(s *noderange.Spec) { s.Bits = 27 }, "10.0.0.64/27"},
		"excluded":       {func(s *noderange.Spec) { s.Without = prefixes("10.0.0.70/32") }, "10.0.0.128/26"},
		"another range":  {func(s *noderange.Spec) { s.Prefix = prefixes("10.1.0.0/24")[0] }, "10.1.0.0/26"},
		"version 6":      {func(s *noderange.Spec) { s.Prefix, s.Bits = prefixes("fd00::/64")[0], 112 }, "fd00::/112"},
	} {
		s := spec()
		tt.change(&s)
		before := maps.Clone(table)
		own, next, err := s.Allocate(table, "b", nil, noon)
		if err != nil || own.String() != tt.want || next["b"] != tt.want || next["a"] != table["a"] {
			t.Errorf("%s: %s, %v, %v, want %s", name, own, next, err, tt.want)
		}
		if !maps.Equal(before, table) {
			t.Errorf("%s: the old table has changed: %v", name, table)
		}
	}
}

func TestUnknownNodes(t *testing.T) {
	table := noderange.Table{"a": "10.0.0.0/24"}
	down := errors.New("down")
	nodes := func() (map[string]bool, error) { return nil, down }
	if _, next, err := spec().Allocate(table, "b", nodes, noon); !errors.Is(err, down) || next["a"] != table["a"] {
		t.Errorf("%v, %v", next, err)
	}
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
		p := netip.MustParsePrefix(own)
		if a, b := spec().Bounds(p); a.String()+"-"+b.String() != want.bounds {
			t.Errorf("%s: %s-%s, want %s", own, a, b, want.bounds)
		}
		if n := spec().Capacity(p); n != want.capacity {
			t.Errorf("%s: %d addresses, want %d", own, n, want.capacity)
		}
	}
}
