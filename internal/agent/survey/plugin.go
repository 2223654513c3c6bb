package survey

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Root is the root directory of the node, as its container runtime sees it. Links are followed as on the node: one that
// leaves the directory that a container has mounted leads where it leads there.
type Root struct {
	fd int
}

// OpenRoot opens the root of the node through a mounted /proc of it; without one, the agent's own root.
func OpenRoot(hostProc string) (*Root, error) {
	dir := "/"
	if hostProc != "" {
		dir = filepath.Join(hostProc, "1/root")
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root directory of the node %s: %w", dir, err)
	}
	return &Root{fd}, nil
}

// Close closes the directory.
func (r *Root) Close() { _ = unix.Close(r.fd) }

// Executable tells whether this file of the node is one that can be executed. The error is os.ErrNotExist if there is
// no such file, ErrDangling if it is a link that leads nowhere, ErrNotExecutable if it can't be executed, and another
// one if that can't be told.
func (r *Root) Executable(file string) error {
	fd, err := r.open(file, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = os.ErrNotExist
	}
	if err != nil {
		if to := r.link(file); to != "" && errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %w: %s", file, ErrDangling, to)
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return fmt.Errorf("%s: %w", file, ErrNotExecutable)
	}
	return nil
}

// What is not a plugin.
var (
	ErrNotExecutable = errors.New("it is no executable file")
	ErrDangling      = errors.New("it is a link to what is not there")
)

// link is where a link leads that leads nowhere.
func (r *Root) link(file string) string {
	fd, err := r.open(file, unix.O_NOFOLLOW)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

// open finds a file below the root as the node does (openat2(2), Linux 5.6).
func (r *Root) open(file string, flags uint64) (int, error) {
	return unix.Openat2(r.fd, file, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// Names lists a directory of the node, the first names of it.
func (r *Root) Names(dir string) []string {
	fd, err := unix.Openat2(r.fd, dir, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	const most = 500
	names, _ := f.Readdirnames(most) // as many as can be read: only a hint is made of them
	return names
}
