package netns_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// Each comes to what a mount holds and to what a process is in, once, and stops when it is told to.
func TestEach(t *testing.T) {
	a := sandbox.New(t)
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	id := a.Open(t).ID
	seen := map[netns.ID]int{}
	if err := netns.Each("/proc", func(n *netns.NS) bool { seen[n.ID]++; return false }); err != nil {
		t.Fatal(err)
	}
	if seen[id] != 1 || seen[here.ID] != 1 {
		t.Errorf("seen %v, want %v and %v once each", seen, id, here.ID)
	}
	calls := 0
	if err := netns.Each("/proc", func(*netns.NS) bool { calls++; return true }); err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := netns.Each("/proc/not-there", func(*netns.NS) bool { return false }); err == nil {
		t.Error("no error without /proc")
	}
}
