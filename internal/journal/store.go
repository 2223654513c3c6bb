package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/failpoint"
)

// DefaultDir is on tmpfs: what it describes ends with the boot.
const DefaultDir = "/run/fabric-cni"

// Store is the journal in one directory:
//
//	attachments/<containerID>@<ifname>        one entry each
//	claims/<device>/owner                     symlink to the entry that owns the device
//	claims/<device>/children/<entry>          symlinks to the entries whose IPoIB child sits on the device
//	tenants/<device>                          symlink to the namespace of the pod that had this VF last
//	netns/<inode>                             mounts of network namespaces of pods, see Entry.Held
//	locks/<device>                            flock, held while a device is taken and moved
//	locks/attachments, locks/ipam             a byte each of which is locked for an attachment
//	locks/pods                                likewise for a pod
type Store struct{ Dir string }

func (s Store) entryPath(k Key) string { return filepath.Join(s.Dir, "attachments", k.file()) }

// Load reads an entry. It returns fs.ErrNotExist when it is missing, and ErrCorrupt when it is unusable: it can't be
// decoded, or lacks what makes sense of it.
func (s Store) Load(k Key) (*Entry, error) {
	e, err := load(s.entryPath(k))
	if err != nil {
		return nil, err
	}
	if err := e.Sound(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, s.entryPath(k), err)
	}
	return e, nil
}

// ErrCorrupt means that an entry is there and makes no sense.
var ErrCorrupt = errors.New("journal entry is corrupt")

// maxFile bounds what is read of an entry: a configuration has 256 KiB at most, and a snapshot a route or address per
// 100 bytes.
const maxFile = 64 << 20

func load(path string) (*Entry, error) {
	b, err := atomicfile.Read(path, maxFile)
	if errors.Is(err, atomicfile.ErrForeign) {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read journal entry: %w", err)
	}
	e, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	e.Tries += tries(b)
	if k, ok := keyOf(filepath.Base(path)); !ok || k != e.Key { // acting on it would touch another attachment
		return nil, fmt.Errorf("%w: %s: it speaks of %s", ErrCorrupt, path, e.Key)
	}
	return e, nil
}

// Save writes an entry: temporary file, fsync, rename. After it returns, the entry is there whatever dies.
func (s Store) Save(e *Entry) error {
	e.Version = max(e.Version, Version) // a newer version's fields are still in it
	b, err := e.Encode()
	if err != nil {
		return fmt.Errorf("encode journal entry %s: %w", e.Key, err)
	}
	if err := failpoint.Hit("journal/save"); err != nil {
		return err
	}
	if err := writeFile(s.entryPath(e.Key), padded(b)); err != nil {
		return fmt.Errorf("write journal entry %s: %w", e.Key, err)
	}
	return nil
}

// Remove deletes an entry, and what a killed Save has left of one: no later Save of a dead pod overwrites that. What is
// gone already is no error.
func (s Store) Remove(k Key) error {
	if err := failpoint.Hit("journal/remove"); err != nil {
		return err
	}
	if err := os.RemoveAll(s.entryPath(k)); err != nil { // it may be a foreign directory
		return fmt.Errorf("remove journal entry: %w", err)
	}
	return s.Sweep(k)
}

// Sweep removes what a killed Save has left of an entry: its temporary file. The caller holds the attachment's lock.
func (s Store) Sweep(k Key) error {
	dir, base := filepath.Split(s.entryPath(k))
	if err := os.RemoveAll(dir + "." + base); err != nil {
		return fmt.Errorf("remove temporary file of a journal entry: %w", err)
	}
	return nil
}

// List reads all entries, also those that Load would call damaged. Those that can't be decoded, and what else lies
// there, are reported as ErrCorrupt in the joined error, beside the others: no attachment but theirs depends on them.
func (s Store) List() ([]*Entry, error) {
	dir := filepath.Join(s.Dir, "attachments")
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var out []*Entry
	var errs []error
	for _, n := range names {
		if strings.HasPrefix(n.Name(), ".") {
			continue
		}
		e, err := load(filepath.Join(dir, n.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // returned meanwhile
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, e)
		}
	}
	return out, few(errs)
}

// maxNamed is how many damaged entries an error names.
const maxNamed = 20

// few joins errors, of which there may be any number.
func few(errs []error) error {
	if more := len(errs) - maxNamed; more > 0 {
		errs = append(errs[:maxNamed:maxNamed], fmt.Errorf("%w: %d more", ErrCorrupt, more))
	}
	return errors.Join(errs...)
}

// Damaged returns the attachments whose entry can't be read, and that have a device or an IPoIB child.
func (s Store) Damaged() ([]Key, error) {
	names, err := os.ReadDir(filepath.Join(s.Dir, "attachments"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var out []Key
	for _, n := range names {
		k, ok := keyOf(n.Name())
		if !ok {
			continue
		}
		if _, err := load(s.entryPath(k)); !errors.Is(err, ErrCorrupt) {
			continue
		}
		owned, parents, err := s.DevicesOf(k)
		if err != nil {
			return nil, err
		}
		if len(owned)+len(parents) > 0 {
			out = append(out, k)
		}
	}
	return out, nil
}

// Private takes the state directory from all but root, who alone needs it: kubelet makes it for the agent's pod with
// mode 0755, and names of devices and pods are in it.
func (s Store) Private() {
	if st, err := os.Stat(s.Dir); err == nil && st.Mode().Perm() != 0o700 {
		_ = os.Chmod(s.Dir, 0o700) //nolint:filemode // a directory; a file system without modes stays as it is
	}
}

// Writable reports whether entries can be written. Each call has a file of its own, without a name as soon as it is
// open: calls may run side by side, and be killed.
func (s Store) Writable() error {
	if err := probe(filepath.Join(s.Dir, "attachments")); err != nil {
		return fmt.Errorf("state directory %s is not writable: %w", s.Dir, err)
	}
	return nil
}

// probe writes a file into a directory, and removes it.
func probe(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	err = os.Remove(f.Name())
	_, werr := f.Write(make([]byte, block)) // a full tmpfs still makes files that are empty
	return errors.Join(err, werr, f.Close())
}

// writeFile needs no directory entry on disk: the journal ends with the boot. There is one writer per entry.
func writeFile(path string, b []byte) error {
	return atomicfile.File{Path: path, Mode: 0o600, DirMode: 0o700, Sync: atomicfile.SyncFile}.Write(b)
}
