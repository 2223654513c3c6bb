// Command outdated prints what is behind its newest release, a line for each, and nothing if nothing is:
//
//   - direct dependencies and tools of every go.mod
//   - modules that a script names with their version
//
// It asks the module proxy alone, once for each module. A release that needs a newer Go than go.mod names does not
// count; neither does one in held.txt. Pre-releases and versions without a tag are left alone.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// heldFile has the releases that are not taken, with the reason.
const heldFile = "scripts/outdated/held.txt"

// pin is a module that a file names with its version.
type pin struct{ File, Module, Version string }

// held is a line of heldFile: FILE MODULE RELEASE REASON. RELEASE is one release that is not taken, or like v1.34.x:
// those of it alone are taken.
type held struct{ File, Module, Release string }

func (h held) refuses(p pin, version string) bool {
	if h.File != p.File || h.Module != p.Module {
		return false
	}
	if line, ok := strings.CutSuffix(h.Release, "x"); ok {
		return !strings.HasPrefix(version, line)
	}
	return version == h.Release
}

func main() {
	behind, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "outdated:", err)
		os.Exit(1)
	}
	if behind {
		os.Exit(1)
	}
}

func run(ctx context.Context) (behind bool, err error) {
	b, err := os.ReadFile("go.mod")
	if err != nil {
		return false, err
	}
	main, err := modfile.Parse("go.mod", b, nil)
	if err != nil {
		return false, err
	}
	pins, err := all(ctx)
	if err != nil {
		return false, err
	}
	b, err = os.ReadFile(heldFile)
	if err != nil {
		return false, err
	}
	p := &proxy{goVersion: main.Go.Version, held: readHeld(string(b)), lists: map[string][]string{}}
	for _, pin := range pins {
		newest, err := p.newest(ctx, pin)
		switch {
		case err != nil:
			fmt.Fprintf(os.Stderr, "outdated: %s: %s: can't be looked up: %v\n", pin.File, pin.Module, err)
		case newest != pin.Version:
			fmt.Printf("%s: %s %s -> %s\n", pin.File, pin.Module, pin.Version, newest)
			behind = true
		}
	}
	return behind, nil
}

func readHeld(text string) (out []held) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 3 && !strings.HasPrefix(line, "#") {
			out = append(out, held{f[0], f[1], f[2]})
		}
	}
	return out
}

// all are the pins of every go.mod and script that git knows.
func all(ctx context.Context) (out []pin, err error) {
	files, err := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "ls-files", "go.mod", "*/go.mod",
		"scripts/*.sh").Output()
	if err != nil {
		return nil, fmt.Errorf("list go.mod files: %w", err)
	}
	for _, file := range strings.Fields(string(files)) {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if filepath.Base(file) != "go.mod" {
			out = append(out, inScript(file, string(b))...)
			continue
		}
		pins, err := inModule(file, b)
		if err != nil {
			return nil, err
		}
		out = append(out, pins...)
	}
	return out, nil
}

// inModule are the direct dependencies and the modules of the tools. What a replace line sets follows another module.
func inModule(file string, text []byte) (out []pin, err error) {
	f, err := modfile.Parse(file, text, nil)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Require {
		tool := slices.ContainsFunc(f.Tool, func(t *modfile.Tool) bool {
			return t.Path == r.Mod.Path || strings.HasPrefix(t.Path, r.Mod.Path+"/")
		})
		replaced := slices.ContainsFunc(f.Replace, func(p *modfile.Replace) bool { return p.Old.Path == r.Mod.Path })
		if (tool || !r.Indirect) && !replaced {
			out = append(out, pin{file, r.Mod.Path, r.Mod.Version})
		}
	}
	return out, nil
}

var scriptPin = regexp.MustCompile(`([a-z0-9-]+(?:\.[a-z0-9-]+)+(?:/[\w.-]+)+)@(v[0-9][\w.-]*)`)

func inScript(file, text string) (out []pin) {
	for _, m := range scriptPin.FindAllStringSubmatch(text, -1) {
		out = append(out, pin{file, m[1], m[2]})
	}
	return out
}

// proxy asks the go command, which asks the module proxy.
type proxy struct {
	goVersion string
	held      []held
	lists     map[string][]string // by module
}

// newest is the newest release that can be taken, or else the pin's own version.
func (p *proxy) newest(ctx context.Context, pin pin) (string, error) {
	if strings.Contains(pin.Version, "-0.") || strings.HasPrefix(pin.Version, "v0.0.0-") {
		return pin.Version, nil // no release has it
	}
	list, ok := p.lists[pin.Module]
	if !ok {
		var m struct{ Versions []string }
		if err := ask(ctx, &m, "list", "-m", "-versions", "-json", pin.Module); err != nil {
			return "", err
		}
		list = m.Versions
		p.lists[pin.Module] = list
	}
	for _, v := range slices.Backward(list) {
		if semver.Compare(v, pin.Version) <= 0 {
			break
		}
		refused := slices.ContainsFunc(p.held, func(h held) bool { return h.refuses(pin, v) })
		if refused || semver.Prerelease(v) != "" {
			continue
		}
		var m struct{ GoMod string }
		if err := ask(ctx, &m, "list", "-m", "-json", pin.Module+"@"+v); err != nil {
			return "", err
		}
		text, err := os.ReadFile(m.GoMod)
		if err != nil {
			return "", err
		}
		f, err := modfile.ParseLax(m.GoMod, text, nil)
		if err != nil {
			return "", err
		}
		if f.Go == nil || semver.Compare("v"+f.Go.Version, "v"+p.goVersion) <= 0 {
			return v, nil
		}
	}
	return pin.Version, nil
}

// ask runs the go command in a directory without a go.mod, so that no module's requirements change the answer.
func ask(ctx context.Context, into any, args ...string) error {
	dir, err := os.MkdirTemp("", "outdated")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var problem bytes.Buffer
	c.Stderr = &problem
	out, err := c.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(problem.String()), "\n")
		return fmt.Errorf("%w: %s", err, line)
	}
	return json.Unmarshal(out, into)
}
