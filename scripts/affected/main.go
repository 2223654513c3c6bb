// Command affected prints the packages that a change has to do with, for make quick: in its first line those with
// changed files, to be linted, and in its second those whose tests may see the change, to be tested.
//
//	affected BASE   compares the working tree, with its new files, with the commit BASE
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tags are those of this project: a file behind one belongs to its package all the same.
const tags = "failpoint,labguest"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: affected BASE")
	}
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	files, err := changedFiles(args[0])
	if err != nil {
		return err
	}
	packages, err := list(top)
	if err != nil {
		return err
	}
	changed, tested := affected(files, packages)
	_, err = fmt.Fprintf(out, "%s\n%s\n", strings.Join(changed, " "), strings.Join(tested, " "))
	return err
}

// changedFiles returns the paths of files that differ from base, and of files that git does not know yet.
func changedFiles(base string) ([]string, error) {
	var files []string
	for _, args := range [][]string{
		{"diff", "--name-only", "--no-renames", base},
		{"ls-files", "--others", "--exclude-standard"},
	} {
		out, err := command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
		if err != nil {
			return nil, err
		}
		files = append(files, strings.Fields(string(out))...)
	}
	return files, nil
}

// list asks the go command for the packages below top, with the packages that their tests are made of.
func list(top string) ([]pkg, error) {
	out, err := command("go", "list", "-e", "-test", "-tags", tags,
		"-json=ImportPath,ForTest,Dir,Deps,TestGoFiles,XTestGoFiles", "./...")
	if err != nil {
		return nil, err
	}
	byPath := map[string]*pkg{}
	var order []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("output of go list: %w", err)
		}
		path := strings.TrimSuffix(l.ImportPath, ".test")
		if l.ForTest != "" || strings.Contains(l.ImportPath, " ") {
			continue // a variant: the test binary's own line has its dependencies
		}
		p := byPath[path]
		if p == nil {
			p = &pkg{path: path}
			byPath[path] = p
			order = append(order, path)
		}
		if path == l.ImportPath {
			if p.dir, err = filepath.Rel(top, l.Dir); err != nil {
				return nil, err
			}
			for _, f := range append(l.TestGoFiles, l.XTestGoFiles...) {
				text, err := os.ReadFile(filepath.Join(l.Dir, f))
				if err != nil {
					return nil, err
				}
				p.tests = append(p.tests, string(text))
			}
		}
		for _, dep := range l.Deps {
			dep, _, _ = strings.Cut(dep, " ") // "a [b.test]" is a as b's tests see it
			p.deps = append(p.deps, dep)
		}
	}
	packages := make([]pkg, 0, len(order))
	for _, path := range order {
		packages = append(packages, *byPath[path])
	}
	return packages, nil
}

// listed is what go list prints of a package.
type listed struct {
	ImportPath, ForTest, Dir        string
	Deps, TestGoFiles, XTestGoFiles []string
}

func command(name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}
