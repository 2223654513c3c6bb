package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/netns"
)

// Where network namespaces have names, and how those of selftest, and its containers, are called.
const (
	namespaces = "/run/netns"
	prefix     = "fabric-selftest-"
)

// pod is a network namespace with a path, as a container runtime makes it.
type pod struct {
	name string
	path string
}

// newPod makes a namespace.
func newPod(name string) (_ *pod, err error) {
	p := &pod{name: prefix + name, path: filepath.Join(namespaces, prefix+name)}
	if err := os.MkdirAll(namespaces, 0o755); err != nil { //nolint:filemode // as ip netns makes it
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	f, err := os.OpenFile(p.path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o400)
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	f.Close()
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", ns.FD()), p.path, "none", unix.MS_BIND, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("name network namespace %s: %w", p.path, err), os.Remove(p.path))
	}
	return p, nil
}

// remove takes the name away. The namespace ends when nothing is in it, some time later. It is no error if it is gone.
func (p *pod) remove() error {
	err := unix.Unmount(p.path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", p.path, err)
	}
	if err := os.Remove(p.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", p.path, err)
	}
	return nil
}

// pods are the namespaces of selftest that there are, also those of a run that was killed.
func pods() (out []pod) {
	entries, _ := os.ReadDir(namespaces) // without the directory there are none
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			out = append(out, pod{name: e.Name(), path: filepath.Join(namespaces, e.Name())})
		}
	}
	return out
}
