package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/mod/module"
)

// served puts versions of a module into a module proxy of files.
func served(t *testing.T, dir, path string, goVersions map[string]string) {
	t.Helper()
	escaped, err := module.EscapePath(path)
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	list := ""
	for v, goVersion := range goVersions {
		list += v + "\n"
		for name, text := range map[string]string{
			v + ".info": `{"Version": "` + v + `"}`, v + ".mod": "module " + path + "\n\ngo " + goVersion + "\n",
		} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(at, "list"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The newest release counts that our Go can build and that is not held; a version without a tag is left alone.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	served(t, dir, "example.com/m", map[string]string{
		"v1.2.0": "1.20", "v1.9.0": "1.26.8", "v1.10.0": "1.26.8", "v1.11.0": "1.27.0", "v1.12.0-rc.1": "1.20",
	})
	t.Setenv("GOPROXY", "file://"+dir)
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	for _, c := range []struct{ version, held, want string }{
		{version: "v1.2.0", want: "v1.10.0"},
		{version: "v1.10.0", want: "v1.10.0"},
		{version: "v1.2.0", held: "go.mod example.com/m v1.10.0 why", want: "v1.9.0"},
		{version: "v1.2.0", held: "go.mod example.com/m v1.2.x why", want: "v1.2.0"},
		{version: "v1.2.0", held: "other/go.mod example.com/m v1.10.0 why", want: "v1.10.0"},
		{version: "v1.2.1-0.20260101000000-abcdefabcdef", want: "v1.2.1-0.20260101000000-abcdefabcdef"},
	} {
		p := &proxy{goVersion: "1.26.8", held: readHeld("# comment\n" + c.held + "\n"), lists: map[string][]string{}}
		got, err := p.newest(t.Context(), pin{"go.mod", "example.com/m", c.version})
		if err != nil || got != c.want {
			t.Errorf("%s, held %q: %s, %v; want %s", c.version, c.held, got, err, c.want)
		}
	}
	p := &proxy{goVersion: "1.26.8", lists: map[string][]string{}}
	if _, err := p.newest(t.Context(), pin{"go.mod", "example.com/none", "v1.0.0"}); err == nil {
		t.Error("a module that is not served is up to date")
	}
}

// Direct dependencies and tools count, and what a script names; what is replaced or indirect does not.
func TestPins(t *testing.T) {
	got, err := inModule("go.mod", []byte(`module x

tool example.com/tool/cmd

require (
	example.com/direct v1.0.0
	example.com/indirect v1.0.0 // indirect
	example.com/replaced v1.0.0
	example.com/tool v1.0.0 // indirect
)

replace example.com/replaced => example.com/replaced v1.1.0
`))
	want := []pin{{"go.mod", "example.com/direct", "v1.0.0"}, {"go.mod", "example.com/tool", "v1.0.0"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
	got = inScript("a.sh", `cd "$(go mod download -json example.com/a/b@v1.2.3 | sed)" # root@v and foo@bar`)
	if !slices.Equal(got, []pin{{"a.sh", "example.com/a/b", "v1.2.3"}}) {
		t.Errorf("%v", got)
	}
	// The go.mod files and scripts of this repository have some.
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(string(root)))
	if all, err := all(t.Context()); err != nil || len(all) < 40 {
		t.Errorf("%v %v", all, err)
	}
}
