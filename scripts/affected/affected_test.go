package main

import (
	"os"
	"strings"
	"testing"
)

var packages = []pkg{
	{path: "m/pkg/a", dir: "pkg/a"},
	{path: "m/pkg/b", dir: "pkg/b", deps: []string{"m/pkg/a", "fmt"}},
	{path: "m/pkg/c", dir: "pkg/c", tests: []string{`read(t, "../../docs/c.md")`}},
	{path: "m/cmd/d", dir: "cmd/d", deps: []string{"m/pkg/a", "m/pkg/b"}, tests: []string{"docs"}},
}

func TestAffected(t *testing.T) {
	for _, tc := range []struct{ name, files, changed, tested string }{
		{"nothing", "", "", ""},
		{"what others import", "pkg/a/a.go", "m/pkg/a", "m/pkg/a m/pkg/b m/cmd/d"},
		{"what nobody imports", "cmd/d/main.go", "m/cmd/d", "m/cmd/d"},
		{"data of a package", "pkg/b/testdata/x/y.golden", "m/pkg/b", "m/pkg/b m/cmd/d"},
		{"a page that a test reads", "docs/c.md", "", "m/pkg/c"},
		{"a file that nobody reads", "LICENSE", "", ""},
		{"all dependencies", "go.sum", "m/pkg/a m/pkg/b m/pkg/c m/cmd/d", "m/pkg/a m/pkg/b m/pkg/c m/cmd/d"},
	} {
		changed, tested := affected(strings.Fields(tc.files), packages)
		if c, d := strings.Join(changed, " "), strings.Join(tested, " "); c != tc.changed || d != tc.tested {
			t.Errorf("%s: changed %q, to be tested %q, want %q, %q", tc.name, c, d, tc.changed, tc.tested)
		}
	}
}

// The module as it is: this package is affected by its own files, and the plugin by what every package is made of.
func TestModule(t *testing.T) {
	t.Chdir("../..")
	top, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	packages, err := list(top)
	if err != nil {
		t.Fatal(err)
	}
	_, tested := affected([]string{"pkg/device/device.go"}, packages)
	text := strings.Join(tested, " ") + " "
	for _, want := range []string{"/pkg/device ", "/plugins/fabric ", "/cmd/fabric ", "/integration/lab/agent "} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not affected by pkg/device: %v", want, tested)
		}
	}
	changed, tested := affected([]string{"scripts/affected/main.go"}, packages)
	if len(changed) != 1 || len(tested) != 1 || !strings.HasSuffix(changed[0], "/scripts/affected") {
		t.Errorf("a change of this package affects %v, tests of %v", changed, tested)
	}
}
