package network

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// WriteFiles makes the directory hold the configurations of these networks. It removes the agent's other files, except
// those of networks for which keep returns true (nil: none). It returns whether anything changed.
func WriteFiles(dir string, configs map[string][]byte, keep func(network string) bool) (changed bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && len(configs) == 0 {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("list network configurations: %w", err)
	}
	for _, e := range entries {
		file, ours := strings.CutPrefix(e.Name(), policy.PublishedPrefix)
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
		file := fileOf(dir, name)
		if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, b) {
			continue
		}
		if err := writeFile(file, b); err != nil {
			return changed, fmt.Errorf("write network configuration %s: %w", file, err)
		}
		changed = true
	}
	return changed, nil
}

// Unwritten returns err for each network whose file is not as it should be.
func Unwritten(dir string, configs map[string][]byte, err error) map[string]error {
	out := map[string]error{}
	for name, b := range configs {
		if now, rerr := os.ReadFile(fileOf(dir, name)); rerr != nil || !bytes.Equal(now, b) {
			out[name] = err
		}
	}
	return out
}

func fileOf(dir, name string) string { return filepath.Join(dir, policy.Published(name)) }

// writeFile creates the directory, as Multus does. Multus may read it at any moment: it ignores files whose names end
// like the temporary file's.
func writeFile(file string, b []byte) error {
	return atomicfile.File{Path: file, Mode: 0o600, DirMode: 0o755, Temp: filepath.Base(file) + ".tmp"}.Write(b)
}
