package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// A checksum is remembered, but only while the file is the same: neither an old time nor an old size hides a change.
func TestSums(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fabric")
	put := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sums := &Sums{}
	sum := func() string {
		t.Helper()
		s, err := sums.Of(file)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	put(file, "one")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	one := sum()
	if _, ok := sums.known[file]; ok {
		t.Error("the checksum of a file that has just changed is remembered")
	}
	sandbox.Until(t, "the checksum is remembered", func() bool {
		sum()
		_, ok := sums.known[file]
		return ok
	})
	if s := sum(); s != one {
		t.Errorf("%s, was %s", s, one)
	}
	put(file, "two")
	if err := os.Chtimes(file, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if s := sum(); s == one {
		t.Error("a write with the modification time set back was not noticed")
	}
	put(file+".new", "one")
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if s := sum(); s != one {
		t.Errorf("%s, want %s", s, one)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := sums.Of(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
