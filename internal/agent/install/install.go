// Package install puts the CNI binary where the container runtime looks for it, keeps it there, and takes it away. A
// runtime may be executing the old binary at any moment, and must never see half of the new one.
package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Target is one binary and its place on the node.
type Target struct {
	Source string        // the binary in the agent's image
	BinDir string        // the runtime's plugin directory
	Store  journal.Store // what the binary will have to read
	Sums   *Sums         // checksums that are known already; nil: none
}

// Path is where the binary is installed: under the name of its source.
func (t Target) Path() string { return filepath.Join(t.BinDir, filepath.Base(t.Source)) }

// tempPrefix marks the temporary files of this package, so that those that a killed installer left behind can be
// removed.
func (t Target) tempPrefix() string { return "." + filepath.Base(t.Source) + ".fabric-agent-" }

// ErrNewerState means that the node's journal was written by a later version.
var ErrNewerState = errors.New("the journal was written by a newer version")

// Install puts the binary in place atomically: temporary file in the same directory, fsync, mode 0755, rename. A
// rename works while the old binary is being executed; writing to that would fail with "text file busy". Install does
// nothing if the same binary is there already, and returns whether it changed anything.
func (t Target) Install() (changed bool, err error) {
	if err := t.mayReplace(); err != nil {
		return false, err
	}
	if err := os.MkdirAll(t.BinDir, 0o755); err != nil { //nolint:filemode // others read the directory
		return false, fmt.Errorf("make plugin directory: %w", err)
	}
	if err := t.sweep(); err != nil {
		return false, err
	}
	same, err := t.Same()
	if err != nil || same {
		return false, err
	}
	if err := t.put(); err != nil {
		return false, fmt.Errorf("install %s: %w", t.Path(), err)
	}
	return true, nil
}

// mayReplace returns an error if the node has state that this binary cannot read.
func (t Target) mayReplace() error {
	newer, err := t.Store.Newer()
	if err != nil {
		return err
	}
	if len(newer) > 0 {
		return fmt.Errorf("install %s: %w (entries %s in %s, this version knows %d): install that version, or delete "+
			"the pods first", t.Path(), ErrNewerState, strings.Join(newer, ", "), t.Store.Dir, journal.Version)
	}
	return nil
}

// sweep removes temporary files that a killed installer left behind.
func (t Target) sweep() error {
	entries, err := os.ReadDir(t.BinDir)
	if err != nil {
		return fmt.Errorf("list plugin directory: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), t.tempPrefix()) {
			continue
		}
		if err := os.Remove(filepath.Join(t.BinDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a temporary file of an earlier installer: %w", err)
		}
	}
	return nil
}

// Sum returns the SHA-256 of the installed binary in hexadecimal.
func (t Target) Sum() (string, error) { return t.Sums.Of(t.Path()) }

// Same returns whether the installed binary is the source, byte for byte, and executable.
func (t Target) Same() (bool, error) {
	st, err := os.Stat(t.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the installed binary: %w", err)
	}
	if !st.Mode().IsRegular() {
		return false, fmt.Errorf("%s is no regular file: remove it", t.Path())
	}
	want, err := t.Sums.Of(t.Source)
	if err != nil {
		return false, err
	}
	got, err := t.Sum()
	return got == want && st.Mode().Perm() == 0o755, err
}

// put leaves an installed binary that survives a power cut. Two agents may install at the same time, during an
// upgrade.
func (t Target) put() error {
	in, err := os.Open(t.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.File{
		Path: t.Path(), Mode: 0o755, Temp: t.tempPrefix() + "*", Sync: atomicfile.SyncDir, KeepLabel: true,
	}.WriteFrom(in)
}
