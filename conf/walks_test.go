package conf_test

import (
	"encoding/json"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A setting of a network is named in as many files as CONTRIBUTING.md says at most: types, parser and plan.
func TestWalkSetting(t *testing.T) {
	const most = 8
	name := regexp.MustCompile(`\b[dD]etectConflicts\b`)
	var files []string
	walkGo(t, func(file string) {
		rel, _ := filepath.Rel(root, file)
		top, _, _ := strings.Cut(rel, "/")
		in := top == "internal" || top == "pkg" || top == "plugins"
		if in && !strings.HasSuffix(rel, "_test.go") && !strings.Contains(rel, "zz_generated") && names(t, file, name) {
			files = append(files, rel)
		}
	})
	if len(files) < 3 || len(files) > most {
		t.Errorf("detectConflicts is in %d files, from 3 to %d are wanted:\n%s", len(files), most,
			strings.Join(files, "\n"))
	}
}

// names reports whether the code of a file, without its comments, has the name.
func names(t *testing.T, file string, name *regexp.Regexp) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile(file, -1, len(b)), b, nil, 0)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return false
		case name.MatchString(text):
			return true
		}
	}
}

// An IPAM type whose ranges are known is a row and its functions: with them in a scratch copy its ranges are read.
func TestWalkIPAMType(t *testing.T) {
	dir := t.TempDir()
	pkg, err := filepath.Abs(root + "internal/ipam/ranges")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(pkg, "ranges.go"))
	if err != nil {
		t.Fatal(err)
	}
	row := strings.Replace(string(b), "section []byte) (*Section, error){\n",
		"section []byte) (*Section, error){\n\t\"walk\": byWalk,\n", 1)
	changed := map[string]string{
		"ranges.go": row,
		"walk.go": `package ranges

func byWalk([]byte) (*Section, error) { return &Section{Ranges: []Range{{Field: "ipam.walk"}}}, nil }
`,
		"walk_test.go": `package ranges

import "testing"

func TestWalk(t *testing.T) {
	s, err := Read([]byte("{\"type\":\"walk\"}"))
	if err != nil || len(s.Ranges) != 1 || s.Ranges[0].Field != "ipam.walk" {
		t.Fatal(s, err)
	}
}
`}
	overlay := map[string]map[string]string{"Replace": {}}
	for name, text := range changed {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay["Replace"][filepath.Join(pkg, name)] = file
	}
	if b, err = json.Marshal(overlay); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	test := exec.Command("go", "test", "-overlay", file, "-run", "^TestWalk$", "-v", "./internal/ipam/ranges")
	test.Dir = root
	if out, err := test.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestWalk ") {
		t.Errorf("%v\n%s", err, out)
	}
}
