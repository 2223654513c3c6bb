package image

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fabric-cni/fabric-cni/scripts/image/oci"
)

// applets are the commands of busybox that the image fabric-tools has: a shell, and what scripts in pods use.
var applets = []string{"sh", "sleep", "timeout", "cat", "ls", "head", "tail", "grep", "sed", "awk", "cp", "mkdir", "ps",
	"kill", "env", "id", "hostname", "tar", "vi"}

// Tools returns the image fabric-tools for an architecture: perftest, rdma-core's programs, ip, ping and a shell from
// root, a directory that tools.sh has made, and fabricctl from the directory binaries. Pods that measure run it.
func Tools(architecture, root, binaries, version string) (oci.Image, error) {
	i := oci.Image{Architecture: architecture, Config: oci.Config{
		Entrypoint: []string{"/bin/sleep", "2147483647"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			versionLabel:                     version,
			"org.opencontainers.image.title": "fabric-tools",
		},
	}}
	has := map[string]bool{}
	root, err := filepath.EvalSymlinks(root) // WalkDir does not follow one
	if err != nil {
		return oci.Image{}, fmt.Errorf("image fabric-tools: %w", err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f := oci.File{Path: "/" + filepath.ToSlash(path[len(root)+1:]), Mode: int64(info.Mode().Perm())}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			if f.Link, err = os.Readlink(path); err != nil {
				return err
			}
		case d.Type().IsRegular():
			f.Source = path
		case !d.IsDir():
			return fmt.Errorf("%s: want a file, a directory or a symbolic link", path)
		}
		has[f.Path] = true
		i.Files = append(i.Files, f)
		return nil
	})
	if err != nil {
		return oci.Image{}, fmt.Errorf("image fabric-tools: %w", err)
	}
	add := func(f oci.File) {
		if !has[f.Path] {
			has[f.Path] = true
			i.Files = append(i.Files, f)
		}
	}
	for _, dir := range append([]string{"/bin"}, dirs...) {
		add(oci.File{Path: dir})
	}
	for _, name := range applets {
		add(oci.File{Path: "/bin/" + name, Link: "busybox"})
	}
	add(oci.File{Path: bin + "/fabricctl", Source: filepath.Join(binaries, "fabricctl")})
	add(links[0])
	return i, nil
}
