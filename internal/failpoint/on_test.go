//go:build failpoint

package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHit(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	t.Setenv("FABRIC_FAILPOINT_TRACE", trace)
	clear(passed)
	for _, tt := range []struct {
		env, point string
		fails      bool
	}{
		{"", "a", false},
		{"a:error", "a", false}, // the second time it is a#2
		{"b:error", "c", false},
		{"b:error", "b", true},
		{"a#3:error", "a", true},
		{"d", "d", true}, // an error where nothing else is said
		{":error", "e", false},
	} {
		t.Setenv("FABRIC_FAILPOINT", tt.env)
		if err := Hit(tt.point); (err != nil) != tt.fails {
			t.Errorf("%q at %s: %v", tt.env, tt.point, err)
		}
	}
	got, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("a\na#2\nc\nb\na#3\nd\ne\n", string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The process dies at the point, with what it had written on file and nothing after it done.
func TestKill(t *testing.T) {
	if os.Getenv("FABRIC_FAILPOINT") == "die:kill" {
		_ = Hit("die")
		t.Fatal("survived")
	}
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), "FABRIC_FAILPOINT=die:kill", "FABRIC_FAILPOINT_TRACE="+trace)
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("ended with %v", err)
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v, want SIGKILL", err)
	}
	if got, err := os.ReadFile(trace); err != nil || string(got) != "die\n" {
		t.Errorf("trace %q, %v", got, err)
	}
}

// A process waits at a point for as long as the test wants.
func TestHold(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("FABRIC_FAILPOINT_HOLD", dir)
	if err := Hit("dra/other"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "dra-point")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- Hit("dra/point") }()
	for {
		if b, err := os.ReadFile(file + ".pid"); err == nil && string(b) == strconv.Itoa(os.Getpid()) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-done:
		t.Fatalf("it has not waited: %v", err)
	default:
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTraceThatCantBeWritten(t *testing.T) {
	t.Setenv("FABRIC_FAILPOINT_TRACE", t.TempDir())
	if err := Hit("anything"); err == nil {
		t.Error("no error")
	}
}
