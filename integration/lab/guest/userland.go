package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// laidMark exists in a guest whose /usr has the user land. Each test is a process of its own.
const laidMark = "/run/fabric-userland"

// UserLand lays Debian's RDMA programs and libraries over the guest's /usr and puts their configuration into /etc,
// once in a guest: perftest, ibverbs-utils, rdmacm-utils, Open MPI, UCX, libfabric. It also loads the modules that give
// programs their character devices: call it before Unchanged. The suite needs UserLand.
//
// Nothing is copied but configuration, and ldconfig does not run (13 s in emulation): the dynamic linker looks into
// /usr/lib/x86_64-linux-gnu without its cache, too.
func UserLand(t testing.TB) {
	t.Helper()
	Modprobe(t, "-a", "ib_uverbs", "rdma_ucm")
	if _, err := os.Stat(laidMark); err == nil {
		return
	}
	dir := os.Getenv("FABRIC_USERLAND")
	if dir == "" {
		t.Fatal("this suite has no user land: set UserLand in integration/lab/suite.go")
	}
	// All at once: the guest's root is an overlay, and the kernel stacks no third one on a second.
	roots := []string{filepath.Join(dir, "root")}
	if pyverbs := os.Getenv("FABRIC_PYVERBS"); pyverbs != "" {
		roots = append(roots, filepath.Join(pyverbs, "root"))
	}
	if err := LayOver(roots); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(laidMark, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// LayOver puts the usr of these directories over this guest's /usr, the first on top, and copies their etc into /etc.
func LayOver(roots []string) error {
	// The guest's modules are a mount of their own below /usr, which the overlay would hide.
	const modules, aside = "/usr/lib/modules", "/run/modules"
	if err := os.MkdirAll(aside, 0o755); err != nil {
		return fmt.Errorf("lay user land over /usr: %w", err)
	}
	var lower string
	for _, root := range roots {
		lower += filepath.Join(root, "usr") + ":"
	}
	for _, m := range []struct {
		source, target, fstype string
		flags                  uintptr
		data                   string
	}{
		{modules, aside, "", unix.MS_BIND, ""},
		{"overlay", "/usr", "overlay", 0, "lowerdir=" + lower + "/usr"},
		{aside, modules, "", unix.MS_BIND, ""},
	} {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	for _, root := range roots {
		if err := copyOver(filepath.Join(root, "etc"), "/etc"); err != nil {
			return fmt.Errorf("copy configuration to /etc: %w", err)
		}
	}
	return nil
}

// copyOver copies the files below from to the same places below to. A file that is there already is replaced.
func copyOver(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular():
			return nil // Python's links into its library
		}
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(target, data, 0o644))
	})
}
