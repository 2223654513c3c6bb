package image

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// found returns what each match of a regular expression has in its group.
func found(expression, text string) (list []string) {
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// The Dockerfile makes the image of make image, with the Go of go.mod.
func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	want := []string{
		"golang:" + strings.Join(found(`(?m)^go (\S+)$`, read(t, "go.mod")), "") + " AS build",
		`ENTRYPOINT ["` + strings.Join(config.Entrypoint, `", "`) + `"]`,
		"ENV " + strings.Join(config.Env, " "),
		"LABEL " + versionLabel + "=$VERSION",
		"mkdir -p /out" + strings.Join(dirs, " /out") + " ",
	}
	for _, key := range slices.Sorted(maps.Keys(config.Labels)) {
		want = append(want, "LABEL "+key+"="+config.Labels[key])
	}
	for _, l := range links {
		want = append(want, "ln -s "+l.Link+" /out"+l.Path+" ")
	}
	for _, p := range Programs {
		args := p.BuildArgs("$VERSION", "/out"+bin)
		for i, a := range args {
			if strings.Contains(a, " ") {
				args[i] = `"` + a + `"`
			}
		}
		want = append(want, "go "+strings.Join(args, " "))
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the Dockerfile lacks %q", w)
		}
	}
}

// What the Dockerfile copies exists, passes .dockerignore, and has all that the programs are made of.
func TestDockerfileSources(t *testing.T) {
	var copied []string
	for _, paths := range found(`(?m)^COPY ([^-].*) \S+$`, read(t, "Dockerfile")) {
		copied = append(copied, strings.Fields(paths)...)
	}
	for _, p := range copied {
		if _, err := os.Stat(filepath.Join(root, p)); err != nil {
			t.Error(err)
		}
	}
	sent := found(`(?m)^!(.*)$`, read(t, ".dockerignore"))
	if slices.Sort(copied); !slices.Equal(copied, slices.Sorted(slices.Values(sent))) {
		t.Errorf("the Dockerfile copies %v, .dockerignore lets %v pass", copied, sent)
	}
	dirs := needed(t)
	if len(dirs) < 10 {
		t.Errorf("packages: %v", dirs)
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc(copied, func(c string) bool { return dir == c || strings.HasPrefix(dir, c+"/") }) {
			t.Errorf("%s is needed and not copied", dir)
		}
	}
}

// needed are the directories of this module that the programs are made of.
func needed(t *testing.T) (dirs []string) {
	t.Helper()
	args := []string{"list", "-deps", "-f", "{{if and .Module .Module.Main}}{{.Dir}}{{end}}"}
	for _, p := range Programs {
		args = append(args, "./cmd/"+p.Name)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range bytes.Fields(out) {
		dirs = append(dirs, strings.TrimPrefix(string(dir), top+"/"))
	}
	return dirs
}

// What make build makes has the same flags.
func TestMakefileFlags(t *testing.T) {
	makefile := read(t, "Makefile")
	value := func(name string) string {
		m := found(`(?m)^`+name+` *:= (.*)$`, makefile)
		if m == nil {
			t.Fatalf("the Makefile does not set %s", name)
		}
		return m[0]
	}
	all := value("LDFLAGS")
	for _, p := range Programs {
		want := all
		if p.OneShot {
			want += " " + value("ONESHOT")
		}
		if got := p.BuildArgs("$(VERSION)", "bin"); !slices.Contains(got, want) {
			t.Errorf("%s is built with %v, make build uses %s", p.Name, got, want)
		}
	}
}
