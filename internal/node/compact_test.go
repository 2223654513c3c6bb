package node_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

func compact(t *testing.T, n *node.Node) *node.Node {
	t.Helper()
	b, err := n.Compact(node.MaxCompact)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > node.MaxCompact {
		t.Errorf("%d bytes", len(b))
	}
	out := &node.Node{}
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What is made of a compact picture is what is made of the whole one, and it is less than three quarters of it.
func TestCompact(t *testing.T) {
	for _, m := range machines.All() {
		n, err := node.Open(m.FS, journal.Store{})
		if err != nil {
			t.Fatal(err)
		}
		before, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		c := compact(t, n)
		want, got := fmt.Sprintf("%+v", n.Fabrics()), fmt.Sprintf("%+v", c.Fabrics())
		if got != want {
			t.Errorf("%s: fabrics\n%s\nwant\n%s", m.Name, got, want)
		}
		after, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if len(n.HCAs) > 0 && len(after)*4 > len(before)*3 {
			t.Errorf("%s: %d bytes of %d", m.Name, len(after), len(before))
		}
		if now, _ := json.Marshal(n); string(now) != string(before) {
			t.Errorf("%s: the picture itself is another now", m.Name)
		}
	}
}

// As much as a node can have, and more than that, fits.
func TestCompactBound(t *testing.T) {
	m, err := node.Open(machines.H20().FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	grow := func(n int) *node.Node {
		big := *m
		for i := range n {
			h := m.HCAs[0]
			h.Name, h.Kind, h.Parent = fmt.Sprint("mlx5_", i+100), "VF", h.PCI
			h.PCI = fmt.Sprintf("0000:%02x:%02x.0", i/256, i%256)
			big.HCAs = append(big.HCAs, h)
			d := m.Netdevs[len(m.Netdevs)-1]
			d.Name = fmt.Sprint("ib", i)
			big.Netdevs = append(big.Netdevs, d)
			big.Problems = append(big.Problems, strings.Repeat("x", 10000))
		}
		return &big
	}
	if c := compact(t, grow(256)); len(c.HCAs) != len(m.HCAs)+256 {
		t.Errorf("%d HCAs of a node with 256 VFs", len(c.HCAs))
	} else if last := c.Problems[len(c.Problems)-1]; last != "and 224 more" {
		t.Errorf("%q", last)
	}
	c := compact(t, grow(4096))
	if last := c.Problems[len(c.Problems)-1]; len(c.HCAs) < 100 || len(c.GPUs) != len(m.GPUs) ||
		!strings.Contains(last, fmt.Sprintf("%d of %d RDMA devices", len(c.HCAs), len(m.HCAs)+4096)) {
		t.Errorf("%d HCAs, %d GPUs, %q", len(c.HCAs), len(c.GPUs), last)
	}
	hostile := *m
	hostile.HCAs[0].Firmware = strings.Repeat("x", 2*node.MaxCompact)
	if c := compact(t, &hostile); len(c.HCAs) != 0 || len(c.Problems) != 1 {
		t.Errorf("%d HCAs, %q", len(c.HCAs), c.Problems)
	}
	hostile.Name = hostile.HCAs[0].Firmware
	if b, err := hostile.Compact(node.MaxCompact); err == nil {
		t.Errorf("%d bytes", len(b))
	}
	for i := range m.Netdevs {
		m.Netdevs[i].AltNames = []string{"\x00\xff"}
	}
	compact(t, m)
}
