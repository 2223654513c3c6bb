package main

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var (
	want  = regexp.MustCompile(`// want ([a-z ]+)$`)
	found = regexp.MustCompile(`(?m)^(\S+\.go:\d+):\d+: .*\(([a-z]+)( \w+)?\)$`)
)

// TestWrong lints testdata/wrong.txtar as scripts/lint.sh does this repository, whose name it has.
func TestWrong(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "lint")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", tool, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wanted := unpack(t, dir)
	vet := exec.Command("go", "vet", "-vettool="+tool, "./...")
	vet.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false") // paths as they are, whatever make sets
	vet.Dir = dir
	out, _ := vet.CombinedOutput() // it fails, as something is found
	var got []string
	for _, m := range found.FindAllStringSubmatch(string(out), -1) {
		got = append(got, m[1]+" "+m[2])
	}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("found:\n%s\nwanted:\n%s\noutput:\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"), out)
	}
}

// unpack writes the files, and returns each finding that they want as file:line linter.
func unpack(t *testing.T, dir string) (wanted []string) {
	t.Helper()
	a, err := txtar.ParseFile("testdata/wrong.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		text := strings.Replace(string(f.Data), "LONG", `_ = "`+strings.Repeat("x", maxLine)+`"`, 1)
		text = strings.Replace(text, "LINES", strings.Repeat("\tWord++\n", maxFunction+1), 1)
		for i := range maxMethods + 1 {
			text = strings.Replace(text, "METHODS", fmt.Sprintf("// M%d is one.\nfunc (Many) M%d() {}\n\nMETHODS", i, i), 1)
		}
		text = strings.Replace(text, "METHODS", "", 1)
		if strings.HasSuffix(f.Name, ".go") && filepath.Base(f.Name) != "unformatted.go" {
			b, err := format.Source([]byte(text))
			if err != nil {
				t.Fatal(f.Name, err)
			}
			text = string(b)
		}
		for i, l := range strings.Split(text, "\n") {
			if m := want.FindStringSubmatch(l); m != nil {
				for _, name := range strings.Fields(m[1]) {
					wanted = append(wanted, fmt.Sprintf("%s:%d %s", f.Name, i+1, name))
				}
			}
		}
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return wanted
}
