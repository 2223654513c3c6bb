package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files lists everything in the store.
func files(t *testing.T, s Store) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, s.Dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStore(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "not", "there", "yet")}
	k := Key{"c1", "net1"}
	if _, err := s.Load(k); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load: %v", err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("list: %v, %v", list, err)
	}
	if err := s.Remove(k); err != nil {
		t.Errorf("remove: %v", err)
	}
	want := entry(k)
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want.Tries = 3
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Load(k); err != nil || got.Tries != 3 {
		t.Errorf("after the second save: %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"attachments/c1@net1"}, files(t, s)); diff != "" {
		t.Errorf("files: -want +got:\n%s", diff)
	}
	st, err := os.Stat(filepath.Join(s.Dir, "attachments", "c1@net1"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: it holds the configuration", st.Mode(), err)
	}
	if err := s.Remove(k); err != nil {
		t.Error(err)
	}
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// What a kill leaves: a temporary file, whole or in part, beside the entry or without one.
func TestTemporaryLeft(t *testing.T) {
	s := Store{t.TempDir()}
	k := Key{"c1", "net1"}
	write(t, filepath.Join(s.Dir, "attachments", ".c1@net1"), `{"version":1,"containerID":"c1"`)
	if _, err := s.Load(k); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load: %v", err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("list: %v, %v", list, err)
	}
	dead := Key{"c2", "net1"} // whose ADD was killed here, and is never repeated
	write(t, filepath.Join(s.Dir, "attachments", ".c2@net1"), `{`)
	if err := s.Remove(dead); err != nil {
		t.Error(err)
	}
	if err := s.Save(entry(k)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"attachments/c1@net1"}, files(t, s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := s.Load(k); err != nil {
		t.Error(err)
	}
}

// One damaged entry hides none of the others, and is reported.
func TestCorrupt(t *testing.T) {
	s := Store{t.TempDir()}
	for _, name := range []string{"net1", "net2"} {
		if err := s.Save(entry(Key{"c1", name})); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(s.Dir, "attachments")
	write(t, filepath.Join(dir, "c2@net1"), `{"version":1,`)
	write(t, filepath.Join(dir, "c3@net1"), ``)
	b, err := entry(Key{"c1", "net1"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "c4@net1"), string(b)) // speaks of another attachment
	list, err := s.List()
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("list: %v", err)
	}
	for _, name := range []string{"c2@net1", "c3@net1", "c4@net1"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
	if len(list) != 2 {
		t.Errorf("%d entries, want 2", len(list))
	}
	for _, id := range []string{"c2", "c3", "c4"} {
		if e, err := s.Load(Key{id, "net1"}); !errors.Is(err, ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("load %s: %v, %v", id, e, err)
		}
		if err := s.Save(entry(Key{id, "net1"})); err != nil { // it can be replaced
			t.Error(err)
		}
	}
	if list, err := s.List(); len(list) != 5 || err != nil {
		t.Errorf("after replacing: %d entries, %v", len(list), err)
	}
}

func TestWritable(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "state")}
	if err := s.Writable(); err != nil {
		t.Error(err)
	}
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if err := (Store{file}).Writable(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as the directory: %v", err)
	}
}

// A save that fails changes nothing and leaves nothing.
func TestSaveFails(t *testing.T) {
	s := Store{t.TempDir()}
	k := Key{"c1", "net1"}
	if err := os.MkdirAll(filepath.Join(s.Dir, "attachments", "c1@net1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(entry(k)); err == nil || !strings.Contains(err.Error(), "c1/net1") {
		t.Errorf("got %v", err)
	}
	if left := files(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
