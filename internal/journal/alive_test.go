package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestAlive(t *testing.T) {
	own, err := netns.IDOf("/proc/thread-self/ns/net")
	must(t, err)
	boot := BootID("/proc")
	if boot == "" {
		t.Fatal("no boot ID")
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	const here, gone = "/proc/self/ns/net", "/run/netns/gone-since"
	successor := own
	successor.Cookie++ // the path and the inode are reused, the cookie is not
	ready := func(id string, is bool) Liveness { return Liveness{Ready: map[string]bool{id: is}} }
	unused := netns.ID{Dev: own.Dev, Ino: 1, Cookie: 1}
	for name, tt := range map[string]struct {
		path string
		id   netns.ID
		boot string
		w    Liveness
		want bool
		err  bool
	}{
		"its path":                          {here, own, boot, Liveness{}, true, false},
		"another path to it":                {gone, own, boot, Liveness{}, true, false},
		"path taken by another":             {here, unused, boot, Liveness{}, false, false},
		"inode reused":                      {here, successor, boot, Liveness{}, false, false},
		"all gone":                          {gone, unused, boot, Liveness{}, false, false},
		"mount point left":                  {file, unused, boot, Liveness{}, false, false},
		"path that can't be looked at":      {file + "/x", unused, boot, Liveness{}, false, true},
		"processes that can't be looked at": {gone, unused, boot, Liveness{Proc: t.TempDir()}, false, true},
		"before the boot":                   {here, own, "another", Liveness{}, false, false},
		"boot not recorded":                 {here, own, "", Liveness{}, true, false},
		"boot not recorded, gone":           {gone, unused, "", Liveness{}, false, false},
		"boot not readable":                 {here, own, "another", Liveness{Proc: t.TempDir()}, true, false},
		"ready":                             {gone, unused, boot, ready("c1", true), true, false},
		"not ready, still there":            {here, own, boot, ready("c1", false), true, false},
		"not ready, gone":                   {gone, unused, boot, ready("c1", false), false, false},
		"another is ready":                  {gone, unused, boot, ready("c2", true), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := Entry{Key: Key{"c1", "net1"}, NetnsPath: tt.path, Netns: tt.id, BootID: tt.boot}
			if got, err := e.Alive(tt.w); got != tt.want || (err != nil) != tt.err {
				t.Errorf("%v, %v, want %v and error %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// A mount of ours keeps no pod alive.
func TestAliveWhileHeld(t *testing.T) {
	sandbox.Root(t)
	ns, err := netns.New()
	must(t, err)
	path := fmt.Sprintf("/proc/self/fd/%d", ns.FD())
	s := Holds{Store{Dir: t.TempDir()}}
	held := s.Path(ns.ID)
	must(t, s.Hold(path, ns.ID))
	must(t, s.Hold(path, ns.ID))
	e := Entry{
		Key: Key{"c1", "net1"}, NetnsPath: "/run/netns/gone-since", Netns: ns.ID, BootID: BootID("/proc"), Held: true,
		Kind: KindDevice, DeviceKey: "netdev/v0",
	}
	must(t, s.Save(&e))
	must(t, ns.Close())
	if alive, err := e.Alive(Liveness{}); alive || err != nil {
		t.Errorf("held by a mount alone: %v, %v", alive, err)
	}
	if id, err := netns.IDOf(held); err != nil || id != e.Netns {
		t.Errorf("held: %v, %v", id, err)
	}
	must(t, s.Release(&e)) // the entry has it
	must(t, s.ReleaseAll())
	if !s.Any() {
		t.Error("released while an entry has it")
	}
	must(t, s.Remove(e.Key))
	must(t, s.Release(&e))
	if _, err := netns.IDOf(held); !errors.Is(err, fs.ErrNotExist) || s.Any() {
		t.Errorf("released: %v", err)
	}
	must(t, s.ReleaseAll())
}
