// Package atomicfile writes small files whole: a reader sees the old content or the new content, and never a part of
// it, whatever dies. The content goes to a temporary file in the same directory, which is then renamed.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Sync says what a file survives once it has been written.
type Sync int

const (
	// NoSync is for a file that is written again after a crash of the kernel.
	NoSync Sync = iota
	// SyncFile flushes the content before the rename. After a crash of the kernel the file has the old content or the
	// new content, but is never empty.
	SyncFile
	// SyncDir flushes the directory as well: after Write has returned, the new content survives a power cut.
	SyncDir
)

// File says how a file is written.
type File struct {
	Path string
	Mode fs.FileMode // permissions of the file; the umask is ignored
	// DirMode is used when the directory is missing and has to be created. 0: a missing directory is an error.
	DirMode fs.FileMode
	// Temp is the name of the temporary file. A "*" in it is replaced by a random string, which is necessary where
	// several processes may write the file at the same time. Without one, the next Write overwrites a temporary file
	// that a killed process left behind. Empty: a dot and the name of the file.
	Temp string
	Sync Sync
	// KeepLabel gives the new file the SELinux label of the file that it replaces. Without a file, label or SELinux the
	// new file keeps the label that the kernel gave it: the type of the directory.
	KeepLabel bool
	// Exclusive: a file that is there already is left alone, and the error matches fs.ErrExist.
	Exclusive bool
}

// Write puts the content in place.
func (f File) Write(content []byte) error { return f.WriteFrom(bytes.NewReader(content)) }

// WriteFrom puts in place what it reads from r until EOF. When it fails, the old file is untouched and no temporary
// file is left.
func (f File) WriteFrom(r io.Reader) error {
	tmp, err := f.create()
	if err != nil {
		return err
	}
	_, cerr := io.Copy(tmp, r)
	err = errors.Join(cerr, f.finish(tmp), tmp.Close())
	if err == nil {
		err = f.rename(tmp.Name())
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	if f.Sync < SyncDir {
		return nil
	}
	if err := syncDir(filepath.Dir(f.Path)); err != nil {
		return fmt.Errorf("flush the directory of %s, which is written: %w", f.Path, err)
	}
	return nil
}

func (f File) rename(tmp string) error {
	if !f.Exclusive {
		return os.Rename(tmp, f.Path)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, f.Path, unix.RENAME_NOREPLACE); err != nil {
		return &fs.PathError{Op: "create", Path: f.Path, Err: err}
	}
	return nil
}

// create opens the temporary file. It creates the directory only when it proves to be missing: it almost never is.
func (f File) create() (*os.File, error) {
	tmp, err := f.open()
	if f.DirMode == 0 || !errors.Is(err, fs.ErrNotExist) {
		return tmp, err
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), f.DirMode); err != nil {
		return nil, err
	}
	return f.open()
}

func (f File) open() (*os.File, error) {
	dir, base := filepath.Split(f.Path)
	name := f.Temp
	if name == "" {
		name = "." + base
	}
	if strings.Contains(name, "*") {
		if dir == "" {
			dir = "."
		}
		return os.CreateTemp(dir, name)
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | unix.O_NOFOLLOW
	return os.OpenFile(dir+name, flags, 0o600)
}

// finish gives the temporary file what it needs beside its content.
func (f File) finish(tmp *os.File) error {
	if err := tmp.Chmod(f.Mode); err != nil {
		return err
	}
	if f.KeepLabel {
		if err := f.keepLabel(tmp); err != nil {
			return err
		}
	}
	if f.Sync < SyncFile {
		return nil
	}
	return tmp.Sync()
}

func (f File) keepLabel(tmp *os.File) error {
	const name = "security.selinux"
	var label [512]byte
	n, err := unix.Getxattr(f.Path, name, label[:])
	if err != nil {
		return nil //nolint:nilerr // no file yet, no label, or no SELinux: nothing to keep
	}
	if err := unix.Fsetxattr(int(tmp.Fd()), name, label[:n], 0); err != nil {
		return fmt.Errorf("give %s the SELinux label of the old file: %w", tmp.Name(), err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
