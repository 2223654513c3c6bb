package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// HostProc is where the agent's container has the /proc of its node: deployments/base/daemonset.yaml.
const HostProc = "/host/proc"

// Running is the file system of the running machine. In a container that has the /proc of its node, at proc, the files
// are those of the node, through the root directory of its first process: /etc, /lib and /boot of the container are an
// image's. Sysfs and proc are the same kernel's, seen from the container. Elsewhere it is the root directory. With an
// error, which says why the node's files can't be read, it is the container's.
func Running(proc string) (fsys fs.FS, container bool, problem error) {
	root := filepath.Join(proc, "1", "root")
	st, err := os.Stat(root + "/.")
	if errors.Is(err, fs.ErrNotExist) {
		return os.DirFS("/"), false, nil
	}
	own, errOwn := os.Stat("/")
	switch err := errors.Join(err, errOwn); {
	case err != nil:
		return os.DirFS("/"), true, fmt.Errorf("%w: the files of the container are looked at, not those of its "+
			"node", err)
	case os.SameFile(own, st):
		return os.DirFS("/"), false, nil
	}
	return running{kernel: os.DirFS("/"), node: within(root)}, true, nil
}

// running is the file system of a node, seen from a container.
type running struct{ kernel, node fs.FS }

func (r running) of(name string) fs.FS {
	if dir, _, _ := strings.Cut(name, "/"); dir == "sys" || dir == "proc" {
		return r.kernel
	}
	return r.node
}

// Open opens a file.
func (r running) Open(name string) (fs.File, error) { return r.of(name).Open(name) }

// ReadLink reads a link.
func (r running) ReadLink(name string) (string, error) { return fs.ReadLink(r.of(name), name) }

// Stat follows links.
func (r running) Stat(name string) (fs.FileInfo, error) { return fs.Stat(r.of(name), name) }

// Lstat does not.
func (r running) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.of(name), name) }

// within is the root directory of a machine that is not the caller's own: links in it are followed as that machine
// follows them, absolute ones from its root directory.
type within string

// hops is how many links of one path are followed, as many as Linux does.
const hops = 40

// resolve is where a file is, for the caller. Of the last element it follows a link only if it is asked to.
func (w within) resolve(op, name string, last bool) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	done, rest := "/", strings.Split(name, "/")
	for n := 0; len(rest) > 0; {
		next := filepath.Join(done, rest[0]) // .. of the root directory is itself
		rest = rest[1:]
		if len(rest) == 0 && !last {
			return filepath.Join(string(w), next), nil
		}
		if next == "/" { // the way there is a link itself
			done = next
			continue
		}
		target, err := os.Readlink(filepath.Join(string(w), next))
		if err != nil { // it is no link, or is not there
			done = next
			continue
		}
		if n++; n > hops {
			return "", &fs.PathError{Op: op, Path: name, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
	}
	return filepath.Join(string(w), done), nil
}

// Open opens a file.
func (w within) Open(name string) (fs.File, error) {
	at, err := w.resolve("open", name, true)
	if err != nil {
		return nil, err
	}
	return os.Open(at)
}

// ReadLink reads a link.
func (w within) ReadLink(name string) (string, error) {
	at, err := w.resolve("readlink", name, false)
	if err != nil {
		return "", err
	}
	return os.Readlink(at)
}

// Stat follows links.
func (w within) Stat(name string) (fs.FileInfo, error) {
	at, err := w.resolve("stat", name, true)
	if err != nil {
		return nil, err
	}
	return os.Stat(at)
}

// Lstat does not.
func (w within) Lstat(name string) (fs.FileInfo, error) {
	at, err := w.resolve("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return os.Lstat(at)
}
