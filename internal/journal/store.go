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
//	locks/<device>                            flock, held while a device is claimed and moved
type Store struct{ Dir string }

func (s Store) entryPath(k Key) string { return filepath.Join(s.Dir, "attachments", k.file()) }

// Load reads an entry. It returns fs.ErrNotExist when there is none, and ErrCorrupt when it can't be decoded.
func (s Store) Load(k Key) (*Entry, error) { return s.load(s.entryPath(k)) }

// ErrCorrupt means that an entry is there and makes no sense.
var ErrCorrupt = errors.New("journal entry is corrupt")

func (s Store) load(path string) (*Entry, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read journal entry: %w", err)
	}
	e, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if k, ok := keyOf(filepath.Base(path)); !ok || k != e.Key { // whoever acts on it would touch another attachment
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
	if err := writeFile(s.entryPath(e.Key), b); err != nil {
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
	path := s.entryPath(k)
	for _, f := range []string{filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), path} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove journal entry: %w", err)
		}
	}
	return nil
}

// List reads all entries. Those that can't be decoded are reported in the joined error, beside the others.
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
		e, err := s.load(filepath.Join(dir, n.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // returned meanwhile
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, e)
		}
	}
	return out, errors.Join(errs...)
}

// Writable reports whether entries can be written.
func (s Store) Writable() error {
	probe := filepath.Join(s.Dir, "attachments", ".probe")
	if err := writeFile(probe, nil); err != nil {
		return fmt.Errorf("state directory %s is not writable: %w", s.Dir, err)
	}
	return os.Remove(probe)
}

// writeFile needs no directory entry on disk: the journal ends with the boot. There is one writer per entry.
func writeFile(path string, b []byte) error {
	return atomicfile.File{Path: path, Mode: 0o600, DirMode: 0o700, Sync: atomicfile.SyncFile}.Write(b)
}
