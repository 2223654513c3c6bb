package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Environment of the process inside the namespaces.
const (
	envRun  = "FABRIC_CLUSTER_RUN"  // directory of this run
	envRoot = "FABRIC_CLUSTER_REPO" // the repository
)

// Main is for TestMain: it builds what is missing, runs the test binary again inside new namespaces with a cluster in
// them, and ends with its status. Everything dies with that process, which is the first of its pid namespace.
func Main(m *testing.M) {
	if os.Getenv(envRun) != "" {
		status, err := inside(m)
		if err != nil {
			fmt.Fprintln(os.Stderr, "cluster:", err)
		}
		os.Exit(status)
	}
	status, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	os.Exit(status)
}

// Cache is where binaries are kept between runs.
func Cache() (string, error) {
	if dir := os.Getenv("FABRIC_CLUSTER"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "fabric-cluster"), err
}

func outside() (status int, err error) {
	if os.Geteuid() != 0 {
		return 2, errors.New("needs root: it mounts, and makes network namespaces and containers")
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		return 2, err
	}
	cache, err := Cache()
	if err != nil {
		return 2, err
	}
	for _, setup := range [][]string{{"scripts/cluster-setup.sh"}, {"scripts/lab-setup.sh", "6.12"}} {
		if err := command(repo, nil, filepath.Join(repo, setup[0]), setup[1:]...); err != nil {
			return 2, err
		}
	}
	run, err := os.MkdirTemp(cache, "run-")
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, removeAll(run)) }()
	if err := build(repo, run); err != nil {
		return 2, err
	}
	defer restoreSysctls(sysctls())
	defer removeCgroups()
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the child ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envRun+"="+run, envRoot+"="+repo, "FABRIC_CLUSTER="+cache)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 2, fmt.Errorf("run the tests in namespaces of their own: %w", err)
	}
	return 0, nil
}

// build makes the project's own programs, static, as they are shipped.
func build(repo, run string) error {
	return command(
		repo,
		[]string{"CGO_ENABLED=0"},
		"go",
		"build",
		"-trimpath",
		"-buildvcs=false",
		"-ldflags",
		"-s -w -X main.version=e2e",
		"-o",
		filepath.Join(run, "bin")+"/",
		"./cmd/fabric",
		"./cmd/fabric-agent",
		"./cmd/fabricctl",
		"./integration/cluster/nodeagent",
	)
}

func command(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return nil
}

// kubelet sets these for the whole machine, whatever namespace it is in.
var globalSysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"}

func sysctls() map[string][]byte {
	out := map[string][]byte{}
	for _, s := range globalSysctls {
		if b, err := os.ReadFile(filepath.Join("/proc/sys", s)); err == nil {
			out[s] = b
		}
	}
	return out
}

func restoreSysctls(was map[string][]byte) {
	for s, b := range was {
		file := filepath.Join("/proc/sys", s)
		if now, err := os.ReadFile(file); err == nil && string(now) != string(b) {
			if err := os.WriteFile(file, b, 0o644); err != nil {
				fmt.Fprintln(os.Stderr, "cluster: restore sysctl:", err)
			}
		}
	}
}

// removeCgroups takes away the directories of containers, which outlive them.
func removeCgroups() {
	for range 50 {
		left := false
		_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || (d.Name() != "kubepods" && d.Name() != "k8s.io") {
				return nil //nolint:nilerr // it vanishes while we look: that is what we want
			}
			left = true
			removeTree(p)
			return filepath.SkipDir
		})
		if !left {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// removeTree removes cgroup directories from the leaves up: their files go with them.
func removeTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}

// removeAll waits for the mounts of the dead mount namespace to be gone.
func removeAll(dir string) (err error) {
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
