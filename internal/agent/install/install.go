// Package install puts the CNI binary where the container runtime looks for it, keeps it there, and takes it away. A
// runtime may be executing the old binary at any moment, and must never see half of the new one.
package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
}

// Path is where the binary is installed: under the name of its source.
func (t Target) Path() string { return filepath.Join(t.BinDir, filepath.Base(t.Source)) }

// tempPrefix marks the temporary files of this package, so that those a kill left behind can be told from anybody
// else's.
func (t Target) tempPrefix() string { return "." + filepath.Base(t.Source) + ".fabric-agent-" }

// ErrNewerState tells that the node's journal was written by a later version.
var ErrNewerState = errors.New("the journal was written by a newer version")

// Install puts the binary in place at once: temporary file in the same directory, fsync, mode 0755, rename. A rename
// works while the old binary is being executed, where writing to it would fail with "text file busy". It does nothing
// when the same binary is there already, and returns whether it changed anything.
func (t Target) Install() (changed bool, err error) {
	if err := t.mayReplace(); err != nil {
		return false, err
	}
	if err := os.MkdirAll(t.BinDir, 0o755); err != nil { //nolint:gosec // others read the directory (G301)
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

// mayReplace refuses to leave state to a binary that can't read all of it.
func (t Target) mayReplace() error {
	newer, err := t.Store.Newer()
	if err != nil {
		return err
	}
	if len(newer) > 0 {
		return fmt.Errorf(
			"install %s: %w (entries %s in %s, this version knows %d): install that version, or delete the pods first",
			t.Path(),
			ErrNewerState,
			strings.Join(newer, ", "),
			t.Store.Dir,
			journal.Version,
		)
	}
	return nil
}

// sweep removes temporary files that a killed installer has left.
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
			return fmt.Errorf("remove what an installer has left: %w", err)
		}
	}
	return nil
}

// Same tells whether the installed binary is the source, byte for byte, and can be executed.
func (t Target) Same() (bool, error) {
	st, err := os.Stat(t.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the installed binary: %w", err)
	}
	if !st.Mode().IsRegular() {
		return false, fmt.Errorf("%s is there and no regular file: remove it", t.Path())
	}
	want, err := hash(t.Source)
	if err != nil {
		return false, err
	}
	got, err := hash(t.Path())
	return got == want && st.Mode().Perm() == 0o755, err
}

func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash binary: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash binary %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// put leaves an installed binary that survives a power cut. Two agents may install at the same time, during an upgrade.
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
