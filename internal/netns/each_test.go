package netns_test

import (
	"errors"
	"fmt"
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

// A namespace that no process is in and no mount names, but something that a process has: a thread of its own, an open
// file, a socket made in it, a mount in a mount namespace of its own.
func TestSearch(t *testing.T) {
	for name, hold := range map[string]func(*testing.T, *netns.NS) (release func()){
		"a file":                   holdFile,
		"a socket":                 holdSocket,
		"a thread":                 holdThread,
		"another mount namespace":  holdMount,
		"nothing: it is not found": nil,
	} {
		t.Run(name, func(t *testing.T) {
			sandbox.Run(t, "ip", "netns", "add", "held") // sandbox.New keeps it open
			ns, err := netns.Open("/run/netns/held")
			if err != nil {
				t.Fatal(err)
			}
			id := ns.ID
			if hold != nil {
				defer hold(t, ns)()
			}
			sandbox.Run(t, "ip", "netns", "delete", "held")
			if err := ns.Close(); err != nil {
				t.Fatal(err)
			}
			found := 0
			if err := netns.Search("/proc", func(n *netns.NS) bool {
				if n.ID == id {
					found++
				}
				return false
			}); err != nil {
				t.Error(err)
			}
			if want := map[bool]int{true: 1}[hold != nil]; found != want {
				t.Errorf("found %d times, want %d", found, want)
			}
		})
	}
}

func holdFile(t *testing.T, ns *netns.NS) func() {
	fd, err := unix.Dup(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	return func() { unix.Close(fd) }
}

func holdSocket(t *testing.T, ns *netns.NS) func() {
	var fd int
	if err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return func() { unix.Close(fd) }
}

func holdThread(_ *testing.T, ns *netns.NS) func() {
	in, out := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ns.Do(func() error { close(in); <-out; return nil })
	}()
	<-in
	return func() { close(out); <-done }
}

func holdMount(t *testing.T, ns *netns.NS) func() {
	file := filepath.Join(t.TempDir(), "ns")
	_, end := sandbox.Hold(t, fmt.Sprintf("touch %[1]s; mount --bind /proc/%[2]d/fd/%[3]d %[1]s", file, os.Getpid(),
		ns.FD()), "unshare", "--mount", "--propagation", "private")
	return end
}
