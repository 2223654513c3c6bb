package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/netns"
)

// Holds are the network namespaces of pods that are kept for the return of their devices: see Entry.Held.
type Holds struct{ Store }

// Path is where a namespace is mounted. No other one has the number while it is.
func (s Holds) Path(id netns.ID) string { return filepath.Join(s.Dir, "netns", fmt.Sprint(id.Ino)) }

// Hold mounts a pod's network namespace, which is at path, if it is not mounted. It is called before an entry is held,
// and again after: ReleaseAll removes what no entry holds.
func (s Holds) Hold(path string, id netns.ID) error {
	at := s.Path(id)
	if now, err := netns.IDOf(at); err == nil && now == id {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	if err == nil {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err == nil {
		err = unix.Mount(path, at, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("keep the pod's network namespace for the return of its devices: mount %s on %s: %w", path,
			at, err)
	}
	return nil
}

// Release unmounts the namespace of an attachment that is over, unless another one of its container holds it.
func (s Holds) Release(over *Entry) error {
	for _, e := range s.Of(over.ContainerID) {
		if e.Held && e.Netns == over.Netns {
			return nil
		}
	}
	return unmount(s.Path(over.Netns))
}

// ReleaseAll unmounts the namespaces that no attachment holds: of a call that was killed. What can't be read may hold
// any of them.
func (s Holds) ReleaseAll() error {
	mounted, err := s.mounted()
	if err != nil || len(mounted) == 0 {
		return err
	}
	entries, err := s.List()
	if err != nil {
		return fmt.Errorf("find out which network namespaces are held: %w", err)
	}
	held := map[string]bool{}
	for _, e := range entries {
		held[s.Path(e.Netns)] = held[s.Path(e.Netns)] || e.Held
	}
	var errs []error
	for _, at := range mounted {
		if !held[at] {
			errs = append(errs, unmount(at))
		}
	}
	return errors.Join(errs...)
}

// Any reports whether a network namespace is held.
func (s Holds) Any() bool {
	mounted, _ := s.mounted()
	return len(mounted) > 0
}

func (s Holds) mounted() ([]string, error) {
	return filepath.Glob(filepath.Join(filepath.Dir(s.Path(netns.ID{})), "*"))
}

// unmount removes the mounts of a namespace, of which two calls at once may have made two.
func unmount(at string) error {
	var err error
	for err == nil {
		err = unix.Unmount(at, unix.MNT_DETACH)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: it is not mounted
		return fmt.Errorf("let go of the network namespace of a pod: unmount %s: %w", at, err)
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("let go of the network namespace of a pod: %w", err)
	}
	return nil
}
