package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Waits says whether a process waits for a lock of this file, by /proc/locks (Documentation/filesystems/proc.rst).
func Waits(t testing.TB, file string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if unix.Stat(file, &st) != nil {
		return false
	}
	// With the device: files of other tests, on a tmpfs of theirs, have the same few inode numbers.
	is := fmt.Sprintf(" %02x:%02x:%d ", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "->") && strings.Contains(line, is) {
			return true
		}
	}
	return false
}
