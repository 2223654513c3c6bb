package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// OpenDir opens a directory that has the tree of a machine, such as a recording that was unpacked. No link leads out of
// it, and it has the limits of a recording: what is no regular file, such as a fifo or a device, is never opened.
func OpenDir(name string) (fs.FS, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &dir{root: root}, nil
}

type dir struct {
	root  *os.Root
	total atomic.Int64 // bytes that were read
}

// Open opens a regular file or a directory.
func (d *dir) Open(name string) (fs.File, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return &dirFile{f, limited{f, maxFile}}, nil
}

// open looks before it opens, as opening a device can do something, and again after; it does not wait for a fifo.
func (d *dir) open(name string) (*os.File, error) {
	if err := checkPath(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: short(name), Err: err}
	}
	st, err := d.root.Stat(name)
	if err == nil {
		err = usual(name, st)
	}
	if err != nil {
		return nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	if st, err = f.Stat(); err == nil {
		err = usual(name, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

var errNoFile = errors.New("is no file, directory or symbolic link")

func usual(name string, st fs.FileInfo) error {
	if !st.Mode().IsRegular() && !st.IsDir() {
		return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w (%v)", errNoFile, st.Mode().Type())}
	}
	return nil
}

// ReadFile reads a file within the limits.
func (d *dir) ReadFile(name string) ([]byte, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxFile:
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("has more than %d bytes", maxFile)}
	case d.total.Add(int64(len(b))) > maxRecord:
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("more than %d bytes in all", maxRecord)}
	}
	return b, nil
}

// ReadDir lists a directory.
func (d *dir) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(maxEntries + 1)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	case len(list) > maxEntries:
		return nil, &fs.PathError{Op: "list", Path: name, Err: fmt.Errorf("more than %d entries", maxEntries)}
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// ReadLink reads a link.
func (d *dir) ReadLink(name string) (string, error) { return d.root.Readlink(name) }

// Stat is that of the directory.
func (d *dir) Stat(name string) (fs.FileInfo, error) { return d.root.Stat(name) }

// Lstat is that of the directory.
func (d *dir) Lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

// dirFile is an open file that is read no further than the limit.
type dirFile struct {
	file *os.File
	limited
}

// Stat is that of the file.
func (f *dirFile) Stat() (fs.FileInfo, error) { return f.file.Stat() }

// Close closes the file.
func (f *dirFile) Close() error { return f.file.Close() }

// ReadDir lists a directory.
func (f *dirFile) ReadDir(n int) ([]fs.DirEntry, error) { return f.file.ReadDir(n) }
