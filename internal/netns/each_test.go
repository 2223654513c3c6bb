package netns_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

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

// A node on which others have left namespaces by the thousand is looked at all the same, or it is said that there was
// no time.
func TestEachOfMany(t *testing.T) {
	const many = 1100
	dir := t.TempDir()
	t.Cleanup(func() {
		for i := range many {
			_ = unix.Unmount(filepath.Join(dir, strconv.Itoa(i)), unix.MNT_DETACH)
		}
	})
	for i := range many {
		n, err := netns.New()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, strconv.Itoa(i))
		err = errors.Join(os.WriteFile(path, nil, 0o600),
			unix.Mount("/proc/self/fd/"+strconv.Itoa(n.FD()), path, "", unix.MS_BIND, ""), n.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	err := netns.Each("/proc", func(*netns.NS) bool { seen++; return false })
	if err != nil && !errors.Is(err, netns.ErrTooMany) || err == nil && seen < many {
		t.Errorf("%d seen, %v", seen, err)
	}
}
