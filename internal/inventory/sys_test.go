package inventory

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

func TestSys(t *testing.T) {
	dir := t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1000) // more than a page
	for name, b := range map[string][]byte{"state": []byte("4: ACTIVE\n"), "empty": nil, "vpd": big} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "ports"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(Sys(dir), "state", "empty", "vpd", "ports"); err != nil {
		t.Error(err)
	}
	if b, err := fs.ReadFile(Sys(dir), "vpd"); err != nil || !bytes.Equal(b, big) {
		t.Errorf("%d bytes, %v; %d wanted", len(b), err, len(big))
	}
	if _, err := fs.ReadFile(Sys(dir), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := fs.ReadFile(Sys(dir), "../state"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that leads out: %v", err)
	}
	if _, err := fs.ReadFile(Sys(dir), "ports"); err == nil {
		t.Error("a directory was read")
	}
}

func BenchmarkSys(b *testing.B) {
	for name, sys := range map[string]fs.FS{"own": Sys("/sys"), "os": os.DirFS("/sys")} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := fs.ReadFile(sys, "class/net/lo/mtu"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
