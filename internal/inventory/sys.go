package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Sys is a directory such as /sys: what os.DirFS returns, but that it reads an attribute with three system calls. Go's
// own need nine, and wake a thread of the runtime's, because a file of sysfs can be polled (fs/kernfs/file.c). An ADD
// reads some 20 attributes, and two of each HCA of the node if it sets a GUID.
type Sys string

// ReadFile reads a file as a whole.
func (s Sys) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	fd, err := retry(func() (int, error) {
		return unix.Open(filepath.Join(string(s), name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	const page = 4096 // one read returns an attribute whole, or that much of a binary one (fs/kernfs/file.c)
	var b []byte
	for {
		b = slices.Grow(b, page)
		n, err := retry(func() (int, error) { return unix.Read(fd, b[len(b):len(b)+page]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		b = b[:len(b)+n]
		if n < page {
			return b, nil
		}
	}
}

func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Open opens a file.
func (s Sys) Open(name string) (fs.File, error) { return s.dir().Open(name) }

// ReadDir lists a directory, by name.
func (s Sys) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(s.dir(), name) }

// Stat describes a file.
func (s Sys) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.dir(), name) }

// Lstat describes a file, or a symbolic link itself.
func (s Sys) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(s.dir(), name) }

// ReadLink returns what a symbolic link says.
func (s Sys) ReadLink(name string) (string, error) { return fs.ReadLink(s.dir(), name) }

func (s Sys) dir() fs.FS { return os.DirFS(string(s)) }
