package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/integration/lab/bench/bare"
)

// crowded measures an Ethernet interface on a node with so many other network namespaces: ADD and DEL look into each
// for what sits on the interface.
func (b *bench) crowded(j bare.Job) []contestant {
	var out []contestant
	c := &crowd{}
	for _, n := range []int{1, 100, 500} {
		one := b.attachment(strconv.Itoa(n), "fabric", "bench-crowded", j.Pod, conf(j))
		one.before = func() error { return c.show(n) }
		one.after = c.hide
		out = append(out, one)
	}
	return out
}

// crowd is network namespaces. They are there all the time, held by a file that is open, so that the kernel does not
// make or end any while something is measured. The plugin sees those that are mounted.
type crowd struct {
	fds   []int
	shown int
}

const crowdDir = "/run/bench-namespaces"

func (c *crowd) show(n int) error {
	if err := os.MkdirAll(crowdDir, 0o700); err != nil {
		return fmt.Errorf("show network namespaces: %w", err)
	}
	for len(c.fds) < n {
		fd, err := newNamespace()
		if err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		c.fds = append(c.fds, fd)
	}
	for ; c.shown < n; c.shown++ {
		at := fmt.Sprint(crowdDir, "/", c.shown)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			return fmt.Errorf("show network namespace: %w", err)
		}
		if err := unix.Mount(fmt.Sprint("/proc/self/fd/", c.fds[c.shown]), at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount network namespace: %w", err)
		}
	}
	return nil
}

func (c *crowd) hide() error {
	for ; c.shown > 0; c.shown-- {
		if err := unix.Unmount(fmt.Sprint(crowdDir, "/", c.shown-1), unix.MNT_DETACH); err != nil {
			return fmt.Errorf("hide network namespace: %w", err)
		}
	}
	return nil
}

// newNamespace makes a network namespace on a thread that ends.
func newNamespace() (fd int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with it
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}()
	<-done
	return fd, err
}
