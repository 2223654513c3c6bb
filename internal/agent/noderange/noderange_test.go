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

func (c *cluster) take(node, want string) {
	c.t.Helper()
	part, table, err := c.spec.Take(c.table, node, func() (map[string]bool, error) { return c.nodes, nil }, c.now)
	c.table = table
	if want == "" {
		if !errors.Is(err, noderange.ErrExhausted) || !strings.Contains(err.Error(), node) {
			c.t.Errorf("%s: %s, %v: there should be nothing left", node, part, err)
		}
		return
	}
	if err != nil || part.String() != want {
		c.t.Errorf("%s has %s, %v, want %s", node, part, err, want)
	}
}

func TestTake(t *testing.T) {
	c := &cluster{
		t:     t,
		spec:  spec(),
		nodes: map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true},
		now:   noon,
	}
	c.take("a", "10.0.0.0/26")
	c.take("b", "10.0.0.64/26")
	c.take("a", "10.0.0.0/26")
	c.take("c", "10.0.0.128/26")
	c.take("d", "10.0.0.192/26")
	c.take("e", "")
	// b leaves. Its part stays its own for an hour from when somebody has missed it.
	delete(c.nodes, "b")
	c.now = c.now.Add(24 * time.Hour)
	c.take("e", "")
	c.now = c.now.Add(59 * time.Minute)
	c.take("e", "")
	c.take("b", "10.0.0.64/26") // it comes back
	c.nodes["b"] = true
	c.now = c.now.Add(2 * time.Minute)
	c.take("e", "")
	delete(c.nodes, "b")
	c.take("e", "")
	c.now = c.now.Add(time.Hour)
	c.take("e", "10.0.0.64/26")
	c.take("b", "") // too late
	if len(c.table) != 4 {
		t.Errorf("%v", c.table)
	}
}

// What a node that was thought to be gone has noted is taken back by whoever sees it again.
func TestMarkIsTakenBack(t *testing.T) {
	c := &cluster{t: t, spec: spec(), nodes: map[string]bool{"b": true}, now: noon,
		table: noderange.Table{"a": "10.0.0.0/25", "b": "10.0.0.128/25 gone 2026-01-01T00:00:00Z"}}
	c.take("e", "")
	if c.table["b"] != "10.0.0.128/25" || c.table["a"] != "10.0.0.0/25 gone 2026-01-02T12:00:00Z" {
		t.Errorf("%v", c.table)
	}
}

func TestOtherSettings(t *testing.T) {
	table := noderange.Table{"a": "10.0.0.0/26", "b": "10.0.0.64/26", "x": "nonsense"}
	for name, tt := range map[string]struct {
		change func(*noderange.Spec)
		want   string
	}{
		"the same":         {func(*noderange.Spec) {}, "10.0.0.64/26"},
		"shorter parts":    {func(s *noderange.Spec) { s.Bits = 25 }, "10.0.0.128/25"},
		"longer parts":     {func(s *noderange.Spec) { s.Bits = 27 }, "10.0.0.64/27"},
		"excluded":         {func(s *noderange.Spec) { s.Without = []netip.Prefix{netip.MustParsePrefix("10.0.0.70/32")} }, "10.0.0.128/26"},
		"another range":    {func(s *noderange.Spec) { s.Prefix = netip.MustParsePrefix("10.1.0.0/24") }, "10.1.0.0/26"},
		"the sixth family": {func(s *noderange.Spec) { s.Prefix, s.Bits = netip.MustParsePrefix("fd00::/64"), 112 }, "fd00::/112"},
	} {
		s := spec()
		tt.change(&s)
		before := maps.Clone(table)
		part, next, err := s.Take(table, "b", nil, noon)
		if err != nil || part.String() != tt.want || next["b"] != tt.want || next["a"] != table["a"] {
			t.Errorf("%s: %s, %v, %v, want %s", name, part, next, err, tt.want)
		}
		if !maps.Equal(before, table) {
			t.Errorf("%s: the old table has changed: %v", name, table)
		}
	}
}

func TestUnknownNodes(t *testing.T) {
	table := noderange.Table{"a": "10.0.0.0/24"}
	down := errors.New("down")
	if _, next, err := spec().Take(
		table,
		"b",
		func() (map[string]bool, error) { return nil, down },
		noon,
	); !errors.Is(err, down) ||
		next["a"] != table["a"] {
		t.Errorf("%v, %v", next, err)
	}
}

func TestBounds(t *testing.T) {
	for part, want := range map[string]string{
		"10.0.0.0/26": "10.0.0.1-10.0.0.63", "10.0.0.64/26": "10.0.0.64-10.0.0.127", "10.0.0.192/26": "10.0.0.192-10.0.0.254", "10.0.0.0/24": "10.0.0.1-10.0.0.254",
	} {
		if a, b := spec().Bounds(netip.MustParsePrefix(part)); a.String()+"-"+b.String() != want {
			t.Errorf("%s: %s-%s, want %s", part, a, b, want)
		}
	}
}
