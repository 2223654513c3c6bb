package main

import (
	"path"
	"slices"
	"strings"
)

// pkg is a package of the module.
type pkg struct {
	path  string
	dir   string   // from the root of the module
	deps  []string // of the package and of its tests, all levels
	tests []string // the text of its test files
}

// affected returns the packages with changed files, and those whose tests may see a change: they are made of a changed
// package, or read a changed file that belongs to none.
func affected(files []string, packages []pkg) (changed, tested []string) {
	isChanged, reads := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if f == "go.mod" || f == "go.sum" {
			for _, p := range packages {
				isChanged[p.path] = true
			}
		}
		if i := owner(f, packages); i >= 0 {
			isChanged[packages[i].path] = true
			continue
		}
		top, _, _ := strings.Cut(f, "/")
		for _, p := range packages {
			if readsBelow(p, top) {
				reads[p.path] = true
			}
		}
	}
	for _, p := range packages {
		if isChanged[p.path] {
			changed = append(changed, p.path)
		}
		if isChanged[p.path] || reads[p.path] ||
			slices.ContainsFunc(p.deps, func(dep string) bool { return isChanged[dep] }) {
			tested = append(tested, p.path)
		}
	}
	return changed, tested
}

// owner returns the index of the package that a file belongs to, by its nearest directory that is one; testdata and
// templates belong to the package above them. Without one it is -1.
func owner(file string, packages []pkg) int {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if i := slices.IndexFunc(packages, func(p pkg) bool { return p.dir == dir }); i >= 0 {
			return i
		}
	}
	return -1
}

// readsBelow reports whether the tests of a package name a file or directory at the root of the repository, and climb
// out of their own. Some of those that do have nothing to do with the change: their tests are run in vain.
func readsBelow(p pkg, top string) bool {
	return slices.ContainsFunc(p.tests, func(text string) bool {
		return strings.Contains(text, `"..`) && strings.Contains(text, top)
	})
}
