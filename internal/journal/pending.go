package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// NameOf is what of a device has a name.
type NameOf string

// The names, by the directories of those that are pending.
const (
	RDMA   NameOf = "names"
	Netdev NameOf = "netdevs"
)

// PendingNames are renames that wait: a device came back to the host for the last time while another device had its
// name, and has a temporary one. The note is a symbolic link in a directory that is there only while there are such
// devices: names/<bus>+<address> to the name.
type PendingNames struct {
	top string // the state directory
	dir string // of the notes
}

// PendingNames are those of RDMA devices, or of netdevs.
func (s Store) PendingNames(f NameOf) PendingNames {
	return PendingNames{top: s.Dir, dir: filepath.Join(s.Dir, string(f))}
}

func (p PendingNames) path(deviceKey string) string { return filepath.Join(p.dir, fileOf(deviceKey)) }

// Set notes the name that a device is to get. The caller holds the device's lock.
func (p PendingNames) Set(deviceKey, name string) error { return link(p.top, p.path(deviceKey), name) }

// Get returns the name that a device is to get; empty: none is pending.
func (p PendingNames) Get(deviceKey string) (string, error) {
	name, err := os.Readlink(p.path(deviceKey))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the pending name of %s: %w", deviceKey, err)
	}
	return name, nil
}

// Clear forgets the pending name of a device: it has it.
func (p PendingNames) Clear(deviceKey string) error {
	if err := os.Remove(p.path(deviceKey)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the pending name of %s: %w", deviceKey, err)
	}
	prune(p.dir)
	return nil
}

// Devices returns the devices that have a pending name.
func (p PendingNames) Devices() ([]string, error) {
	names, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the pending names: %w", err)
	}
	var out []string
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), ".") {
			out = append(out, strings.Replace(n.Name(), "+", "/", 1))
		}
	}
	return out, nil
}
