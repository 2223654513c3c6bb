package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Face is what of a device has a name.
type Face string

// The faces, by the directories of what they are owed.
const (
	RDMA   Face = "names"
	Netdev Face = "netdevs"
)

// A name that is owed belongs to an RDMA device or a netdev that is home under a temporary one: when its attachment was
// returned for the last time, another device had its name. The note is a symbolic link in a directory that is there
// only while there are such devices: names/<bus>+<address> to the name.
func (s Store) owedPath(f Face, claim string) string {
	return filepath.Join(s.Dir, string(f), fileOf(claim))
}

// Owe notes that a face of the device of claim is owed a name. The caller holds the device's lock.
func (s Store) Owe(f Face, claim, name string) error { return s.link(s.owedPath(f, claim), name) }

// Owed returns the name that a face of the device of claim is owed; empty: none.
func (s Store) Owed(f Face, claim string) (string, error) {
	name, err := os.Readlink(s.owedPath(f, claim))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the name that %s is owed: %w", claim, err)
	}
	return name, nil
}

// Settle forgets the name that a device is owed: it has it.
func (s Store) Settle(f Face, claim string) error {
	if err := os.Remove(s.owedPath(f, claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the name that %s is owed: %w", claim, err)
	}
	prune(filepath.Join(s.Dir, string(f)))
	return nil
}

// Debtors returns the devices of which a face is owed a name.
func (s Store) Debtors(f Face) ([]string, error) {
	names, err := os.ReadDir(filepath.Join(s.Dir, string(f)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the names that are owed: %w", err)
	}
	var out []string
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), ".") {
			out = append(out, strings.Replace(n.Name(), "+", "/", 1))
		}
	}
	return out, nil
}
