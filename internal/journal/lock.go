package journal

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/atomicfile"
)

// ErrBusy means that a lock was not to be had in time.
var ErrBusy = errors.New("device busy")

// Lock is held by the process until Unlock, or until it dies.
type Lock struct {
	f      *os.File
	Waited bool // another call had it when we came: what was read before may be old

	set func(fd int, wait bool) error // takes it
	end func(fd int) error            // gives it back before the file is closed; nil: closing does
}

// Lock takes the device's lock. It gives up with ErrBusy when ctx ends.
func (s Store) Lock(ctx context.Context, deviceKey string) (*Lock, error) {
	return flock(ctx, s.Dir, deviceKey, unix.LOCK_EX)
}

// callsLock is the name of the lock that each call of the plugin holds, shared, from its beginning to its end, and
// uninstall whole. No device is named so.
const callsLock = "calls"

// LockCall takes the lock of one call of the plugin: no uninstall removes anything while it is held. It gives up with
// ErrBusy when ctx ends.
func (s Store) LockCall(ctx context.Context) (*Lock, error) {
	return flock(ctx, s.Dir, callsLock, unix.LOCK_SH)
}

// LockCalls takes the lock of all calls: none is at work while it is held. It gives up with ErrBusy when ctx ends.
func (s Store) LockCalls(ctx context.Context) (*Lock, error) {
	return flock(ctx, s.Dir, callsLock, unix.LOCK_EX)
}

// AwayName is the name of a file in the state directory that uninstall makes before it waits for the calls of the
// plugin, and removes as its last step: while it is there no ADD begins.
const AwayName = "uninstalled"

// Away reports whether the plugin is being uninstalled.
func (s Store) Away() bool {
	_, err := os.Lstat(filepath.Join(s.Dir, AwayName))
	return err == nil
}

// flock takes a lock of flock on a whole file.
func flock(ctx context.Context, top, name string, how int) (*Lock, error) {
	f, err := lockFile(top, fileOf(name))
	if err != nil {
		return nil, fmt.Errorf("open lock of %s: %w", name, err)
	}
	return (&Lock{f: f, set: func(fd int, wait bool) error {
		if wait {
			return unix.Flock(fd, how)
		}
		return unix.Flock(fd, how|unix.LOCK_NB)
	}}).take(ctx, name)
}

// LockAttachment takes the lock of an attachment: while it is held, no other call attaches or returns this interface of
// this container. It is taken before any device's lock. It gives up with ErrBusy when ctx ends.
func (s Store) LockAttachment(ctx context.Context, k Key) (*Lock, error) {
	return lockPart(ctx, s.Dir, "attachments", "attachment "+k.String(), k)
}

// LockPod takes the lock under which an ADD chooses one of the devices that ResourceClaims give to a pod. It is taken
// after the attachment's lock and before any device's. It gives up with ErrBusy when ctx ends.
func (s Store) LockPod(ctx context.Context, uid string) (*Lock, error) {
	return lockPart(ctx, s.Dir, "pods", "the claims of pod "+uid, Key{ContainerID: uid})
}

// ipamLocks is the file below locks of LockIPAM.
const ipamLocks = "ipam"

// LockIPAM takes the lock under which an IPAM plugin is called for an attachment. A process that inherits the lock's
// File holds it too, until it ends or Unlock gives it back for all of them.
func (s Store) LockIPAM(ctx context.Context, k Key) (*Lock, error) {
	return lockPart(ctx, s.Dir, ipamLocks, "the IPAM plugin of attachment "+k.String(), k)
}

// lockPart locks one byte of a file that all attachments share, so that there is no file to make for each of them (a
// full /run would forbid it) and none to remove after it. These locks belong to the open file, as those of flock do
// (fcntl(2), open file description locks). Two keys of one hash only wait for each other.
func lockPart(ctx context.Context, top, file, what string, k Key) (*Lock, error) {
	f, err := lockFile(top, file)
	if err != nil {
		return nil, fmt.Errorf("open lock of %s: %w", what, err)
	}
	at := part(k)
	lock := func(kind int16) *unix.Flock_t { return &unix.Flock_t{Type: kind, Start: at, Len: 1} }
	return (&Lock{
		f: f,
		set: func(fd int, wait bool) error {
			if wait {
				return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLKW, lock(unix.F_WRLCK))
			}
			return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, lock(unix.F_WRLCK))
		},
		end: func(fd int) error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, lock(unix.F_UNLCK)) },
	}).take(ctx, what)
}

// part is the byte of an attachment in such a file.
func part(k Key) int64 {
	h := fnv.New64a()
	h.Write([]byte(k.file()))
	return int64(h.Sum64() >> 2)
}

// lockFile opens a file below locks. No child inherits it. What else has its name is removed.
func lockFile(top, name string) (*os.File, error) {
	path := filepath.Join(top, "locks", name)
	f, err := openLock(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	case errors.Is(err, atomicfile.ErrForeign):
		err = mendLock(path)
	default:
		return f, err
	}
	if err != nil {
		return nil, err
	}
	return openLock(path)
}

// openLock opens a regular file, and nothing else of its name.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	for _, no := range []error{unix.EISDIR, unix.ELOOP, unix.ENXIO} {
		if errors.Is(err, no) {
			return nil, fmt.Errorf("%w: %w", atomicfile.ErrForeign, err)
		}
	}
	if err != nil {
		return nil, err
	}
	is, err := f.Stat()
	if err == nil && !is.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", atomicfile.ErrForeign, path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mendLock removes what is no regular file. One call at a time does so: the lock file that another call has made there
// meanwhile stays.
func mendLock(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	if is, err := os.Lstat(path); err != nil || is.Mode().IsRegular() {
		return nil //nolint:nilerr // gone already
	}
	return os.RemoveAll(path)
}

func (l *Lock) take(ctx context.Context, what string) (*Lock, error) {
	f, fd := l.f, int(l.f.Fd())
	err := l.set(fd, false)
	if err == nil {
		return l, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EACCES) {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", what, err), f.Close())
	}
	if ctx.Err() != nil {
		return nil, errors.Join(busy(ctx, what), f.Close())
	}
	// Neither kind of lock has a bound of its own. The kernel wakes the waiter at once, where polling would leave the
	// lock unused for some milliseconds at each hand-over: with many calls at once that adds up.
	got := make(chan error)
	go func() {
		err := l.set(fd, true)
		for errors.Is(err, unix.EINTR) {
			err = l.set(fd, true)
		}
		select {
		case got <- err:
		case <-ctx.Done(): // the caller has given up
			f.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", what, err), f.Close())
		}
		l.Waited = true
		return l, nil
	case <-ctx.Done():
		return nil, busy(ctx, what)
	}
}

func busy(ctx context.Context, what string) error {
	return fmt.Errorf("%w: another call holds %s: %w", ErrBusy, what, ctx.Err())
}

// Held reports whether the lock has not been given back yet.
func (l *Lock) Held() bool { return l != nil && l.f != nil }

// File is the open file that has the lock, for a child to inherit. It is nil when the lock is not held.
func (l *Lock) File() *os.File {
	if l == nil {
		return nil
	}
	return l.f
}

// Unlock gives the lock back. The file stays: removing it would let two processes hold different files.
func (l *Lock) Unlock() {
	if !l.Held() {
		return
	}
	if l.end != nil { // for a child that has inherited it, too
		_ = l.end(int(l.f.Fd()))
	}
	l.f.Close()
	l.f = nil
}
