package netns

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// What bounds Each and Search: a node may have thousands of processes, and of namespaces that others have left. On a
// node that is just slow, the time alone is no reason to give up.
const (
	mostTime        = 2 * time.Second
	leastPaths      = 1 << 14 // that are looked at even so: mounts, processes, threads, descriptors
	leastNamespaces = 256     // that are opened even so
)

// ErrTooMany means that there was no time to look at all network namespaces.
var ErrTooMany = errors.New("too many network namespaces to look at all")

// Each opens, one after the other, the network namespaces that a mount or a process holds, and calls f until that
// returns true. It gives up after a bounded time, with ErrTooMany. Those that only a thread, an open file or another
// mount namespace holds are not found: see Search. Every one is closed after its call. proc is the /proc that shows all
// processes.
func Each(proc string, f func(*NS) (stop bool)) error {
	e := newEach(f)
	_, err := e.paths(proc, mainThread)
	return err
}

// Search is Each for every network namespace that can be opened, of which there may be some that a process hides. The
// ones that mounts, processes and threads have come first; then mounts in the mount namespaces of processes, then what
// processes have open: namespace files, and sockets, which hold the namespace that they were made in. A process that
// has neither, and is in none, can't get one back. It looks at each descriptor of the node: not in every ADD.
//
// What is left out is a namespace that only a descriptor on its way holds (SCM_RIGHTS), or a device of the kernel's
// own.
func Search(proc string, f func(*NS) (stop bool)) error {
	e := newEach(f)
	if stop, err := e.paths(proc, threads, mountedBy(proc), opened); stop || err != nil {
		return err
	}
	for pid, fd := range sockets(proc) {
		if e.over() {
			return e.err
		}
		ns, err := ofSocket(pid, fd)
		if err != nil {
			continue
		}
		id, err := fdID(ns)
		kept := false
		stop := err == nil && e.visit(id, func() (*NS, error) {
			kept = true
			return identified(fmt.Sprintf("of socket %d of process %d", fd, pid), vns.NsHandle(ns))
		})
		if !kept {
			unix.Close(ns)
		}
		if stop {
			return e.err
		}
	}
	return nil
}

// each is one call of Each or Search.
type each struct {
	f     func(*NS) (stop bool)
	seen  map[ID]bool // without cookies
	looks int         // at paths
	end   time.Time
	err   error
}

func newEach(f func(*NS) (stop bool)) *each {
	return &each{f: f, seen: map[ID]bool{}, end: time.Now().Add(mostTime)}
}

// paths visits what has a path.
func (e *each) paths(proc string, looks ...func(process string) []string) (stop bool, err error) {
	paths, err := candidates(proc, looks)
	if err != nil {
		return false, err
	}
	for p := range paths {
		var st unix.Stat_t
		if e.over() {
			return false, e.err
		}
		if unix.Stat(p, &st) == nil && e.visit(ID{Dev: st.Dev, Ino: st.Ino}, func() (*NS, error) { return Open(p) }) {
			return true, nil
		}
	}
	return false, nil
}

// over counts a path, and says that there is no time left.
func (e *each) over() bool {
	e.looks++
	if (e.looks > leastPaths || len(e.seen) > leastNamespaces) && time.Now().After(e.end) {
		e.err = fmt.Errorf("%w: %d in %s", ErrTooMany, len(e.seen), mostTime)
	}
	return e.err != nil
}

func (e *each) visit(id ID, open func() (*NS, error)) (stop bool) {
	if e.seen[id] {
		return false
	}
	e.seen[id] = true
	n, err := open()
	if err != nil { // it ended meanwhile
		return false
	}
	defer n.Close()
	return e.f(n)
}

