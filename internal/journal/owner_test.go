package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const deviceKey = "pci/0000:3b:00.0"

func saved(t *testing.T, s Store, k Key) Key {
	t.Helper()
	if err := s.Save(entry(k)); err != nil {
		t.Fatal(err)
	}
	return k
}

func wantOwner(t *testing.T, s Store, deviceKey string, want Key, owned bool) {
	t.Helper()
	got, ok, err := s.Owner(deviceKey)
	if err != nil || ok != owned || owned && got != want {
		t.Errorf("owner of %s: %v, %v, %v, want %v, %v", deviceKey, got, ok, err, want, owned)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestClaim(t *testing.T) {
	s := Store{t.TempDir()}
	a, b := saved(t, s, Key{"c1", "net1"}), saved(t, s, Key{"c2", "net1"})
	wantOwner(t, s, deviceKey, Key{}, false)
	must(t, s.SetOwner(deviceKey, a))
	wantOwner(t, s, deviceKey, a, true)
	wantOwner(t, s, "pci/0000:3b:00.1", Key{}, false)
	must(t, s.ClearOwner(deviceKey, b)) // not its owner
	wantOwner(t, s, deviceKey, a, true)
	must(t, s.SetOwner(deviceKey, b)) // over a's: the caller has seen that a's pod is dead
	wantOwner(t, s, deviceKey, b, true)
	must(t, s.ClearOwner(deviceKey, a))
	wantOwner(t, s, deviceKey, b, true)
	must(t, s.ClearOwner(deviceKey, b))
	must(t, s.ClearOwner(deviceKey, b))
	wantOwner(t, s, deviceKey, Key{}, false)
	if diff := cmp.Diff([]string{"attachments/c1@net1", "attachments/c2@net1"}, files(t, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "claims")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What kills leave between the writes of an entry and of its owner link is no ownership, and in no call's way.
func TestClaimAfterKill(t *testing.T) {
	t.Run("entry gone", func(t *testing.T) {
		s := Store{t.TempDir()}
		k := saved(t, s, Key{"c1", "net1"})
		must(t, s.SetOwner(deviceKey, k))
		must(t, s.AddChild(deviceKey, k))
		must(t, s.Remove(k))
		wantOwner(t, s, deviceKey, Key{}, false)
		if c, err := s.Children(deviceKey); len(c) != 0 || err != nil {
			t.Errorf("children: %v, %v", c, err)
		}
		other := saved(t, s, Key{"c2", "net1"})
		must(t, s.SetOwner(deviceKey, other))
		wantOwner(t, s, deviceKey, other, true)
	})
	t.Run("temporary left", func(t *testing.T) {
		s := Store{t.TempDir()}
		k := saved(t, s, Key{"c1", "net1"})
		must(t, os.MkdirAll(ownerDir(s.Dir, deviceKey), 0o700))
		must(t, os.Symlink("nowhere", filepath.Join(ownerDir(s.Dir, deviceKey), ".owner")))
		wantOwner(t, s, deviceKey, Key{}, false)
		must(t, s.SetOwner(deviceKey, k))
		wantOwner(t, s, deviceKey, k, true)
	})
	t.Run("no link at all", func(t *testing.T) {
		s := Store{t.TempDir()}
		k := saved(t, s, Key{"c1", "net1"})
		write(t, filepath.Join(ownerDir(s.Dir, deviceKey), "owner"), "c1@net1")
		wantOwner(t, s, deviceKey, Key{}, false)
		must(t, s.SetOwner(deviceKey, k))
		wantOwner(t, s, deviceKey, k, true)
	})
	t.Run("points to nonsense", func(t *testing.T) {
		s := Store{t.TempDir()}
		must(t, os.MkdirAll(ownerDir(s.Dir, deviceKey), 0o700))
		must(t, os.Symlink("/etc", filepath.Join(ownerDir(s.Dir, deviceKey), "owner")))
		wantOwner(t, s, deviceKey, Key{}, false)
	})
}

func TestChildren(t *testing.T) {
	s := Store{t.TempDir()}
	a, b := saved(t, s, Key{"c1", "net1"}), saved(t, s, Key{"c2", "net1"})
	for _, k := range []Key{a, b, a} {
		must(t, s.AddChild(deviceKey, k))
	}
	got, err := s.Children(deviceKey)
	must(t, err)
	if diff := cmp.Diff([]Key{a, b}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wantOwner(t, s, deviceKey, Key{}, false) // a parent with children has no owner
	must(t, s.RemoveChild(deviceKey, a))
	must(t, s.RemoveChild(deviceKey, a))
	must(t, s.RemoveChild(deviceKey, b))
	if got, err := s.Children(deviceKey); len(got) != 0 || err != nil {
		t.Errorf("left: %v, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "claims")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestDevicesOf(t *testing.T) {
	s := Store{t.TempDir()}
	k, other := saved(t, s, Key{"c1", "net1"}), saved(t, s, Key{"c2", "net1"})
	if got, on, err := s.DevicesOf(k); len(got)+len(on) != 0 || err != nil {
		t.Errorf("before: %v, %v, %v", got, on, err)
	}
	for _, c := range []string{deviceKey, "netdev/a+b", "auxiliary/mlx5_core.sf.4"} {
		must(t, s.SetOwner(c, k))
	}
	must(t, s.SetOwner("virtio/virtio0", other))
	must(t, s.AddChild("pci/0000:3b:00.1", k))
	must(t, s.Remove(k)) // for an entry that can't be read any more
	got, on, err := s.DevicesOf(k)
	must(t, err)
	if diff := cmp.Diff([]string{"pci/0000:3b:00.1"}, on); diff != "" {
		t.Errorf("children: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"auxiliary/mlx5_core.sf.4", "netdev/a+b", deviceKey}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// One gives a device up while another takes it: the directory between them is removed and made all the time.
func TestClaimWhileDisclaimed(t *testing.T) {
	s := Store{t.TempDir()}
	var wg sync.WaitGroup
	for i := range 4 {
		k := saved(t, s, Key{fmt.Sprintf("c%d", i), "net1"})
		wg.Go(func() {
			for range 200 {
				if err := s.AddChild(deviceKey, k); err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if err := s.RemoveChild(deviceKey, k); err != nil {
					t.Errorf("give up: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Who owns a device is looked up by the device: other attachments are not read, however many there are, or how damaged.
func TestOwnerReadsNoOtherEntry(t *testing.T) {
	s := Store{t.TempDir()}
	k := saved(t, s, Key{"c1", "net1"})
	for i := range 512 {
		write(t, filepath.Join(s.Dir, "attachments", fmt.Sprintf("x%d@net1", i)), "damaged")
		must(t, s.SetOwner(fmt.Sprintf("pci/0000:00:%02x.%d", i/8, i%8), Key{fmt.Sprintf("x%d", i), "net1"}))
	}
	must(t, s.SetOwner(deviceKey, k))
	wantOwner(t, s, deviceKey, k, true)
	if _, err := s.Load(k); err != nil {
		t.Error(err)
	}
	must(t, s.ClearOwner(deviceKey, k))
}

// A call that was killed while it wrote an owner or a child has left the link under a temporary name: giving the device
// up removes it, and leaves that of another attachment, whose call may be at it.
func TestLinksLeftByKill(t *testing.T) {
	k, other := Key{"c", "net1"}, Key{"d", "net1"}
	for name, f := range map[string]struct {
		made string // by the kill, without its dot
		give func(Store, Key) error
	}{
		"owner": {"owner", func(s Store, k Key) error { return s.ClearOwner(deviceKey, k) }},
		"child": {"children/c@net1", func(s Store, k Key) error { return s.RemoveChild(deviceKey, k) }},
	} {
		s := Store{Dir: t.TempDir()}
		dir := filepath.Join(s.Dir, "claims", "pci+0000:3b:00.0")
		tmp := filepath.Join(dir, filepath.Dir(f.made), "."+filepath.Base(f.made))
		must(t, os.MkdirAll(filepath.Dir(tmp), 0o700))
		must(t, os.Symlink("../../attachments/c@net1", tmp))
		must(t, f.give(s, other))
		if _, err := os.Lstat(tmp); err != nil {
			t.Errorf("%s: another call's link is gone: %v", name, err)
		}
		must(t, f.give(s, k))
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("%s: %s is left", name, dir)
		}
	}
}
