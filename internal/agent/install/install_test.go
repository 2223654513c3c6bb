package install_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func target(t *testing.T) install.Target {
	t.Helper()
	dir := t.TempDir()
	tt := install.Target{Source: filepath.Join(dir, "image", "fabric"), BinDir: filepath.Join(dir, "opt", "cni", "bin"),
		Store: journal.Store{Dir: filepath.Join(dir, "run")}}
	write(t, tt.Source, "the binary", 0o755)
	return tt
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func entry(t *testing.T, s journal.Store, id string) {
	t.Helper()
	e := &journal.Entry{
		Key:       journal.Key{ContainerID: id, IfName: "net1"},
		Kind:      journal.KindDevice,
		Network:   "ib",
		DeviceKey: "pci/0000:3b:00.0",
	}
	if err := s.Save(e); err != nil {
		t.Fatal(err)
	}
}

// listing is what is in the plugin directory, with modes.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, st.Mode().String()+" "+e.Name())
	}
	return out
}

func TestInstall(t *testing.T) {
	tt := target(t)
	for i, want := range []bool{true, false} {
		if changed, err := tt.Install(); err != nil || changed != want {
			t.Fatalf("install %d: %v, %v", i, changed, err)
		}
	}
	want := []string{"-rwxr-xr-x fabric"}
	if got := listing(t, tt.BinDir); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for name, spoil := range map[string]func() error{
		"other content": func() error { return os.WriteFile(tt.Path(), []byte("another"), 0o755) },
		"other mode":    func() error { return os.Chmod(tt.Path(), 0o644) },
		"removed":       func() error { return os.Remove(tt.Path()) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if same, err := tt.Same(); same || err != nil {
			t.Errorf("%s: same %v, %v", name, same, err)
		}
		if changed, err := tt.Install(); !changed || err != nil {
			t.Errorf("%s: %v, %v", name, changed, err)
		}
		if got := listing(t, tt.BinDir); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A runtime that executes the old binary makes it unwritable (ETXTBSY), but not irreplaceable.
func TestInstallWhileRunning(t *testing.T) {
	tt := target(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	write(t, tt.Path(), string(b), 0o755)
	cmd := exec.Command(tt.Path(), "60")
	cmd.Args[0] = "sleep" // which may be a busybox
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	sandbox.Until(t, "the old binary runs", func() bool {
		return errors.Is(os.WriteFile(tt.Path(), nil, 0o755), unix.ETXTBSY)
	})
	if changed, err := tt.Install(); !changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
	if got, err := os.ReadFile(tt.Path()); err != nil || string(got) != "the binary" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestInstallSweepsItsOwn(t *testing.T) {
	tt := target(t)
	for _, name := range []string{".fabric.fabric-agent-123", "bridge", ".bridge.tmp", ".fabric-other"} {
		write(t, filepath.Join(tt.BinDir, name), "", 0o600)
	}
	if _, err := tt.Install(); err != nil {
		t.Fatal(err)
	}
	want := []string{"-rw------- .bridge.tmp", "-rw------- .fabric-other", "-rw------- bridge", "-rwxr-xr-x fabric"}
	if got := listing(t, tt.BinDir); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A failed install leaves nothing of itself, and the old binary in place.
func TestInstallFails(t *testing.T) {
	tt := target(t)
	write(t, tt.Path(), "old", 0o755)
	tt.Source = filepath.Join(filepath.Dir(tt.Source), "missing", "fabric")
	if _, err := tt.Install(); err == nil || !strings.Contains(err.Error(), tt.Source) {
		t.Errorf("%v", err)
	}
	if got := listing(t, tt.BinDir); len(got) != 1 {
		t.Errorf("%v", got)
	}
	dir := target(t)
	if err := os.MkdirAll(dir.Path(), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Install(); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a directory in its place: %v", err)
	}
}

func TestInstallRefusesNewerState(t *testing.T) {
	tt := target(t)
	write(t, filepath.Join(tt.Store.Dir, "attachments", "a@net1"), `{"version":99}`, 0o600)
	_, err := tt.Install()
	if !errors.Is(err, install.ErrNewerState) || !strings.Contains(err.Error(), "a@net1") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(tt.Path()); err == nil {
		t.Error("installed all the same")
	}
}

func TestUninstall(t *testing.T) {
	tt := target(t)
	if _, err := tt.Install(); err != nil {
		t.Fatal(err)
	}
	entry(t, tt.Store, "pod-a")
	err := tt.Uninstall(false)
	if !errors.Is(err, install.ErrInUse) ||
		!strings.Contains(err.Error(), "container pod-a, net1 (network ib, device pci/0000:3b:00.0)") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(tt.Path()); err != nil {
		t.Errorf("refused, but: %v", err)
	}
	if err := tt.Uninstall(true); err != nil {
		t.Error(err)
	}
	if err := tt.Uninstall(true); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if got := listing(t, tt.BinDir); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestUninstallCountsWhatItCannotRead(t *testing.T) {
	tt := target(t)
	if _, err := tt.Install(); err != nil {
		t.Fatal(err)
	}
	attachments := filepath.Join(tt.Store.Dir, "attachments")
	write(t, filepath.Join(attachments, "a@net1"), "{", 0o600)
	if err := tt.Store.SetOwner("pci/0000:3b:00.0", journal.Key{ContainerID: "a", IfName: "net1"}); err != nil {
		t.Fatal(err)
	}
	if err := tt.Uninstall(false); !errors.Is(err, install.ErrInUse) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
}

// What is foreign or damaged and holds no device keeps no one from installing or uninstalling.
func TestUninstallForeign(t *testing.T) {
	tt := target(t)
	write(t, filepath.Join(tt.Store.Dir, "attachments", "lock"), "", 0o600)
	write(t, filepath.Join(tt.Store.Dir, "attachments", "a@net1"), "{", 0o600)
	write(t, filepath.Join(tt.Store.Dir, "prepared", "lock"), "", 0o600)
	write(t, filepath.Join(tt.Store.Dir, "prepared", "p", "c"), "{", 0o600)
	if err := os.MkdirAll(filepath.Join(tt.Store.Dir, "attachments", "dir@net1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := tt.Install(); err != nil {
		t.Fatal(err)
	}
	if err := tt.Uninstall(false); err != nil {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	tt := target(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var replaced atomic.Int32
	go func() {
		tt.Watch(ctx, time.Millisecond, func() { replaced.Add(1) }, slog.New(slog.NewTextHandler(io.Discard, nil)))
		close(done)
	}()
	installed := func() bool { b, err := os.ReadFile(tt.Path()); return err == nil && string(b) == "the binary" }
	sandbox.Until(t, "it is installed", installed)
	other := filepath.Join(tt.BinDir, ".other")
	write(t, other, "somebody else's fabric", 0o755)
	if err := os.Rename(other, tt.Path()); err != nil {
		t.Fatal(err)
	}
	sandbox.Until(t, "it is back", installed)
	cancel()
	<-done
	if n := replaced.Load(); n != 2 {
		t.Errorf("told %d times", n)
	}
}
