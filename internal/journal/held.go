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

// heldDir is the directory of Entry.Held in the state directory.
const heldDir = "netns"

// Holds are the network namespaces of pods that are kept for the return of their devices: see Entry.Held.
type Holds struct{ Store }

// Hold mounts a pod's network namespace, which is at path, in the state directory, if it is not mounted there, and
// returns where. It is called before an entry names the mount, and again after: ReleaseAll removes what no entry holds.
func (s Holds) Hold(path string, id netns.ID) (held string, err error) {
	held = filepath.Join(s.Dir, heldDir, fmt.Sprint(id.Ino)) // no other namespace has the number while it is mounted
	if now, err := netns.IDOf(held); err == nil && now == id {
		return held, nil
	}
	err = os.MkdirAll(filepath.Dir(held), 0o700)
	if err == nil {
		err = os.WriteFile(held, nil, 0o600)
	}
	if errors.Is(err, fs.ErrNotExist) { // Release has just removed the directory
		err = errors.Join(os.MkdirAll(filepath.Dir(held), 0o700), os.WriteFile(held, nil, 0o600))
	}
	if err == nil {
		err = unix.Mount(path, held, "", unix.MS_BIND, "")
	}
	if err != nil {
		return "", fmt.Errorf("keep the pod's network namespace for the return of its devices: mount %s on %s: %w",
			path, held, err)
	}
	return held, nil
}

// Release unmounts the namespace that an attachment of a container held, unless another one of that container does.
func (s Holds) Release(containerID, held string) error {
	if held == "" || filepath.Dir(held) != filepath.Join(s.Dir, heldDir) {
		return nil
	}
	for _, e := range s.Of(containerID) {
		if e.Held == held {
			return nil
		}
	}
	return s.unmount(held)
}

// ReleaseAll unmounts the namespaces that no attachment holds: of a call that was killed. What can't be read may hold
// any of them.
func (s Holds) ReleaseAll() error {
	files, err := filepath.Glob(filepath.Join(s.Dir, heldDir, "*"))
	if err != nil || len(files) == 0 {
		return err
	}
	entries, err := s.List()
	if err != nil {
		return fmt.Errorf("find out which network namespaces are held: %w", err)
	}
	held := map[string]bool{}
	for _, e := range entries {
		held[e.Held] = true
	}
	var errs []error
	for _, f := range files {
		if !held[f] {
			errs = append(errs, s.unmount(f))
		}
	}
	return errors.Join(errs...)
}

// Any reports whether a network namespace is held.
func (s Holds) Any() bool {
	_, err := os.Lstat(filepath.Join(s.Dir, heldDir))
	return err == nil
}

// unmount removes the mounts of a namespace, of which two calls at once may have made two.
func (s Holds) unmount(held string) error {
	var err error
	for err == nil {
		err = unix.Unmount(held, unix.MNT_DETACH)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: it is not mounted
		return fmt.Errorf("let go of the network namespace of a pod: unmount %s: %w", held, err)
	}
	if err := os.Remove(held); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("let go of the network namespace of a pod: %w", err)
	}
	_ = os.Remove(filepath.Join(s.Dir, heldDir)) // if it is empty
	return nil
}
