// Package sandbox runs the tests of a package on the real kernel without a trace on the machine: in network and mount
// namespaces of their own, and, for a user who is not root, in a user namespace too.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside marks the process that is in the namespaces, for itself and its children.
const inside = "FABRIC_TEST_SANDBOX"

// Main is for TestMain: it runs the test binary again inside new namespaces and ends the process with its status.
// prepare runs before, outside, where there is a network and the machine's /etc; it may set environment variables for
// the tests, and returns what cleans up after them.
func Main(m *testing.M, prepare func() (cleanup func(), err error)) { os.Exit(Inside(m, prepare)) }

// Inside is Main for a TestMain that has something to do afterwards: it returns the status.
func Inside(m *testing.M, prepare func() (cleanup func(), err error)) int {
	if fuzzing() {
		return m.Run()
	}
	if os.Getenv(inside) != "" {
		if err := Enter(); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox:", err)
			return 2
		}
		return m.Run()
	}
	status, err := outside(prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
	}
	return status
}

// fuzzing says that this process fuzzes, or works for one that does. Workers are handed open files, which would be lost
// on the way into the namespaces (internal/fuzz, workerComm). A target that is fuzzed can't use the sandbox.
func fuzzing() bool {
	return slices.ContainsFunc(os.Args, func(a string) bool {
		return strings.HasPrefix(a, "-test.fuzz=") || strings.HasPrefix(a, "-test.fuzzworker")
	})
}

func outside(prepare func() (func(), error)) (int, error) {
	if prepare != nil {
		cleanup, err := prepare()
		if err != nil {
			return 2, err
		}
		defer cleanup()
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the child ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 2, fmt.Errorf("run tests in namespaces of their own: %w", err)
	}
	return 0, nil
}

// Enter hides the machine from this process, which has mount and network namespaces of its own: /run and /etc are
// private, /sys shows the network namespace.
func Enter() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"sandbox", "/run", "tmpfs", 0},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, "mode=0755"); err != nil {
			return fmt.Errorf("mount on %s: %w", m.target, err)
		}
	}
	if err := hideEtc(); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	// ip and tc are there, which the PATH of a user of Debian lacks
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	if err := os.Setenv(inside, "1"); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	return nil
}

// hideEtc leaves the dynamic linker its cache and the plugin no policy of this machine.
func hideEtc() error {
	const dir = "/run/etc"
	if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o755); err != nil {
		return err
	}
	if b, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		if err := os.WriteFile(filepath.Join(dir, "ld.so.cache"), b, 0o644); err != nil {
			return err
		}
	}
	if err := unix.Mount(dir, "/etc", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount on /etc: %w", err)
	}
	return nil
}
