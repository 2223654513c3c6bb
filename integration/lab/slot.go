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

// takeSlot waits until fewer guests run on this machine than it has CPUs: more of them only make each other time out.
// Test binaries of several packages run at once, so a slot is a lock on a file, which also ends with its process.
func takeSlot(ctx context.Context) (free func(), err error) {
	dir := filepath.Join(Cache(), "slots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create guest slots: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for i := range runtime.NumCPU() {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(i)), os.O_CREATE|os.O_RDWR, 0o644)
			if err != nil {
				return nil, fmt.Errorf("open guest slot: %w", err)
			}
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return func() { f.Close() }, nil
			}
			f.Close()
			if !errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("lock guest slot: %w", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a free guest slot: %w", ctx.Err())
		}
	}
}
