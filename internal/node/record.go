package node

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing/fstest"
	"time"
)

// Recorder is a file system that remembers what was read from it. What a reader has looked at is all it needs the next
// time: so a recording is never short of a file, and never has one that was not read.
type Recorder struct {
	fs.FS
	mu   sync.Mutex
	seen fstest.MapFS
}

// NewRecorder wraps root.
func NewRecorder(root fs.FS) *Recorder { return &Recorder{FS: root, seen: fstest.MapFS{}} }

func (r *Recorder) keep(name string, f *fstest.MapFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.seen[name]
	if !ok || old.Data == nil && f.Data != nil || old.Mode&fs.ModeSymlink != 0 && follow(r.seen, name) != nil {
		if ok {
			f.ModTime = old.ModTime
		}
		r.seen[name] = f
	}
}

// ReadFile reads a file and remembers it.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	b, err := fs.ReadFile(r.FS, name)
	if err == nil {
		r.keep(name, &fstest.MapFile{Data: append([]byte{}, b...), Mode: 0o644})
	}
	return b, err
}

// ReadLink reads a link and remembers it.
func (r *Recorder) ReadLink(name string) (string, error) {
	l, err := fs.ReadLink(r.FS, name)
	if err == nil {
		r.keep(name, &fstest.MapFile{Data: []byte(l), Mode: fs.ModeSymlink | 0o777})
	}
	return l, err
}

// Lstat passes through.
func (r *Recorder) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(r.FS, name) }

// Stat remembers that a directory is there, and of a file outside of sysfs when it was written. In sysfs that means
// nothing, and would make recordings of the same state differ.
func (r *Recorder) Stat(name string) (fs.FileInfo, error) {
	i, err := fs.Stat(r.FS, name)
	switch {
	case err != nil:
	case i.IsDir():
		r.keep(name, &fstest.MapFile{Mode: fs.ModeDir | 0o755})
	case !strings.HasPrefix(name, "sys/"):
		r.keep(name, &fstest.MapFile{Mode: 0o644})
		r.mu.Lock()
		r.seen[name].ModTime = i.ModTime().Truncate(time.Second) // as fine as tar has it
		r.mu.Unlock()
	}
	return i, err
}

// ReadDir lists a directory and remembers its entries: links with their targets, files by name alone.
func (r *Recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.FS, name)
	for _, e := range entries {
		full := path.Join(name, e.Name())
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			_, _ = r.ReadLink(full) // one that is gone by now is not recorded
		case e.IsDir():
			r.keep(full, &fstest.MapFile{Mode: fs.ModeDir | 0o755})
		default:
			r.keep(full, &fstest.MapFile{Mode: 0o644})
		}
	}
	return entries, err
}

// Put adds a file that the tree does not have.
func (r *Recorder) Put(name string, content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[name] = &fstest.MapFile{Data: content, Mode: 0o644}
}

// Rewrite changes the content of every file that is held, by its path.
func (r *Recorder) Rewrite(change func(name string, content []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, f := range r.seen {
		if f.Mode.IsRegular() && len(f.Data) > 0 {
			f.Data = change(name, f.Data)
		}
	}
}

// WriteTo writes what was read as tar.gz, the same bytes for the same content.
func (r *Recorder) WriteTo(w io.Writer) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := &counter{w: w}
	zip := gzip.NewWriter(count)
	out := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(r.seen)) {
		f := r.seen[name]
		if f.Mode&fs.ModeSymlink != 0 && follow(r.seen, name) != nil {
			f = &fstest.MapFile{Mode: 0o644} // a link to nowhere in this tree: its name is all there is
		}
		h := &tar.Header{
			Name:     name,
			Mode:     int64(f.Mode.Perm()),
			Typeflag: tar.TypeReg,
			Size:     int64(len(f.Data)),
			ModTime:  f.ModTime,
		}
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, string(f.Data), 0
		case f.Mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		if err := out.WriteHeader(h); err != nil {
			return count.n, fmt.Errorf("write recording: %w", err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := out.Write(f.Data); err != nil {
				return count.n, fmt.Errorf("write recording: %w", err)
			}
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		return count.n, fmt.Errorf("write recording: %w", err)
	}
	return count.n, nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// Record reads the node through a Recorder, which then holds all that Open needs.
func Record(root fs.FS, store Store) (*Recorder, *Node, error) {
	live, err := live(root, store)
	if err != nil {
		return nil, nil, err
	}
	b, err := json.MarshalIndent(live, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	r := NewRecorder(root)
	r.Put(LiveFile, append(b, '\n'))
	n, err := Read(r, live)
	return r, n, err
}
