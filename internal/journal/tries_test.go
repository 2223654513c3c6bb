package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// small mounts a tmpfs of a few pages.
func small(t *testing.T) Store {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mount a tmpfs (as root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return Store{dir}
}

// fill leaves no byte.
func fill(t *testing.T, s Store) {
	t.Helper()
	f, err := os.Create(filepath.Join(s.Dir, "filler"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, block))
	}
	f.Close()
}

// Tries are counted where nothing can be written any more, whatever the length of the entry. The count survives a Save.
func TestTryWithoutSpace(t *testing.T) {
	s := small(t)
	for extra := range 40 {
		k := Key{fmt.Sprintf("c%d", extra), "net1"}
		e := entry(k)
		e.Tries = 1
		b, err := e.Encode()
		must(t, err)
		e.Path = strings.Repeat("x", 2*block-len(b)-len(`"path":"",`)-20+extra) // its end is about that of a page
		must(t, s.Save(e))
		if err := os.Remove(filepath.Join(s.Dir, "filler")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		fill(t, s)
		if err := s.Save(e); err == nil {
			t.Fatal("there is space left")
		}
		if err := s.Writable(); err == nil {
			t.Error("a full directory is writable")
		}
		for range 3 {
			if err := s.Try(e); err != nil {
				t.Fatalf("%d bytes more: %v", extra, err)
			}
		}
		if got, err := s.Load(k); err != nil || got.Tries != 4 || e.Tries != 4 {
			t.Fatalf("%+v, %v", got, err)
		}
		must(t, os.Remove(filepath.Join(s.Dir, "filler")))
		must(t, s.Save(e))
		if got, err := s.Load(k); err != nil || got.Tries != 4 {
			t.Fatalf("after a save: %+v, %v", got, err)
		}
		must(t, s.Remove(k))
	}
	if err := s.Try(entry(Key{"none", "net1"})); err == nil {
		t.Error("a try of nothing was counted")
	}
}

// Calls that ask at once do not disturb each other.
func TestWritableInParallel(t *testing.T) {
	s := Store{t.TempDir()}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				if err := s.Writable(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
