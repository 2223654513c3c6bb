//go:build failpoint

package failpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// hold waits as long as a test wants this point to be waited at.
func hold(point string) error {
	dir := os.Getenv("FABRIC_FAILPOINT_HOLD")
	if dir == "" {
		return nil
	}
	file := filepath.Join(dir, strings.ReplaceAll(point, "/", "-"))
	for first := true; ; first = false {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if first {
			if err := os.WriteFile(file+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}
