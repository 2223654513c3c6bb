package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// filePrefix marks the agent's files. Multus looks for a network by the name in the file, not by the file's.
const filePrefix = "fabric-agent-"

// WriteFiles makes the directory hold the configurations of these networks, and of the agent's others only those that
// keep names (nil: none). It returns whether anything changed.
func WriteFiles(dir string, configs map[string][]byte, keep func(network string) bool) (changed bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && len(configs) == 0 {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("list network configurations: %w", err)
	}
	for _, e := range entries {
		file, ours := strings.CutPrefix(e.Name(), filePrefix)
		name, whole := strings.CutSuffix(file, ".conf")
		if !ours || configs[name] != nil || whole && keep != nil && keep(name) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changed, fmt.Errorf("remove network configuration: %w", err)
		}
		changed = true
	}
	for name, b := range configs {
		file := filepath.Join(dir, filePrefix+name+".conf")
		if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, b) {
			continue
		}
		if err := writeFile(dir, file, b); err != nil {
			return changed, fmt.Errorf("write network configuration %s: %w", file, err)
		}
		changed = true
	}
	return changed, nil
}

// writeFile is seen whole or not at all: Multus may read the directory at any moment. The temporary name has no suffix
// that it would look at.
func writeFile(dir, file string, b []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Multus's directory (G301)
		return err
	}
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
