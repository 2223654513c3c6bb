package cluster

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Environment of the processes inside the namespaces.
const (
	envRun  = "FABRIC_CLUSTER_RUN"  // directory of this half of the run
	envRoot = "FABRIC_CLUSTER_REPO" // the repository
	envHalf = "FABRIC_CLUSTER_HALF" // which half, see there
)

// Main is for TestMain: it builds what is missing, runs the test binary again inside new namespaces with a cluster in
// them, and ends with its status. Everything dies with that process, which is the first of its pid namespace.
//
// The tests on nodes of the lab have a cluster of their own beside that of the others, see half.
func Main(m *testing.M) {
	flag.Parse()
	if flagValue("test.list") != "" {
		os.Exit(m.Run())
	}
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
	lock, err := alone(cache)
	if err != nil {
		return 2, err
	}
	defer lock.Close()
	setups := [][]string{{"scripts/cluster-setup.sh"}, {"scripts/lab-setup.sh", nodeKernel, "traffic"}}
	for _, test := range suitesToRun() {
		setups[0] = append(setups[0], suiteTests[test])
	}
	for _, setup := range setups {
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
	if err := takeTurns(); err != nil {
		return 2, err
	}
	defer restoreSysctls(sysctls())
	defer removeCgroups()
	return halves(repo, cache, run)
}

// alone waits until no other process runs clusters on this machine: kubelets of two would remove each other's cgroups,
// and guests of two would wait for each other's end. The lock ends with the file that is returned, or the process.
func alone(cache string) (*os.File, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(cache, "run.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintln(os.Stderr, "cluster: waiting for another run on this machine to end:", f.Name())
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// build makes the project's own programs, static, as they are shipped, and in bin/held those that a test can hold at
// points of their way.
func build(repo, run string) error {
	compile := func(dir string, args ...string) error {
		return command(repo, []string{"CGO_ENABLED=0"}, "go", append([]string{"build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -X main.version=e2e", "-o", filepath.Join(run, dir) + "/"}, args...)...)
	}
	return errors.Join(
		compile("bin", "./cmd/fabric", "./cmd/fabric-agent", "./cmd/fabricctl", "./integration/cluster/nodeagent",
			"./integration/cluster/dummygpu/dummy-gpu", "./integration/cluster/rigagent"),
		compile("bin/held", "-tags=failpoint", "./cmd/fabric", "./integration/cluster/rigagent"),
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
