package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const claim = "pci/0000:3b:00.0"

func saved(t *testing.T, s Store, k Key) Key {
	t.Helper()
	if err := s.Save(entry(k)); err != nil {
		t.Fatal(err)
	}
	return k
}

func wantOwner(t *testing.T, s Store, claim string, want Key, owned bool) {
	t.Helper()
	got, ok, err := s.Owner(claim)
	if err != nil || ok != owned || owned && got != want {
		t.Errorf("owner of %s: %v, %v, %v, want %v, %v", claim, got, ok, err, want, owned)
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
	wantOwner(t, s, claim, Key{}, false)
	must(t, s.Claim(claim, a))
	wantOwner(t, s, claim, a, true)
	wantOwner(t, s, "pci/0000:3b:00.1", Key{}, false)
	must(t, s.Disclaim(claim, b)) // not its owner
	wantOwner(t, s, claim, a, true)
	must(t, s.Claim(claim, b)) // over a's: the caller has seen that a's pod is dead
	wantOwner(t, s, claim, b, true)
	must(t, s.Disclaim(claim, a))
	wantOwner(t, s, claim, b, true)
	must(t, s.Disclaim(claim, b))
	must(t, s.Disclaim(claim, b))
	wantOwner(t, s, claim, Key{}, false)
	if diff := cmp.Diff([]string{"attachments/c1@net1", "attachments/c2@net1"}, files(t, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "claims")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What kills leave between the writes of an entry and of its claim is nobody's claim, and in nobody's way.
func TestClaimAfterKill(t *testing.T) {
	t.Run("entry gone", func(t *testing.T) {
		s := Store{t.TempDir()}
		k := saved(t, s, Key{"c1", "net1"})
		must(t, s.Claim(claim, k))
		must(t, s.AddChild(claim, k))
		must(t, s.Remove(k))
		wantOwner(t, s, claim, Key{}, false)
		if c, err := s.Children(claim); len(c) != 0 || err != nil {
			t.Errorf("children: %v, %v", c, err)
		}
		other := saved(t, s, Key{"c2", "net1"})
		must(t, s.Claim(claim, other))
		wantOwner(t, s, claim, other, true)
	})
	t.Run("temporary left", func(t *testing.T) {
		s := Store{t.TempDir()}
		k := saved(t, s, Key{"c1", "net1"})
		must(t, os.MkdirAll(claimDir(s.Dir, claim), 0o700))
		must(t, os.Symlink("nowhere", filepath.Join(claimDir(s.Dir, claim), ".owner")))
		wantOwner(t, s, claim, Key{}, false)
		must(t, s.Claim(claim, k))
		wantOwner(t, s, claim, k, true)
	})
	t.Run("no link at all", func(t *testing.T) {
		s := Store{t.TempDir()}
		k := saved(t, s, Key{"c1", "net1"})
		write(t, filepath.Join(claimDir(s.Dir, claim), "owner"), "c1@net1")
		wantOwner(t, s, claim, Key{}, false)
		must(t, s.Claim(claim, k))
		wantOwner(t, s, claim, k, true)
	})
	t.Run("points to nonsense", func(t *testing.T) {
		s := Store{t.TempDir()}
		must(t, os.MkdirAll(claimDir(s.Dir, claim), 0o700))
		must(t, os.Symlink("/etc", filepath.Join(claimDir(s.Dir, claim), "owner")))
		wantOwner(t, s, claim, Key{}, false)
	})
}

func TestChildren(t *testing.T) {
	s := Store{t.TempDir()}
	a, b := saved(t, s, Key{"c1", "net1"}), saved(t, s, Key{"c2", "net1"})
	for _, k := range []Key{a, b, a} {
		must(t, s.AddChild(claim, k))
	}
	got, err := s.Children(claim)
	must(t, err)
	if diff := cmp.Diff([]Key{a, b}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wantOwner(t, s, claim, Key{}, false) // a parent with children is owned by nobody
	must(t, s.RemoveChild(claim, a))
	must(t, s.RemoveChild(claim, a))
	must(t, s.RemoveChild(claim, b))
	if got, err := s.Children(claim); len(got) != 0 || err != nil {
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
	for _, c := range []string{claim, "netdev/a+b", "auxiliary/mlx5_core.sf.4"} {
		must(t, s.Claim(c, k))
	}
	must(t, s.Claim("virtio/virtio0", other))
	must(t, s.AddChild("pci/0000:3b:00.1", k))
	must(t, s.Remove(k)) // for an entry that can't be read any more
	got, on, err := s.DevicesOf(k)
	must(t, err)
	if diff := cmp.Diff([]string{"pci/0000:3b:00.1"}, on); diff != "" {
		t.Errorf("children: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"auxiliary/mlx5_core.sf.4", "netdev/a+b", claim}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// One gives a device up while another claims it: the directory between them is removed and made all the time.
func TestClaimWhileDisclaimed(t *testing.T) {
	s := Store{t.TempDir()}
	var wg sync.WaitGroup
	for i := range 4 {
		k := saved(t, s, Key{fmt.Sprintf("c%d", i), "net1"})
		wg.Go(func() {
			for range 200 {
				if err := s.AddChild(claim, k); err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if err := s.RemoveChild(claim, k); err != nil {
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
		must(t, s.Claim(fmt.Sprintf("pci/0000:00:%02x.%d", i/8, i%8), Key{fmt.Sprintf("x%d", i), "net1"}))
	}
	must(t, s.Claim(claim, k))
	wantOwner(t, s, claim, k, true)
	if _, err := s.Load(k); err != nil {
		t.Error(err)
	}
	must(t, s.Disclaim(claim, k))
}
