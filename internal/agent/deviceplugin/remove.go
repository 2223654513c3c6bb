package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Remove removes what a Set has left in its directories, whatever has ended it: sockets of resources whose names begin
// with prefix, and device-info files. A directory may be empty, or not there.
func Remove(dir, infoDir, prefix string) error {
	return errors.Join(
		removeFrom(dir, func(e fs.DirEntry) bool {
			begin, _ := strings.CutSuffix(socketName(prefix), ".sock")
			return e.Type() == fs.ModeSocket && strings.HasPrefix(e.Name(), begin)
		}),
		removeFrom(infoDir, func(e fs.DirEntry) bool {
			name, half := strings.CutPrefix(e.Name(), ".") // of a write that was cut short
			if !e.Type().IsRegular() || !strings.HasSuffix(name, infoSuffix) {
				return false
			}
			return half && strings.HasPrefix(name, flat(prefix)) || ours(filepath.Join(infoDir, e.Name()))
		}))
}

func removeFrom(dir string, which func(fs.DirEntry) bool) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for what is left: %w", err)
	}
	for _, e := range entries {
		if !which(e) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is left: %w", err)
		}
	}
	return nil
}
