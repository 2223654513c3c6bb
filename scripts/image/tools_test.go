package image_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/scripts/image"
	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// The image fabric-tools has what the packages have, links as links, and a shell where they have none of that name.
func TestTools(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"bin", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin/busybox", "bin/ps", "usr/bin/ib_write_bw"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("ib_write_bw", filepath.Join(root, "usr/bin/ib_bw")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	i, err := image.Tools("amd64", link, "bin", "v1")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]oci.File{}
	for _, f := range i.Files {
		if _, twice := files[f.Path]; twice {
			t.Errorf("%s is there twice", f.Path)
		}
		files[f.Path] = f
	}
	for path, want := range map[string]oci.File{
		"/usr/bin/ib_write_bw":    {Source: filepath.Join(root, "usr/bin/ib_write_bw")},
		"/usr/bin/ib_bw":          {Link: "ib_write_bw"},
		"/usr/bin/fabricctl":      {Source: "bin/fabricctl"},
		"/usr/bin/kubectl-fabric": {Link: "fabricctl"},
		"/bin/sh":                 {Link: "busybox"},
		"/bin/ps":                 {Source: filepath.Join(root, "bin/ps")},
		"/proc":                   {},
	} {
		if got, ok := files[path]; !ok || got.Source != want.Source || got.Link != want.Link {
			t.Errorf("%s: %+v, %t, want %+v", path, got, ok, want)
		}
	}
	l, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := image.Tools("amd64", root, "bin", "v1"); err == nil {
		t.Error("a socket is taken for a file")
	}
}
