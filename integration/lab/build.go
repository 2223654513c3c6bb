package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Build is a static binary to make for the guests.
type Build struct {
	Name    string // of the file
	Package string // import path, or ./path in the repository
	Tags    string
	Test    bool // the package's test binary
	Release bool // stripped, as make build does it
	OneShot bool // with make build's settings for a process that lives for milliseconds
}

// Binaries are what every guest test finds in $FABRIC_BIN_DIR. A suite's other programs are in Suite.Tools. A test
// can't use any others: its result is cached by the content of these. The foreign plugins come from the versions in
// go.mod, which keeps them as tools.
var Binaries = []Build{
	{Name: "fabric", Package: "./cmd/fabric", Tags: "failpoint"},
	{Name: "cnitool", Package: "github.com/containernetworking/cni/cnitool"},
	{Name: "static", Package: "github.com/containernetworking/plugins/plugins/ipam/static"},
	{Name: "host-local", Package: "github.com/containernetworking/plugins/plugins/ipam/host-local"},
	{Name: "host-device", Package: "github.com/containernetworking/plugins/plugins/main/host-device"},
}

// tools are what some suites have in addition to Binaries.
var tools = []Build{{Name: "fabricctl", Package: "./cmd/fabricctl"}}

// TempDir creates a directory that guests can see, for binaries and results, and removes what killed runs left there.
func TempDir(prefix string) (string, error) {
	base := filepath.Join(Cache(), "run")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", fmt.Errorf("create %s: %w", base, err)
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", base, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(filepath.Join(base, e.Name()))
		}
	}
	dir, err := os.MkdirTemp(base, prefix)
	if err != nil {
		return "", fmt.Errorf("create directory for the guests: %w", err)
	}
	return dir, nil
}

// Make builds each of builds into dir.
func Make(ctx context.Context, dir string, builds []Build) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	for _, b := range builds {
		if err := b.make(ctx, root, dir); err != nil {
			return err
		}
	}
	return nil
}

func (b Build) make(ctx context.Context, root, dir string) error {
	args := []string{"build"}
	if b.Test {
		args = []string{"test", "-c"}
	}
	// The same source gives the same binary in every directory and commit: results are cached by its content.
	args = append(args, "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, b.Name))
	if flags := b.ldflags(); flags != "" {
		args = append(args, "-ldflags", flags)
	}
	if b.Tags != "" {
		args = append(args, "-tags", b.Tags)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, b.Package)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", b.Package, err, bytes.TrimSpace(out))
	}
	return nil
}

func (b Build) ldflags() string {
	var flags string
	if b.Release {
		flags = "-s -w -buildid="
	}
	if b.OneShot {
		flags += " -X runtime.godebugDefault=disablethp=1" // see ONESHOT in the Makefile
	}
	return flags
}

// moduleRoot returns the directory of this module's go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find go.mod: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("find go.mod: %w", errors.Join(fs.ErrNotExist, errors.New("not inside the module")))
	}
	return filepath.Dir(mod), nil
}