// candidates are the paths of network namespaces, some of them several times: mounts, and what looks find at processes.
func candidates(proc string, looks []func(process string) []string) (iter.Seq[string], error) {
	own, err := mountsIn(filepath.Join(proc, "thread-self"))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	pids, err := numbers(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return func(yield func(string) bool) {
		for _, p := range own {
			if !yield(p) {
				return
			}
		}
		for _, look := range looks {
			for _, pid := range pids {
				for _, p := range look(filepath.Join(proc, pid)) {
					if !yield(p) {
						return
					}
				}
			}
		}
	}, nil
}

func numbers(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// mainThread is the namespace that the main thread of a process is in.
func mainThread(process string) []string { return []string{filepath.Join(process, "ns", "net")} }

// threads are the namespaces that the threads of a process are in: each may have its own.
func threads(process string) (out []string) {
	tids, _ := numbers(filepath.Join(process, "task")) // a process that has ended is in none
	for _, tid := range tids {
		out = append(out, filepath.Join(process, "task", tid, "ns", "net"))
	}
	return out
}

// mountedBy returns the mounts in the mount namespace of a process, if no process before was in the same one.
func mountedBy(proc string) func(process string) []string {
	seen := map[uint64]bool{}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(proc, "thread-self", "ns", "mnt"), &st) == nil {
		seen[st.Ino] = true
	}
	return func(process string) (out []string) {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(process, "ns", "mnt"), &st) != nil || seen[st.Ino] {
			return nil
		}
		seen[st.Ino] = true
		list, _ := mountsIn(process) // likewise
		for _, p := range list {
			out = append(out, filepath.Join(process, "root", p))
		}
		return out
	}
}

// opened are the namespace files that a process has open. One that was opened where it is mounted has the name of that
// place, and is known by its inode, of which proc tells the number without asking the file system.
func opened(process string) (out []string) {
	for fd, name := range descriptors(process) {
		if !strings.HasPrefix(name, "net:[") && (!strings.HasPrefix(name, "/") || !likeNamespace(process, fd)) {
			continue
		}
		out = append(out, filepath.Join(process, "fd", fd))
	}
	return out
}

// likeNamespace says whether the number of a file's inode is of the range that the kernel gives to namespaces
// (fs/proc/generic.c, PROC_DYNAMIC_FIRST).
func likeNamespace(process, fd string) bool {
	b, err := os.ReadFile(filepath.Join(process, "fdinfo", fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "ino:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 32)
			return err == nil && n >= 0xf0000000
		}
	}
	return false
}

// descriptors are what a process has open: numbers and names.
func descriptors(process string) iter.Seq2[string, string] {
	return func(yield func(fd, name string) bool) {
		dir := filepath.Join(process, "fd")
		fds, _ := numbers(dir)
		for _, fd := range fds {
			if s, err := os.Readlink(filepath.Join(dir, fd)); err == nil && !yield(fd, s) {
				return
			}
		}
	}
}

// sockets are the sockets of all processes: process and descriptor.
func sockets(proc string) iter.Seq2[int, int] {
	return func(yield func(pid, fd int) bool) {
		pids, _ := numbers(proc)
		for _, p := range pids {
			for fd, name := range descriptors(filepath.Join(proc, p)) {
				pid, _ := strconv.Atoi(p)
				n, _ := strconv.Atoi(fd)
				if strings.HasPrefix(name, "socket:[") && !yield(pid, n) {
					return
				}
			}
		}
	}
}

// ofSocket opens the network namespace in which another process's socket was made (SIOCGSKNS, include/uapi/linux/
// sockios.h). It needs the right to trace that process. With a /proc of another PID namespace, as the agent's container
// has it, pid is another process or none: its sockets are looked at instead, which finds less, and nothing wrong.
func ofSocket(pid, fd int) (int, error) {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	s, err := unix.PidfdGetfd(p, fd, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(s)
	return unix.IoctlRetInt(s, unix.SIOCGSKNS)
}

// mountsIn lists the mounts of network namespaces that a process sees.
func mountsIn(process string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if w := strings.Fields(line); len(w) > 4 && strings.HasPrefix(w[3], "net:[") {
			out = append(out, unescape.Replace(w[4]))
		}
	}
	return out, nil
}
