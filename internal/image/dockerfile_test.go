package image_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/fabric-cni/fabric-cni/internal/image"
)

var update = flag.Bool("update", false, "write the Dockerfile and .dockerignore")

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The Dockerfile is the one that makes the image of make image, with the Go of go.mod.
func TestDockerfile(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	if version == nil {
		t.Fatal("go.mod names no Go version")
	}
	for name, want := range map[string]string{
		"Dockerfile": image.Dockerfile(version[1]), ".dockerignore": image.Dockerignore(),
	} {
		if *update {
			if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(t, name); got != want {
			t.Errorf("%s is\n%s\nwant (go test ./internal/image -update writes it)\n%s", name, got, want)
		}
	}
}

// BuildKit's own parser has nothing to say about the Dockerfile. What is copied is there, and is all that the programs
// are made of.
func TestDockerfileBuilds(t *testing.T) {
	tree, err := parser.Parse(strings.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := instructions.Parse(tree.AST, nil)
	if err != nil || len(stages) != 2 {
		t.Fatalf("%d stages, %v", len(stages), err)
	}
	for _, w := range tree.Warnings {
		t.Errorf("line %v: %s", w.Location, w.Short)
	}
	var copied []string
	for _, c := range stages[0].Commands {
		if c, ok := c.(*instructions.CopyCommand); ok {
			copied = append(copied, c.SourcePaths...)
		}
	}
	for _, p := range copied {
		if _, err := os.Stat(filepath.Join(root, p)); err != nil {
			t.Error(err)
		}
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
	for _, p := range image.Programs {
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
		m := regexp.MustCompile(`(?m)^` + name + ` *:= (.*)$`).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile does not set %s", name)
		}
		return m[1]
	}
	all := value("LDFLAGS")
	for _, p := range image.Programs {
		want := all
		if p.OneShot {
			want += " " + value("ONESHOT")
		}
		if got := p.BuildArgs("$(VERSION)", "bin"); !slices.Contains(got, want) {
			t.Errorf("%s is built with %v, make build uses %s", p.Name, got, want)
		}
	}
}
