package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrHeldAlive means that a process holds LockIPAM that was not marked by its environment.
var ErrHeldAlive = errors.New("held by a call that goes on")

// EndIPAM kills the processes that hold LockIPAM of an attachment, if all of them have the variable in the environment
// in which they were started: an IPAM plugin has, and so has what that starts, but not the call that has started the
// plugin, so that call is dead. It returns how many it has killed. proc is a /proc that shows them; a process that this
// one can't see by itself, as from a container, is not killed.
func (s Store) EndIPAM(proc string, k Key, variable string) (killed int, err error) {
	var own unix.Stat_t
	if err := unix.Stat(filepath.Join(s.Dir, "locks", ipamLocks), &own); err != nil {
		return 0, fmt.Errorf("find the holders of a lock: %w", err)
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return 0, fmt.Errorf("find the holders of a lock: %w", err)
	}
	var found []*os.File
	defer func() {
		for _, f := range found {
			f.Close()
		}
	}()
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.Open(filepath.Join(proc, e.Name())) // another process that gets its number is not meant
		if err != nil {
			continue // it has ended
		}
		if !holds(p, &own, part(k)) {
			p.Close()
			continue
		}
		found = append(found, p)
		env, err := os.ReadFile(in(p, "environ"))
		if err != nil || !strings.Contains("\x00"+string(env), "\x00"+variable+"=") {
			return 0, ErrHeldAlive
		}
	}
	for _, p := range found {
		switch err := unix.PidfdSendSignal(int(p.Fd()), unix.SIGKILL, nil, 0); {
		case err == nil:
			killed++
		case !errors.Is(err, unix.ESRCH):
			return killed, fmt.Errorf("end a process that an IPAM plugin has left behind: %w", err)
		}
	}
	return killed, nil
}

// in is a path in a directory that is open.
func in(dir *os.File, name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name) }

// holds reports whether a process has a file open that holds the lock at an offset of it: fdinfo lists the locks of an
// open file (proc_pid_fdinfo(5)).
func holds(p *os.File, lock *unix.Stat_t, offset int64) bool {
	fds, err := os.ReadDir(in(p, "fd"))
	if err != nil {
		return false
	}
	want := []byte(fmt.Sprintf(" %d %d\n", offset, offset))
	for _, fd := range fds {
		var st unix.Stat_t
		if unix.Stat(in(p, "fd/"+fd.Name()), &st) != nil || st.Dev != lock.Dev || st.Ino != lock.Ino {
			continue
		}
		info, err := os.ReadFile(in(p, "fdinfo/"+fd.Name()))
		if err == nil && bytes.Contains(info, []byte("OFDLCK")) && bytes.Contains(info, want) {
			return true
		}
	}
	return false
}
