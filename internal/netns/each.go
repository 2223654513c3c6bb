package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mostTime bounds Each: a node may have thousands of processes, and of namespaces that others have left.
const mostTime = 2 * time.Second

// ErrTooMany means that there was no time to look at all network namespaces.
var ErrTooMany = errors.New("too many network namespaces to look at all")

// Each opens, one after the other, the network namespaces that a mount or a process holds, and calls f until that
// returns true. It gives up after a bounded time, with ErrTooMany. Those that nothing but an open file or another mount
// namespace holds are not found. Every one is closed after its call. proc is /proc.
func Each(proc string, f func(*NS) (stop bool)) error {
	paths, err := allMounts(proc)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			paths = append(paths, filepath.Join(proc, e.Name(), "ns", "net"))
		}
	}
	seen := map[ID]bool{}
	end := time.Now().Add(mostTime)
	for _, p := range paths {
		var st unix.Stat_t
		if unix.Stat(p, &st) != nil || seen[ID{Dev: st.Dev, Ino: st.Ino}] {
			continue
		}
		seen[ID{Dev: st.Dev, Ino: st.Ino}] = true
		if time.Now().After(end) {
			return fmt.Errorf("%w: %d in %s", ErrTooMany, len(seen), mostTime)
		}
		n, err := Open(p)
		if err != nil {
			continue // it ended meanwhile
		}
		stop := f(n)
		n.Close()
		if stop {
			return nil
		}
	}
	return nil
}

// allMounts lists where namespaces are bound: their roots in mountinfo are net:[inode] (proc(5)).
func allMounts(proc string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(proc, "thread-self", "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) > 4 && strings.HasPrefix(w[3], "net:[") {
			out = append(out, unescape.Replace(w[4]))
		}
	}
	return out, nil
}
