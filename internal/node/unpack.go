package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

// Limits of a recording. One of a node with 16 HCAs has about 5,000 entries and 2 MB; its deepest path is a GID of a
// function behind several PCI bridges.
const (
	maxFile    = 16 << 20      // bytes of one file
	maxRecord  = 64 << 20      // bytes of all files
	maxStream  = 3 * maxRecord // bytes of the archive, unpacked, with its headers
	maxEntries = 200_000       // files, directories and links; also entries of one directory
	maxDepth   = 64            // elements of a path
	maxName    = 255           // bytes of an element of a path, as the kernel has it (NAME_MAX)
	maxHops    = 40            // links on the way to a file, as the kernel has it (MAXSYMLINKS)
)

// Unpack reads a recording into memory. One that goes beyond the limits, has a link that leaves the tree or leads in a
// circle, or has anything but files, directories and links, is refused.
func Unpack(in io.Reader) (fs.FS, error) {
	zip, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("read recording: not a tar.gz: %w", err)
	}
	u := unpacker{tree: fstest.MapFS{}, files: tar.NewReader(&limited{zip, maxStream})}
	for {
		h, err := u.files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.add(h)
		}
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
	}
	for name, f := range u.tree {
		if f.Mode&fs.ModeSymlink == 0 {
			continue
		}
		if err := follow(u.tree, name); err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
	}
	return u.tree, nil
}

type unpacker struct {
	tree    fstest.MapFS
	files   *tar.Reader
	entries int
	total   int64
}

func (u *unpacker) add(h *tar.Header) error {
	if u.entries++; u.entries > maxEntries {
		return fmt.Errorf("more than %d entries", maxEntries)
	}
	name := path.Clean(strings.TrimPrefix(h.Name, "/"))
	if err := checkPath(name); err != nil {
		return fmt.Errorf("path %q: %w", short(h.Name), err)
	}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader: // a comment, as git archive writes one
	case tar.TypeSymlink:
		if len(h.Linkname) > maxDepth*maxName {
			return fmt.Errorf("link %q: its target has more than %d bytes", name, maxDepth*maxName)
		}
		u.tree[name] = &fstest.MapFile{Data: []byte(h.Linkname), Mode: fs.ModeSymlink | 0o777}
	case tar.TypeDir:
		u.tree[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	case tar.TypeReg:
		if h.Size > maxFile {
			return fmt.Errorf("file %q: has %d bytes, more than %d", name, h.Size, maxFile)
		}
		if u.total += h.Size; u.total > maxRecord {
			return fmt.Errorf("more than %d bytes unpacked", maxRecord)
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, io.LimitReader(u.files, maxFile)); err != nil {
			return fmt.Errorf("file %q: %w", name, err)
		}
		u.tree[name] = &fstest.MapFile{Data: b.Bytes(), Mode: 0o644, ModTime: h.ModTime}
	default:
		return fmt.Errorf("%q is no file, directory or symbolic link (type %q of tar)", name, h.Typeflag)
	}
	return nil
}

// checkPath holds the limits of a path in a recording.
func checkPath(name string) error {
	if !fs.ValidPath(name) {
		return errors.New("leaves the tree")
	}
	elements := strings.Split(name, "/")
	if len(elements) > maxDepth {
		return fmt.Errorf("is more than %d levels deep", maxDepth)
	}
	for _, e := range elements {
		if len(e) > maxName {
			return fmt.Errorf("has a name of more than %d bytes", maxName)
		}
	}
	return nil
}

// short is a text for an error.
func short(s string) string { return s[:min(len(s), maxName)] }

// follow follows a link, and all links on the way. It fails if they lead out of the tree, or in a circle, which
// fstest.MapFS would follow without end.
func follow(all fstest.MapFS, name string) error {
	done, rest := ".", strings.Split(name, "/")
	for hops := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		link := all[next]
		if link == nil || link.Mode&fs.ModeSymlink == 0 {
			done, rest = next, rest[1:]
			continue
		}
		target := path.Join(done, string(link.Data))
		if path.IsAbs(string(link.Data)) || checkPath(target) != nil {
			return fmt.Errorf("link %q leaves the tree: it points to %q", name, short(string(link.Data)))
		}
		if hops++; hops > maxHops {
			return fmt.Errorf("link %q leads in a circle", name)
		}
		done, rest = ".", append(strings.Split(target, "/"), rest[1:]...)
	}
	return nil
}

// limited is a reader that fails once it has read more than left bytes.
type limited struct {
	io.Reader
	left int64
}

func (l *limited) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b[:min(int64(len(b)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooMuch
	}
	return n, err
}

var errTooMuch = errors.New("it is longer than a recording may be")
