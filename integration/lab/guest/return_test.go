//go:build labguest

package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// returned are the modes whose attachments runtimes, reboots and pods maltreat here.
var returned = []mode{ipoibDevice, childExclusive, plainDevice, roceDevice}

// eachReturned runs f as a subtest for each mode.
func eachReturned(t *testing.T, f func(t *testing.T, r *rig)) {
	for _, m := range returned {
		t.Run(m.name, func(t *testing.T) { f(t, newRig(t, m)) })
	}
}

// CNI_NETNS may be empty at DEL, whether the namespace lives or not (CNI spec, DEL).
func TestReturnWithoutNetns(t *testing.T) {
	eachReturned(t, func(t *testing.T, r *rig) {
		for _, gone := range []bool{false, true} {
			s := r.sandbox(t)
			s.call("ADD").Must(t)
			if gone {
				s.Delete(t)
			}
			del := s.call("DEL")
			del.Netns = ""
			del.Must(t)
			r.back(t, s, gone)
			del.Must(t)
			r.back(t, s, gone)
		}
	})
}

// A process outlives its pod: no path names the namespace any more, and the device is in it.
func TestReturnFromUnlinkedNetns(t *testing.T) {
	eachReturned(t, func(t *testing.T, r *rig) {
		s := r.sandbox(t)
		s.call("ADD").Must(t)
		process := s.Spawn(t)
		s.Delete(t)
		s.call("DEL").Must(t)
		r.back(t, s, true)
		process.Kill()
		r.back(t, s, true)
	})
}

// A pod dies without DEL, the next one gets the device, then DEL comes for the first: the second keeps what it has.
func TestReturnLate(t *testing.T) {
	eachReturned(t, func(t *testing.T, r *rig) {
		first := r.sandbox(t)
		first.call("ADD").Must(t)
		first.Delete(t)
		second := r.sandbox(t)
		second.call("ADD").Must(t)
		has := second.settled(t)
		for range 2 {
			first.call("DEL").Must(t)
			if diff := second.difference(has); diff != "" {
				t.Errorf("a late DEL of another pod changed it:\n%s", diff)
			}
		}
		second.call("DEL").Must(t)
		r.back(t, second, false)
	})
}

// The path of the first pod's namespace is the second pod's now. DEL of the first names it, twice: with its journal
// entry, and without.
func TestReturnPathReused(t *testing.T) {
	eachReturned(t, func(t *testing.T, r *rig) {
		first := r.sandbox(t)
		first.call("ADD").Must(t)
		first.Delete(t)
		first.Recreate(t)
		second := &sandbox{Pod: first.Pod, conf: first.conf, id: "second"}
		second.before = second.state(t)
		second.call("ADD").Must(t)
		has := second.settled(t)
		for range 2 {
			first.call("DEL").Must(t)
			if diff := second.difference(has); diff != "" {
				t.Errorf("a late DEL of another pod changed it:\n%s", diff)
			}
		}
		second.call("DEL").Must(t)
		r.back(t, second, false)
	})
}

// The pod that has the path now has an interface of this name that is not ours.
func TestReturnPathReusedByStranger(t *testing.T) {
	Modprobe(t, "dummy")
	eachReturned(t, func(t *testing.T, r *rig) {
		s := r.sandbox(t)
		s.call("ADD").Must(t)
		s.Delete(t)
		s.Recreate(t)
		if _, err := s.Command("ip", "link", "add", "net1", "type", "dummy"); err != nil {
			t.Fatal(err)
		}
		s.before = s.state(t)
		s.call("DEL").Must(t)
		r.back(t, s, false)
		s.call("DEL").Must(t)
		r.back(t, s, false)
	})
}

// After a reboot the device is on the host already, perhaps in use by a program: only the address is still held.
func TestReturnAfterReboot(t *testing.T) {
	eachReturned(t, func(t *testing.T, r *rig) {
		s := r.sandbox(t)
		s.call("ADD").Must(t)
		entry := s.entry(t)
		s.call("DEL").Must(t)
		r.back(t, s, false)

		// The boot ends the host's names and settings, and brings a device back to the state it has now.
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			t.Fatal(err)
		}
		entry.data = bytes.Replace(entry.data, bytes.TrimSpace(boot), []byte("00000000-0000-0000-0000-000000000000"), 1)
		entry.write(t)
		shell(t, "ip link add booted type dummy")
		defer shell(t, "ip link del booted")
		now := Snapshot(t)
		delete(now.Files, entry.path)
		s.call("DEL").Must(t)
		Same(t, now)
	})
}

// entry is the journal's file of an attachment.
type entry struct {
	path string
	data []byte
}

func (s *sandbox) entry(t testing.TB) entry {
	t.Helper()
	e := entry{path: filepath.Join("/run/fabric-cni/attachments", s.id+"@net1")}
	var err error
	if e.data, err = os.ReadFile(e.path); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e entry) write(t testing.TB) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(e.path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(e.path, e.data, 0o600); err != nil {
		t.Fatal(err)
	}
}
