package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// tree reads small files. It follows symbolic links itself, so that what is read by way of a link is recorded under its
// real path, with the links on the way.
type tree struct {
	fsys     fs.FS
	problems *[]string
}

// real follows all links of a path. It returns "" if there is nothing.
func (t tree) real(name string) string {
	done := "."
	rest := strings.Split(path.Clean(name), "/")
	for hops := 0; len(rest) > 0; {
		next := path.Join(done, rest[0])
		target, err := fs.ReadLink(t.fsys, next)
		if err != nil {
			done, rest = next, rest[1:]
			continue
		}
		if hops++; hops > 40 || path.IsAbs(target) { // sysfs has no absolute ones
			return ""
		}
		joined := path.Join(done, target)
		if strings.HasPrefix(joined, "..") {
			return ""
		}
		done, rest = ".", append(strings.Split(joined, "/"), rest[1:]...)
	}
	if _, err := fs.Stat(t.fsys, done); err != nil {
		return ""
	}
	return done
}

// Real follows all links of a path, without leaving fsys. It returns "" if there is nothing. Files that are read by
// their real path are recorded under it.
func Real(fsys fs.FS, name string) string { return tree{fsys, nil}.real(name) }

// target is the last element of what a link points to; empty without one.
func (t tree) target(name string) string {
	l, err := fs.ReadLink(t.fsys, name)
	if err != nil {
		return ""
	}
	return path.Base(l)
}

// text reads a file without its newline. A file that is not there is empty: attributes differ by driver and kernel, and
// devices leave while they are read.
func (t tree) text(elem ...string) string {
	name := path.Join(elem...)
	b, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			t.problem("%s: no permission; run as root", name)
		}
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// number reads a decimal number, or def.
func (t tree) number(def int, elem ...string) int {
	n, err := strconv.Atoi(t.text(elem...))
	if err != nil {
		return def
	}
	return n
}

// names lists a directory; a missing one is empty.
func (t tree) names(dir string) (names []string) {
	entries, err := fs.ReadDir(t.fsys, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.problem("list %s: %v", dir, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (t tree) problem(format string, args ...any) {
	*t.problems = append(*t.problems, fmt.Sprintf(format, args...))
}
