// Package foreign finds what lies in the plugin's state directory and has no business there: damaged entries, and files
// and directories that no program of this project writes. They cost themselves only, and stay until an administrator
// has looked at them.
package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// most bounds how many are named: there may be any number.
const most = 50

// In names what is foreign or damaged in a state directory, each with its path and what is wrong with it. It changes
// nothing.
func In(stateDir string) []string {
	_, err := journal.Store{Dir: stateDir}.List()
	out := lines(err)
	_, err = prepared.In(stateDir).All()
	out = append(out, lines(err)...)
	for _, p := range []struct {
		pattern string
		is      fs.FileMode // what belongs there
	}{
		{"claims/*", fs.ModeDir}, {"claims/*/owner", fs.ModeSymlink}, {"claims/*/children", fs.ModeDir},
		{"claims/*/children/*", fs.ModeSymlink}, {"names/*", fs.ModeSymlink}, {"netdevs/*", fs.ModeSymlink},
		{"tenants/*", fs.ModeSymlink}, {"locks/*", 0}, {"ipam/*", fs.ModeDir}, {"ipam/*/*", 0},
	} {
		paths, err := filepath.Glob(filepath.Join(stateDir, p.pattern))
		out = append(out, lines(err)...)
		for _, path := range paths {
			is, err := os.Lstat(path)
			if err == nil && is.Mode().Type() != p.is {
				out = append(out, fmt.Sprintf("%s is %s, want %s", path, kind(is.Mode()), kind(p.is)))
			}
		}
	}
	slices.Sort(out)
	if more := len(out) - most; more > 0 {
		out = append(out[:most], fmt.Sprintf("%d more in %s", more, stateDir))
	}
	return out
}

func kind(m fs.FileMode) string {
	names := map[fs.FileMode]string{0: "a file", fs.ModeDir: "a directory", fs.ModeSymlink: "a symbolic link"}
	return cmp.Or(names[m.Type()], "a special file")
}

// lines are the single errors of a joined one.
func lines(err error) (out []string) {
	var all interface{ Unwrap() []error }
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &all) && err.Error() == errors.Join(all.Unwrap()...).Error(): // of errors.Join
		for _, e := range all.Unwrap() {
			out = append(out, lines(e)...)
		}
		return out
	}
	return []string{strings.ReplaceAll(err.Error(), "\n", " ")}
}
