package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// slotPoll is how often a slot is asked for.
const slotPoll = 100 * time.Millisecond

// takeSlot waits until fewer guests run on this machine than it has CPUs: more of them only make each other time out.
// Test binaries of several packages run at once, so a slot is a lock on a file, which also ends with its process.
//
// A caller with pointless, which ends its wait, steps back while one without waits: the guests of TestLab are many and
// short, those of other tests few and long, and both kinds run at once. free is nil if the wait has become pointless.
func takeSlot(ctx context.Context, pointless func() bool) (free func(), err error) {
	patient := pointless != nil
	dir := filepath.Join(Cache(), "slots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create guest slots: %w", err)
	}
	if !patient {
		// The mark that slotWanted looks for.
		mark, err := lockFile(filepath.Join(dir, "wanted"), unix.LOCK_SH)
		if err != nil {
			return nil, err
		}
		defer mark.Close()
	}
	tick := time.NewTicker(slotPoll)
	defer tick.Stop()
	for {
		if patient && pointless() {
			return nil, nil
		}
		if !patient || !slotWanted() {
			for i := range runtime.NumCPU() {
				f, err := lockFile(filepath.Join(dir, fmt.Sprint(i)), unix.LOCK_EX|unix.LOCK_NB)
				if err == nil {
					return func() { f.Close() }, nil
				}
				if !errors.Is(err, unix.EWOULDBLOCK) {
					return nil, err
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a free guest slot: %w", ctx.Err())
		}
	}
}

// slotWanted reports whether an impatient caller waits for a slot, in whatever process.
func slotWanted() bool {
	f, err := lockFile(filepath.Join(Cache(), "slots", "wanted"), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	f.Close()
	return false
}

// lockFile opens and locks a file. The lock ends when the file is closed.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open guest slot: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock guest slot: %w", err)
	}
	return f, nil
}
