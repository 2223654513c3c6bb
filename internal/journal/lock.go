package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBusy means that a lock was not to be had in time.
var ErrBusy = errors.New("device busy")

// Lock is held by the process until Unlock, or until it dies.
type Lock struct {
	f      *os.File
	Waited bool // another call had it when we came: what was read before may be old
}

// Lock takes the device's lock. It gives up with ErrBusy when ctx ends.
func (s Store) Lock(ctx context.Context, claim string) (*Lock, error) {
	path := filepath.Join(s.Dir, "locks", strings.ReplaceAll(claim, "/", "+"))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open lock of %s: %w", claim, err)
	}
	fd := int(f.Fd())
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		return &Lock{f, false}, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", claim, err), f.Close())
	}
	if ctx.Err() != nil {
		return nil, errors.Join(busy(ctx, claim), f.Close())
	}
	// flock has no bound of its own. The kernel wakes the waiter at once, where polling would leave the lock unused for
	// some milliseconds at each hand-over: with many calls at once that adds up.
	got := make(chan error)
	go func() {
		err := unix.Flock(fd, unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
		select {
		case got <- err:
		case <-ctx.Done(): // nobody waits any more
			f.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", claim, err), f.Close())
		}
		return &Lock{f, true}, nil
	case <-ctx.Done():
		return nil, busy(ctx, claim)
	}
}

func busy(ctx context.Context, claim string) error {
	return fmt.Errorf("%w: another call holds %s: %w", ErrBusy, claim, ctx.Err())
}

// Held reports whether the lock has not been given back yet.
func (l *Lock) Held() bool { return l != nil && l.f != nil }

// Unlock gives the lock back. The file stays: removing it would let two processes hold different files.
func (l *Lock) Unlock() {
	if l != nil && l.f != nil {
		l.f.Close()
		l.f = nil
	}
}
