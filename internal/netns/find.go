package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Find opens a namespace whose path is gone, through another mount of it or a process that still lives in it: for as
// long as there is one, it keeps its devices. It returns fs.ErrNotExist when neither exists, and another error when one
// may be there that can't be opened. proc is /proc.
func Find(proc string, id ID) (*NS, error) { return find(proc, id, Mounts, processes) }

// FindLiving is Find through processes alone: no mount counts.
func FindLiving(proc string, id ID) (*NS, error) { return find(proc, id, processes) }

func find(proc string, id ID, where ...func(proc string, id ID) ([]string, error)) (*NS, error) {
	var unopened []error
	for _, candidates := range where {
		paths, err := candidates(proc, id)
		if err != nil {
			//nolint:errorlint // a /proc that is missing (fs.ErrNotExist) is no proof that the namespace is gone
			return nil, fmt.Errorf("search for network namespace %d: %v", id.Ino, err)
		}
		for _, p := range paths {
			n, err := Open(p)
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it ended meanwhile
					unopened = append(unopened, err)
				}
				continue
			}
			if n.ID == id {
				return n, nil
			}
			n.Close()
		}
	}
	if len(unopened) > 0 {
		return nil, fmt.Errorf("look at what may hold network namespace %d: %w", id.Ino, errors.Join(unopened...))
	}
	return nil, fmt.Errorf("no mount and no process holds network namespace %d: %w", id.Ino, fs.ErrNotExist)
}

// Mounts lists where the namespace is bound: its root in mountinfo is net:[inode] (proc(5)). proc is /proc.
func Mounts(proc string, id ID) ([]string, error) {
	// As a whole: a line can be longer than any scanner's buffer (overlays of many layers), and what is missed here
	// makes a pod look dead. Of this thread: the process's first one, for which "self" stands, may have been left in
	// the namespace of inSys, as it can't end.
	b, err := os.ReadFile(filepath.Join(proc, "thread-self", "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	root := fmt.Sprintf("net:[%d]", id.Ino)
	var out []string
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) > 4 && w[3] == root {
			out = append(out, unescape.Replace(w[4]))
		}
	}
	return out, nil
}

// unescape undoes what the kernel does to paths in mountinfo (fs/seq_file.c, mangle_path).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Inhabited reports whether a process is in the namespace, or may be, because /proc can't be read. proc is /proc.
func Inhabited(proc string, id ID) bool {
	in, err := processes(proc, id)
	return err != nil || len(in) > 0
}

func processes(proc string, id ID) ([]string, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var out []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		path := filepath.Join(proc, e.Name(), "ns", "net")
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Ino == id.Ino && st.Dev == id.Dev {
			out = append(out, path)
		}
	}
	return out, nil
}

// DoWithSys runs f with the /sys that a process in the namespace would see: classes net and infiniband show only what
// is in it.
func (n *NS) DoWithSys(f func(sys fs.FS) error) error {
	return n.inSys(true, false, func(dir string) error { return f(os.DirFS(dir)) })
}

// Start starts a process as "ip netns exec" does: in the namespace, with its own /sys, which libibverbs reads, in a
// mount namespace of its own.
func (n *NS) Start(cmd *exec.Cmd) error {
	return n.inSys(true, true, func(string) error { return cmd.Start() })
}

// WriteSys writes a file of that /sys; name is its path there. It returns fs.ErrNotExist if it is missing.
func (n *NS) WriteSys(name string, b []byte) error {
	return n.inSys(false, false, func(dir string) error { return writeSys(filepath.Join(dir, name), b) })
}

// writeSys does not create what is not there.
func writeSys(file string, b []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// inSys runs f where sysfs is mounted for the namespace. The mount lives on a thread of its own and ends with it, and
// with the processes that f has started if it is to stay for them.
func (n *NS) inSys(readOnly, stay bool, f func(dir string) error) error {
	done := make(chan error, 1)
	OnThread(func() { // its mount namespace is private
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("unshare mounts: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			if err := vns.Set(n.handle); err != nil {
				return fmt.Errorf("enter network namespace %s: %w", n.Path, err)
			}
			const dir = "/sys"
			err := unix.Mount("sysfs", dir, "sysfs", 0, "")
			if errors.Is(err, unix.EBUSY) { // the namespace's own is there already (fs/namespace.c, do_add_mount)
				return f(dir)
			}
			if err != nil {
				return fmt.Errorf("mount sysfs of %s: %w", n.Path, err)
			}
			if readOnly { // the mount, never the file system, which is that of the pod as well (kernel fact 47)
				err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
			}
			if err == nil {
				err = f(dir)
			}
			if stay && err == nil {
				return nil
			}
			return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
		}()
	})
	return <-done
}

// OnThread starts f on a thread that ends with it, and is not the main one, which can't end.
func OnThread(f func()) {
	go offMain(f)
}

// offMain runs f on a thread that does nothing else, and that ends with the goroutine unless f unlocks it. That is not
// the main thread, whose namespaces are those of the process for all who look into /proc, Inhabited among them.
func offMain(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}
