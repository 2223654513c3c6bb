package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names and contents of the files are those of the plugin's own store (backend/disk, v1.9.1).
const (
	lockName   = "lock"
	lastPrefix = "last_reserved_ip."
	lineBreak  = "\r\n"
)

// Bounds of what is read and of what is waited for.
const (
	maxHolder = 1 << 10  // bytes of an address's file: a container ID and the name of an interface
	maxLimit  = 64 << 10 // of the file ranges
	maxResolv = 64 << 10 // of resolvConf
	lockWait  = 10 * time.Second
)

// dir is the open directory of a network. The zero value is that of a network that has none: it holds no address. Every
// file is opened by its name in this directory: no link is followed, and nothing is read that is no regular file.
type dir struct{ f, lock *os.File }

// openDir opens the directory of a network below dataDir, and makes both if create is set. dataDir itself is the node
// owner's choice, so links lead there; the directory of the network may be none.
func openDir(dataDir, network string, create bool) (d dir, err error) {
	path := filepath.Join(dataDir, network)
	if network == "" || filepath.Base(network) != network || network == "." || network == ".." {
		return d, fmt.Errorf("network name %q: want the plain name of a directory", network)
	}
	if create {
		if err := os.MkdirAll(dataDir, 0o755); err != nil { //nolint:filemode // as the plugin makes it
			return d, err
		}
	}
	top, err := unix.Open(dataDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(top)
		if create {
			if err = unix.Mkdirat(top, network, 0o755); errors.Is(err, unix.EEXIST) {
				err = nil
			}
		}
	}
	var fd int
	if err == nil {
		fd, err = openat(top, network, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if errors.Is(err, fs.ErrNotExist) && !create {
		return d, nil
	}
	if err != nil {
		return d, &fs.PathError{Op: "open directory of addresses", Path: path, Err: err}
	}
	return dir{f: os.NewFile(uintptr(fd), path)}, nil
}

// openLocked opens the directory of a network and takes its lock. Without create it makes neither the directory nor the
// lock: a directory without a lock was never used by a plugin, and is read without one.
func openLocked(ctx context.Context, dataDir, network string, create bool) (dir, error) {
	d, err := openDir(dataDir, network, create)
	if err != nil || d.f == nil {
		return d, err
	}
	if err := d.takeLock(ctx, create); err != nil {
		d.close()
		return dir{}, err
	}
	return d, nil
}

// takeLock waits for the lock until the context ends, and for no longer than lockWait.
func (d *dir) takeLock(ctx context.Context, create bool) error {
	flags := unix.O_RDONLY | unix.O_NONBLOCK
	if create {
		flags |= unix.O_CREAT
	}
	fd, err := openat(d.fd(), lockName, flags, 0o750)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil
	}
	if err != nil {
		return d.failed("open lock of", err)
	}
	lock := os.NewFile(uintptr(fd), lockName)
	if _, err := regular(fd); err != nil {
		lock.Close()
		return d.failed("open lock of", err)
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		d.lock = lock
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	got := make(chan error)
	go func() {
		err := unix.Flock(fd, unix.LOCK_EX)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
		select {
		case got <- err:
		case <-ctx.Done(): // a descriptor in use by flock(2) can't be closed before
			lock.Close()
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			lock.Close()
			return d.failed("lock", err)
		}
		d.lock = lock
		return nil
	case <-ctx.Done():
		return d.failed("wait for another process that holds the lock of", context.Cause(ctx))
	}
}

func (d *dir) close() {
	d.f.Close()
	d.lock.Close() // which gives the lock back
}

func (d *dir) fd() int { return int(d.f.Fd()) }

func (d *dir) failed(what string, err error) error {
	return fmt.Errorf("%s %s: %w", what, d.f.Name(), err)
}

// holder is an address that is given, and the content of its file.
type holder struct {
	name string
	ip   net.IP
	who  string
}

// holders are the addresses that are given. A file that is too long, or that can't be read, is of no attachment.
func (d *dir) holders() (out []holder, err error) {
	names, err := d.names()
	for _, name := range names {
		if b, err := d.read(name, maxHolder); err == nil {
			out = append(out, holder{name, net.ParseIP(name), strings.TrimSpace(string(b))})
		}
	}
	return out, err
}

// names are the addresses that have a file, sorted.
func (d *dir) names() (out []string, err error) {
	if d.f == nil {
		return nil, nil
	}
	_, err = d.f.Seek(0, io.SeekStart)
	entries, lerr := d.f.ReadDir(-1)
	if err = errors.Join(err, lerr); err != nil {
		return nil, d.failed("list", err)
	}
	for _, e := range entries {
		if net.ParseIP(e.Name()) != nil && e.Type().IsRegular() {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// GetByID returns the addresses of an attachment. The plugin wrote the container's ID alone before v0.7.
func (d *dir) GetByID(who claim) (out []net.IP) {
	all, _ := d.holders()
	id := strings.TrimSpace(who.id)
	for _, h := range all {
		if h.who == id+lineBreak+who.ifname || h.who == id {
			out = append(out, h.ip)
		}
	}
	return out
}

// Reserve gives an address to an attachment, and reports whether it was free.
func (d *dir) Reserve(who claim, ip net.IP, rangeID string) (bool, error) {
	name := ip.String()
	fd, err := openat(d.fd(), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, d.failed("reserve "+name+" in", err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(strings.TrimSpace(who.id) + lineBreak + who.ifname)
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.setLast(rangeID, name)
	}
	if err != nil {
		return false, d.failed("reserve "+name+" in", errors.Join(err, unix.Unlinkat(d.fd(), name, 0)))
	}
	return true, nil
}

// setLast notes the address that was reserved last. What is in its place and is no regular file of this name alone is
// replaced: to write there would write elsewhere.
func (d *dir) setLast(rangeID, ip string) error {
	name := lastPrefix + rangeID
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1) {
		if err := unix.Unlinkat(d.fd(), name, 0); err != nil {
			return fmt.Errorf("replace %s: %w", name, err)
		}
	}
	fd, err := openat(d.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(ip)
	return errors.Join(err, f.Close())
}

// LastReservedIP returns the address that was reserved last of a range set, nil if that is not known.
func (d *dir) LastReservedIP(rangeID string) net.IP {
	b, err := d.read(lastPrefix+rangeID, maxHolder)
	if err != nil {
		return nil
	}
	return net.ParseIP(string(b))
}

// release frees the addresses of an attachment, and with the lock also those of a process that was killed after it had
// made the file and before it had written who has the address: no process is about to write it now.
func (d *dir) release(who claim) error {
	all, err := d.holders()
	id := strings.TrimSpace(who.id)
	match := id + lineBreak + who.ifname
	if !slices.ContainsFunc(all, func(h holder) bool { return h.who == match }) {
		match = id // as the plugin wrote it before v0.7
	}
	errs := []error{err}
	for _, h := range all {
		if h.who != match && (h.who != "" || d.lock == nil) {
			continue
		}
		if err := unix.Unlinkat(d.fd(), h.name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, d.failed("release "+h.name+" in", err))
		}
	}
	return errors.Join(errs...)
}

// read reads a regular file of at most so many bytes. Without a directory it returns fs.ErrNotExist.
func (d *dir) read(name string, most int64) ([]byte, error) {
	if d.f == nil {
		return nil, fs.ErrNotExist
	}
	fd, err := openat(d.fd(), name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readFD(fd, most)
}

// readFD reads the file of a descriptor that was opened with O_PATH: so a device, which may do something when it is
// opened, or a FIFO, which may never be, is told from a regular file before.
func readFD(fd int, most int64) ([]byte, error) {
	size, err := regular(fd)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("is %d bytes long: want %d at most", size, most)
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("is longer than %d bytes", most)
	}
	return b, err
}

// regular returns the size of a regular file, and an error for everything else.
func regular(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, errors.New("is no regular file")
	}
	return st.Size, nil
}

// openat opens a name in a directory. The way never leaves the directory, and no symbolic link is followed. The kernel
// has this since 5.6.
func openat(at int, name string, flags int, mode uint64) (int, error) {
	if flags&unix.O_CREAT == 0 {
		mode = 0 // the kernel refuses any other
	}
	for {
		fd, err := unix.Openat2(at, name, &unix.OpenHow{
			Flags: uint64(flags | unix.O_CLOEXEC), Mode: mode,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) { // a rename anywhere on the way: openat2(2)
			return fd, err
		}
	}
}
