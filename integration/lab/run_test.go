package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oneKernel returns the kernel for tests of the lab itself.
func oneKernel(t *testing.T) Kernel {
	t.Helper()
	kernels, err := Kernels()
	if err != nil {
		t.Fatal(err)
	}
	return kernels[0]
}

func TestRunReportsStatusAndOutput(t *testing.T) {
	t.Parallel()
	k := oneKernel(t)
	out := t.TempDir()
	var text strings.Builder
	res, err := Run(
		t.Context(),
		k,
		Spec{Script: "uname -r; echo hello >/out/file; exit 3\n", OutDir: out, Output: &text},
	)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != 3 || text.String() != k.Release+"\n" || res.Boot == 0 || res.Attempts != 1 {
		t.Errorf("result is %+v, output %q", res, text.String())
	}
	if data, err := os.ReadFile(filepath.Join(out, "file")); err != nil || string(data) != "hello\n" {
		t.Errorf("file from the guest is %q, %v", data, err)
	}
}

func TestRunFailsOnKernelWarning(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), oneKernel(t), Spec{OutDir: t.TempDir(),
		Script: "echo '<4>unregister_netdevice: waiting for ib0 to become free. Usage count = 2' >/dev/kmsg\n"})
	var guest *GuestError
	if !errors.As(err, &guest) || len(guest.Lines) != 1 || !strings.Contains(guest.Lines[0], "waiting for ib0") {
		t.Errorf("error is %v", err)
	}
}

func TestRunRetriesOnceWhatNeverFinishes(t *testing.T) {
	t.Parallel()
	k := oneKernel(t)
	out := t.TempDir()
	// The first guest dies, the second one finds its mark.
	res, err := Run(
		t.Context(),
		k,
		Spec{OutDir: out, Script: "[ -e /out/again ] && exit 0; touch /out/again; echo c >/proc/sysrq-trigger\n"},
	)
	if err != nil || res.Attempts != 2 || res.Status != 0 {
		t.Errorf("result is %+v, %v", res, err)
	}
}

func TestRunKillsWhatNeverFinishes(t *testing.T) {
	t.Parallel()
	k := oneKernel(t)
	out := t.TempDir()
	begin := time.Now()
	res, err := Run(
		t.Context(),
		k,
		Spec{
			OutDir:  out,
			Script:  "echo '<0>stuck here' >/dev/kmsg; /run/busybox sleep 1000\n",
			Timeout: 30 * time.Second,
		},
	)
	var guest *GuestError
	if !errors.As(err, &guest) || res.Attempts != 2 || !strings.Contains(guest.Console, "stuck here") {
		t.Errorf("after %s and %d attempts: %v", time.Since(begin), res.Attempts, err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	k := oneKernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	res, err := Run(ctx, k, Spec{OutDir: t.TempDir(), Script: "/run/busybox sleep 1000\n"})
	if err == nil || res.Attempts > 1 || res.Total > 20*time.Second {
		t.Errorf("result is %+v, %v", res, err)
	}
}
