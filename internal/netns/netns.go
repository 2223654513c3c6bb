// Package netns opens network namespaces, tells them apart and runs code in them.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ID is the identity of a namespace. The kernel gives a path and an inode on nsfs to the next namespace as soon as the
// old one is gone, the cookie to none until the next boot.
type ID struct {
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Cookie uint64 `json:"cookie,omitempty"` // SO_NETNS_COOKIE, since 5.14; 0 before
}

// NS is an open network namespace.
type NS struct {
	Path   string
	ID     ID
	handle vns.NsHandle
}

// Open opens the namespace at path. It returns an error that matches fs.ErrNotExist when there is no file, or when the
// file is what is left of an unmounted namespace (an empty regular file).
func Open(path string) (*NS, error) {
	h, err := vns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return identified(path, h)
}

// identified finds out what was opened, and closes it if that is no network namespace.
func identified(path string, h vns.NsHandle) (_ *NS, err error) {
	n := &NS{Path: path, handle: h}
	var fst unix.Statfs_t
	if err := unix.Fstatfs(int(h), &fst); err != nil {
		h.Close()
		return nil, fmt.Errorf("inspect network namespace %s: %w", path, err)
	}
	if fst.Type != unix.NSFS_MAGIC {
		h.Close()
		return nil, fmt.Errorf(
			"open network namespace %s: not a namespace, its mount is gone: %w",
			path,
			fs.ErrNotExist,
		)
	}
	if typ, err := unix.IoctlRetInt(int(h), unix.NS_GET_NSTYPE); err == nil && typ != unix.CLONE_NEWNET {
		h.Close()
		return nil, fmt.Errorf(
			"open network namespace %s: a namespace of another type (0x%x): %w",
			path,
			typ,
			unix.EINVAL,
		)
	}
	n.ID, err = fdID(int(h))
	if err == nil {
		n.ID.Cookie, err = n.cookie()
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("inspect network namespace %s: %w", path, err)
	}
	return n, nil
}

// New makes a namespace that lives as long as it is open.
func New() (*NS, error) {
	here, err := Current()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	var made *NS
	err = here.Do(func() (err error) { // the thread comes back
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create network namespace: %w", err)
		}
		made, err = Current()
		return err
	})
	return made, err
}

// Current opens the calling thread's namespace.
func Current() (*NS, error) {
	return Open("/proc/thread-self/ns/net")
}

// IDOf tells the identity of the namespace at path without keeping it open.
func IDOf(path string) (ID, error) {
	n, err := Open(path)
	if err != nil {
		return ID{}, err
	}
	defer n.Close()
	return n.ID, nil
}

// FD is the open file descriptor, as IFLA_NET_NS_FD and RDMA_NLDEV_NET_NS_FD want it.
func (n *NS) FD() int { return int(n.handle) }

// Close lets go of the namespace.
func (n *NS) Close() error { return n.handle.Close() }

// Do runs f on a thread that is in this namespace. The kernel compares the calling thread's namespace when an RDMA
// device changes namespace (drivers/infiniband/core/device.c, rdma_dev_change_netns), so a socket alone is not enough.
// A thread that can't be brought back is not reused: it ends with its goroutine.
func (n *NS) Do(f func() error) error {
	done := make(chan error, 1)
	go offMain(func() { done <- n.inThread(f) })
	return <-done
}

// inThread is called on a locked thread.
func (n *NS) inThread(f func() error) error {
	// Not vns.Get, which asks /proc for the numbers that this process has for itself and its thread: called by the
	// agent's container with the node's /proc, it would get the namespace of another process, or none.
	orig, err := vns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open the current network namespace: %w", err)
	}
	defer orig.Close()
	if err := vns.Set(n.handle); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n.Path, err)
	}
	err = f()
	if back := vns.Set(orig); back != nil {
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", n.Path, back))
	}
	runtime.UnlockOSThread()
	return err
}

// cookie asks a socket in the namespace: there is no other way to it.
func (n *NS) cookie() (cookie uint64, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if errors.Is(err, unix.ENOPROTOOPT) {
			return nil
		}
		return err
	})
	return cookie, err
}

func fdID(fd int) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ID{}, err
	}
	return ID{Dev: st.Dev, Ino: st.Ino}, nil
}
