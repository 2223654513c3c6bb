package ethtool_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/ethtool"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// A veth has statistics, among them the index of its peer; loopback has none, and what is not there is missed.
func TestStats(t *testing.T) {
	n := sandbox.New(t)
	n.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	peer := n.Link(t)
	p, err := peer.ByName("v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Open(t).Do(func() error {
		stats, err := ethtool.Stats("v0")
		if err != nil || stats["peer_ifindex"] != uint64(p.Index) {
			t.Errorf("%v, %v; want peer_ifindex %d", stats, err, p.Index)
		}
		if stats, err := ethtool.Stats("lo"); stats != nil || err != nil {
			t.Errorf("lo: %v, %v", stats, err)
		}
		if _, err := ethtool.Stats("v9"); err == nil {
			t.Error("v9 is not there")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
