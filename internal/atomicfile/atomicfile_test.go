package atomicfile_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// listing is what a directory holds, with modes.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, st.Mode().String()+" "+e.Name())
	}
	return out
}

func want(t *testing.T, dir, content string, files ...string) {
	t.Helper()
	if got := listing(t, dir); !slices.Equal(got, files) {
		t.Errorf("files %v, want %v", got, files)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != content {
		t.Errorf("content %q, %v, want %q", b, err, content)
	}
}

// Each way to write ends with the content and the permissions that were asked for, and nothing beside them.
func TestWrite(t *testing.T) {
	for name, f := range map[string]atomicfile.File{
		"fixed":          {},
		"named":          {Temp: "file.conf.tmp"},
		"unique":         {Temp: ".mine-*"},
		"file flushed":   {Sync: atomicfile.SyncFile},
		"all flushed":    {Sync: atomicfile.SyncDir, Temp: ".mine-*", KeepLabel: true},
		"label of none":  {KeepLabel: true},
		"directory made": {DirMode: 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			old := unix.Umask(0o077)
			defer unix.Umask(old)
			dir := t.TempDir()
			if f.DirMode != 0 {
				dir = filepath.Join(dir, "not", "there")
			}
			f.Path, f.Mode = filepath.Join(dir, "file"), 0o644
			for _, content := range []string{"a longer one", "short", ""} {
				if err := f.Write([]byte(content)); err != nil {
					t.Fatal(err)
				}
				want(t, dir, content, "-rw-r--r-- file")
			}
		})
	}
}

// What a killed process left is overwritten; its permissions are not kept, and a link in its place is not followed.
func TestTemporaryLeft(t *testing.T) {
	dir := t.TempDir()
	left, f := filepath.Join(dir, ".file"), atomicfile.File{Path: filepath.Join(dir, "file"), Mode: 0o600}
	if err := os.WriteFile(left, []byte("half of something longer"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := f.Write([]byte("whole")); err != nil {
		t.Fatal(err)
	}
	want(t, dir, "whole", "-rw------- file")
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(other, left); err != nil {
		t.Fatal(err)
	}
	if err := f.Write([]byte("new")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a link: %v", err)
	}
	if _, err := os.Stat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}

// A failure leaves the old file and no temporary one.
func TestFailure(t *testing.T) {
	dir := t.TempDir()
	f := atomicfile.File{Path: filepath.Join(dir, "file"), Mode: 0o600}
	if err := f.Write([]byte("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, temp := range []string{"", ".mine-*"} {
		f.Temp = temp
		half := io.MultiReader(bytes.NewReader([]byte("n")), iotest.ErrReader(broken))
		if err := f.WriteFrom(half); !errors.Is(err, broken) {
			t.Errorf("%q: %v", temp, err)
		}
		want(t, dir, "old", "-rw------- file")
	}
	f.Path = filepath.Join(dir, "missing", "file")
	if err := f.Write(nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory missing: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "taken", "by a directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.Path = filepath.Join(dir, "taken")
	if err := f.Write(nil); err == nil {
		t.Error("over a directory")
	}
	if got := listing(t, dir); len(got) != 2 {
		t.Errorf("left: %v", got)
	}
}

// Readers beside several writers see whole contents only.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	f := atomicfile.File{Path: filepath.Join(dir, "file"), Mode: 0o600, Temp: ".mine-*"}
	contents := [][]byte{bytes.Repeat([]byte("a"), 70_000), bytes.Repeat([]byte("b"), 10_000)}
	if err := f.Write(contents[0]); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for _, content := range contents {
		writers.Go(func() {
			for range 100 {
				if err := f.Write(content); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for {
		b, err := os.ReadFile(f.Path)
		if err != nil || !bytes.Equal(b, contents[0]) && !bytes.Equal(b, contents[1]) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// The label of the old file goes to the new one. Where the kernel lets no test set a label, no label is kept.
func TestKeepLabel(t *testing.T) {
	const name, label = "security.selinux", "system_u:object_r:bin_t:s0\x00"
	dir := t.TempDir()
	f := atomicfile.File{Path: filepath.Join(dir, "file"), Mode: 0o755, KeepLabel: true}
	if err := f.Write([]byte("old")); err != nil {
		t.Fatal(err)
	}
	expected := label
	if err := unix.Setxattr(f.Path, name, []byte(label), 0); err != nil {
		t.Logf("no labels here: %v", err)
		expected = ""
	}
	if err := f.Write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	want(t, dir, "new", "-rwxr-xr-x file")
	var got [512]byte
	if n, _ := unix.Getxattr(f.Path, name, got[:]); string(got[:max(n, 0)]) != expected {
		t.Errorf("label %q, want %q", got[:max(n, 0)], expected)
	}
}
