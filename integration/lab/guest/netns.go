package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The main thread can't end: a goroutine that left it in a pod's network namespace would keep that namespace for ever.
// So it stays with the main goroutine, which never enters one.
func init() { runtime.LockOSThread() }

// Pod is a network namespace with a path, as a container runtime makes it.
type Pod struct {
	Name   string
	Path   string // /run/netns/NAME
	handle *netlink.Handle
}

// NewPod creates the network namespace NAME; it is deleted when the test ends.
func NewPod(t testing.TB, name string) *Pod {
	t.Helper()
	p := &Pod{Name: name, Path: filepath.Join("/run/netns", name)}
	if err := p.create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.remove(); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	return p
}

// Recreate puts a new network namespace at the same path, as a runtime may do for another pod.
func (p *Pod) Recreate(t testing.TB) {
	t.Helper()
	if err := p.create(); err != nil {
		t.Fatal(err)
	}
}

// Delete unmounts and removes the path and closes the pod's Handle. The namespace itself ends with the last process in
// it, some time later.
func (p *Pod) Delete(t testing.TB) {
	t.Helper()
	if err := p.remove(); err != nil {
		t.Fatal(err)
	}
}

func (p *Pod) create() error {
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	f, err := os.OpenFile(p.Path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	f.Close()
	done := make(chan error)
	go func() {
		// Never unlocked: a thread that has changed its namespace must not be used again.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		done <- unix.Mount("/proc/thread-self/ns/net", p.Path, "none", unix.MS_BIND, "")
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	return nil
}

func (p *Pod) remove() error {
	if p.handle != nil {
		p.handle.Close()
		p.handle = nil
	}
	if err := unix.Unmount(p.Path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount pod %s: %w", p.Name, err)
	}
	if err := os.Remove(p.Path); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Name, err)
	}
	return nil
}

// Do runs f on a thread that is in the pod's network namespace. f must not start goroutines that expect to be there;
// a process that it starts is there.
func (p *Pod) Do(f func() error) error {
	ns, err := netns.GetFromPath(p.Path)
	if err != nil {
		return fmt.Errorf("open pod %s: %w", p.Name, err)
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, see create
		// Sent also if f ends its goroutine, as t.Fatal does.
		err := errors.New("the function did not return")
		defer func() { done <- err }()
		if enterErr := netns.Set(ns); enterErr != nil {
			err = fmt.Errorf("enter pod %s: %w", p.Name, enterErr)
			return
		}
		err = f()
	}()
	return <-done
}

// DoSysfs is Do with the pod's own view of /sys, as its containers have it. The network namespace that mounted a sysfs
// decides what it shows, not that of the reader.
func (p *Pod) DoSysfs(f func() error) error {
	return p.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare mounts: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("make mounts private: %w", err)
		}
		// The host's own is there already: the kernel refuses to mount a file system over itself.
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount sysfs: %w", err)
		}
		return f()
	})
}

// Sysfs returns the names in a directory of the pod's own /sys; none if there is no such directory.
func (p *Pod) Sysfs(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := p.DoSysfs(func() error {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Handle returns a netlink handle into the pod's network namespace. It keeps the namespace alive until Delete.
func (p *Pod) Handle(t testing.TB) *netlink.Handle {
	t.Helper()
	if p.handle != nil {
		return p.handle
	}
	ns, err := netns.GetFromPath(p.Path)
	if err != nil {
		t.Fatalf("open pod %s: %v", p.Name, err)
	}
	defer ns.Close()
	p.handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE, unix.NETLINK_RDMA)
	if err != nil {
		t.Fatalf("open netlink in pod %s: %v", p.Name, err)
	}
	return p.handle
}

// Command runs a program in the pod and returns its output.
func (p *Pod) Command(name string, args ...string) (string, error) {
	var out []byte
	err := p.Do(func() error {
		var err error
		out, err = exec.Command(name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
		}
		return nil
	})
	return string(out), err
}

// Process is a process that keeps a pod's network namespace alive.
type Process struct{ cmd *exec.Cmd }

// Spawn starts a process in the pod that does nothing; it is killed when the test ends.
func (p *Pod) Spawn(t testing.TB) *Process {
	t.Helper()
	proc := &Process{cmd: exec.Command("/run/busybox", "sleep", "100000")}
	if err := p.Do(proc.cmd.Start); err != nil {
		t.Fatalf("start process in pod %s: %v", p.Name, err)
	}
	t.Cleanup(proc.Kill)
	return proc
}

// Kill ends the process. A second call does nothing.
func (p *Process) Kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.cmd.Wait()
}

// PID returns the process id, for netlink's namespaces by PID.
func (p *Process) PID() int { return p.cmd.Process.Pid }
