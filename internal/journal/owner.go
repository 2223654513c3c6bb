package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/failpoint"
)

// fileOf is the name of a file or directory for a device. Bus names have no '+'.
func fileOf(deviceKey string) string { return strings.ReplaceAll(deviceKey, "/", "+") }

func ownerDir(top, deviceKey string) string {
	return filepath.Join(top, "claims", fileOf(deviceKey))
}

// Owner returns the key of the attachment that owns the device, and false without an owner. A link whose entry is gone
// is what a kill left between the two: it has no owner. What is no symbolic link is foreign, and has none either.
func (s Store) Owner(deviceKey string) (Key, bool, error) {
	target, err := os.Readlink(filepath.Join(ownerDir(s.Dir, deviceKey), "owner"))
	if errors.Is(err, fs.ErrNotExist) || isForeign(err) {
		return Key{}, false, nil
	}
	if err != nil {
		return Key{}, false, fmt.Errorf("read owner of %s: %w", deviceKey, err)
	}
	k, ok := keyOf(filepath.Base(target))
	if !ok {
		return Key{}, false, nil
	}
	if _, err := os.Lstat(s.entryPath(k)); errors.Is(err, fs.ErrNotExist) {
		return Key{}, false, nil
	}
	return k, true, nil
}

// SetOwner makes k the owner of the device. The caller holds the device's lock and has seen that it has no other owner.
func (s Store) SetOwner(deviceKey string, k Key) error {
	if err := failpoint.Hit("journal/claim"); err != nil {
		return err
	}
	owner := filepath.Join(ownerDir(s.Dir, deviceKey), "owner")
	return link(s.Dir, owner, filepath.Join("..", "..", "attachments", k.file()))
}

// ClearOwner gives the device up, if k owns it.
func (s Store) ClearOwner(deviceKey string, k Key) error {
	if err := failpoint.Hit("journal/disclaim"); err != nil {
		return err
	}
	dir := ownerDir(s.Dir, deviceKey)
	for _, name := range []string{"owner", ".owner"} { // the second one is what a kill within SetOwner has left
		target, err := os.Readlink(filepath.Join(dir, name))
		if err == nil && filepath.Base(target) == k.file() {
			err = os.Remove(filepath.Join(dir, name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !isForeign(err) {
			return fmt.Errorf("give up %s: %w", deviceKey, err)
		}
	}
	prune(dir)
	return nil
}

// AddChild records that k has an IPoIB child on the device.
func (s Store) AddChild(deviceKey string, k Key) error {
	if err := failpoint.Hit("journal/add-child"); err != nil {
		return err
	}
	return link(
		s.Dir,
		filepath.Join(ownerDir(s.Dir, deviceKey), "children", k.file()),
		filepath.Join("..", "..", "..", "attachments", k.file()),
	)
}

// RemoveChild forgets the child of k.
func (s Store) RemoveChild(deviceKey string, k Key) error {
	if err := failpoint.Hit("journal/remove-child"); err != nil {
		return err
	}
	dir := ownerDir(s.Dir, deviceKey)
	for _, name := range []string{k.file(), "." + k.file()} { // the second one is what a kill within AddChild has left
		if err := os.RemoveAll(filepath.Join(dir, "children", name)); err != nil && !isForeign(err) {
			return fmt.Errorf("forget child on %s: %w", deviceKey, err)
		}
	}
	prune(filepath.Join(dir, "children"))
	prune(dir)
	return nil
}

// Children returns the attachments that have an IPoIB child on the device.
func (s Store) Children(deviceKey string) ([]Key, error) {
	names, err := os.ReadDir(filepath.Join(ownerDir(s.Dir, deviceKey), "children"))
	if errors.Is(err, fs.ErrNotExist) || isForeign(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list children on %s: %w", deviceKey, err)
	}
	var out []Key
	for _, n := range names {
		k, ok := keyOf(n.Name())
		if !ok {
			continue
		}
		if _, err := os.Lstat(s.entryPath(k)); err == nil {
			out = append(out, k)
		}
	}
	return out, nil
}

// DevicesOf returns the devices that k owns, and those on which it has an IPoIB child, found by looking at every
// device: for an entry that can't be read.
func (s Store) DevicesOf(k Key) (owned, parents []string, err error) {
	dir := filepath.Join(s.Dir, "claims")
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list claims: %w", err)
	}
	for _, n := range names {
		device := strings.Replace(n.Name(), "+", "/", 1)
		target, err := os.Readlink(filepath.Join(dir, n.Name(), "owner"))
		if err == nil && filepath.Base(target) == k.file() {
			owned = append(owned, device)
		}
		if _, err := os.Lstat(filepath.Join(dir, n.Name(), "children", k.file())); err == nil {
			parents = append(parents, device)
		}
	}
	return owned, parents, nil
}

// isForeign tells that a file has the place of a directory, or that there is no link where one should be.
func isForeign(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTDIR) }

// clearWay removes what has the place of a directory on the way to path, below top: no call has put it there.
func clearWay(top, path string) error {
	for dir := filepath.Dir(path); len(dir) > len(top); dir = filepath.Dir(dir) {
		if is, err := os.Lstat(dir); err == nil && !is.IsDir() {
			return os.Remove(dir)
		}
	}
	return nil
}

// link puts a symlink in place at once, over whatever was there. A call that gives the device up meanwhile removes the
// empty directory: it is made again. The device's lock is held: what is foreign goes.
func link(top, path, target string) error {
	dir, base := filepath.Split(path)
	tmp := dir + "." + base
	var err error
	for range 100 {
		switch err = os.Symlink(target, tmp); {
		case err == nil:
			err = os.Rename(tmp, path)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, fs.ErrExist) { // a directory
				if err = os.RemoveAll(path); err == nil {
					err = os.Rename(tmp, path)
				}
			}
			if err == nil {
				return nil
			}
			return fmt.Errorf("write owner: %w", err)
		case errors.Is(err, unix.ENOTDIR):
			if err := clearWay(top, path); err != nil {
				return fmt.Errorf("write owner: %w", err)
			}
		case errors.Is(err, fs.ErrNotExist):
			if mk := os.MkdirAll(
				dir,
				0o700,
			); mk != nil && !errors.Is(mk, fs.ErrNotExist) &&
				!errors.Is(mk, fs.ErrExist) {
				return fmt.Errorf("write owner: %w", mk)
			}
		case errors.Is(err, fs.ErrExist):
			_ = os.RemoveAll(tmp) // left by a kill, or foreign
		default:
			return fmt.Errorf("write owner: %w", err)
		}
	}
	return fmt.Errorf("write owner: %w", err)
}

// prune removes a directory that has become empty; one that has not stays.
func prune(dir string) { _ = os.Remove(dir) }

func keyOf(file string) (Key, bool) {
	id, name, ok := strings.Cut(file, "@")
	return Key{id, name}, ok && !strings.HasPrefix(file, ".")
}
