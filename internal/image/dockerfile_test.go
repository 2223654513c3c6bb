package main

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/fabric-cni/fabric-cni/internal/image/oci"
)

const root = "../.."

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stages has BuildKit's own parser read the Dockerfile.
func stages(t *testing.T) (build, image instructions.Stage) {
	t.Helper()
	tree, err := parser.Parse(bytes.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := instructions.Parse(tree.AST, nil)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d stages, %v", len(list), err)
	}
	for _, w := range tree.Warnings {
		t.Errorf("line %v: %s", w.Location, w.Short)
	}
	return list[0], list[1]
}

// commands are those of a kind, in a stage.
func commands[C instructions.Command](s instructions.Stage) (out []C) {
	for _, c := range s.Commands {
		if c, ok := c.(C); ok {
			out = append(out, c)
		}
	}
	return out
}

// What is copied is there, and is all that the programs are made of; Go is the one of go.mod.
func TestDockerfileBuilds(t *testing.T) {
	build, _ := stages(t)
	var copied []string
	for _, c := range commands[*instructions.CopyCommand](build) {
		for _, p := range c.SourcePaths {
			if _, err := os.Stat(filepath.Join(root, p)); err != nil {
				t.Error(err)
			}
			if !bytes.Contains(read(t, ".dockerignore"), []byte("\n!"+p+"\n")) {
				t.Errorf(".dockerignore keeps %s from the build", p)
			}
			copied = append(copied, p)
		}
	}
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if and .Module .Module.Main}}{{.Dir}}{{end}}", "./cmd/fabric",
		"./cmd/fabric-agent")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(out))
	if len(dirs) < 10 {
		t.Errorf("packages: %v", dirs)
	}
	for _, dir := range dirs {
		rel := strings.TrimPrefix(dir, top+"/")
		if !slices.ContainsFunc(copied, func(c string) bool { return rel == c || strings.HasPrefix(rel, c+"/") }) {
			t.Errorf("%s is needed and not copied", rel)
		}
	}
	_, version, _ := strings.Cut(build.BaseName, ":")
	if !bytes.Contains(read(t, "go.mod"), []byte("\ngo "+version+"\n")) {
		t.Errorf("it builds with %s, go.mod wants another", build.BaseName)
	}
}

// The image is the one that make image writes: the same files, the same start.
func TestDockerfileImage(t *testing.T) {
	build, image := stages(t)
	if image.BaseName != "scratch" {
		t.Errorf("it is based on %s", image.BaseName)
	}
	for _, c := range commands[*instructions.CopyCommand](image) {
		if c.From != build.Name || !slices.Equal(c.SourcePaths, []string{"/out/"}) || c.DestPath != "/" {
			t.Errorf("%s", c)
		}
	}
	want := oci.Agent("amd64", "bin", "v1")
	if e := commands[*instructions.EntrypointCommand](image); len(e) != 1 ||
		!slices.Equal(e[0].CmdLine, want.Config.Entrypoint) {
		t.Errorf("entrypoint %v, want %v", e, want.Config.Entrypoint)
	}
	if e := commands[*instructions.EnvCommand](image); len(e) != 1 || len(e[0].Env) != 1 ||
		e[0].Env[0].String() != want.Config.Env[0] {
		t.Errorf("environment %v, want %v", e, want.Config.Env)
	}
	var run strings.Builder
	for _, c := range commands[*instructions.RunCommand](build) {
		run.WriteString(strings.Join(c.CmdLine, " ") + "\n")
	}
	for _, f := range want.Files {
		wanted := regexp.QuoteMeta("/out" + f.Path)
		if f.Source != "" {
			wanted = "(?m)-o /out" + path.Dir(f.Path) + `/( \./cmd/[a-z-]+)* \./cmd/` + path.Base(f.Path) + `(\s|$)`
		}
		if !regexp.MustCompile(wanted).MatchString(run.String()) {
			t.Errorf("%s is not made: no %q in\n%s", f.Path, wanted, run.String())
		}
	}
	for _, flags := range strings.Split(string(read(t, "scripts/image.sh")), "\n") {
		if _, rest, ok := strings.Cut(flags, "-ldflags \""); ok {
			f, _, _ := strings.Cut(rest, "\"")
			if f = strings.ReplaceAll(f, "$version", "$VERSION"); !strings.Contains(run.String(), f+`"`) {
				t.Errorf("the programs are built with other flags than %s", f)
			}
		}
	}
}
