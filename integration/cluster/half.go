package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// half is a part of the tests with a cluster of its own, in namespaces of its own. The two run side by side: one waits
// for pods on this machine, the other for guests of the lab, and neither sees the other's objects.
type half string

const (
	rigHalf   half = "rig"   // this machine is a node; all tests but those of the other half
	nodesHalf half = "nodes" // only guests of the lab are nodes; the tests whose names begin with nodeTests
)

const nodeTests = "TestNodes"

// lateGates are what Dynamic Resource Allocation has beyond the defaults of Kubernetes 1.34; since 1.36 they are on by
// default. They are on in the half with guests of the lab. The other has the defaults of its version.
var lateGates = []string{"DRAConsumableCapacity", "DRADeviceTaints", "DRAExtendedResource", "ResourceHealthStatus"}

// gateFlags are those of every component of the control plane.
func (h half) gateFlags() []string {
	if h != nodesHalf {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(lateGates, "=true,") + "=true"}
}

// apiFlags are those of the API server. DeviceTaintRules are of the alpha version.
func (h half) apiFlags() []string {
	if h != nodesHalf {
		return nil
	}
	return append(h.gateFlags(), "--runtime-config=resource.k8s.io/v1alpha3=true")
}

// kubeletGates are lines of kubelet's configuration.
func (h half) kubeletGates() string {
	if h != nodesHalf {
		return ""
	}
	return "featureGates: {" + strings.Join(lateGates, ": true, ") + ": true}\n"
}

// halves runs the halves that have something to run, and returns the status of the first that failed. The output of the
// second follows that of the first, since `go test -json` reads one stream.
func halves(repo, cache, run string) (int, error) {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the child ends
	tests, err := listTests()
	if err != nil {
		return 2, err
	}
	var ends []func() (int, error)
	for _, h := range []half{rigHalf, nodesHalf} {
		args := h.args(tests)
		if args == nil {
			continue
		}
		end, err := h.start(repo, cache, run, args)
		if err != nil {
			return 2, err // a half that runs is killed with this process
		}
		ends = append(ends, end)
	}
	if len(ends) == 0 {
		fmt.Println("testing: warning: no tests to run")
	}
	status := 0
	var errs []error
	for _, end := range ends {
		s, err := end()
		errs = append(errs, err)
		if status == 0 {
			status = s
		}
	}
	return status, errors.Join(errs...)
}

// listTests returns the top-level tests that -test.run asks for.
func listTests() ([]string, error) {
	top, _, _ := strings.Cut(flagValue("test.run"), "/")
	if top == "" {
		top = "." // an empty pattern would run the tests
	}
	cmd := exec.Command("/proc/self/exe", "-test.list="+top)
	cmd.Args[0] = os.Args[0]
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}
	var tests []string
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	return tests, nil
}

func flagValue(name string) string { return flag.Lookup(name).Value.String() }

// args returns the arguments with which the test binary runs this half of the tests, nil if there is nothing to run.
func (h half) args(tests []string) []string {
	var mine []string
	for _, name := range tests {
		if strings.HasPrefix(name, nodeTests) == (h == nodesHalf) {
			mine = append(mine, name)
		}
	}
	bench := flagValue("test.bench")
	if h == nodesHalf {
		bench = "" // there are none
	}
	if len(mine) == 0 && bench == "" {
		return nil
	}
	run := "^(" + strings.Join(mine, "|") + ")$"
	if _, subtests, ok := strings.Cut(flagValue("test.run"), "/"); ok {
		run += "/" + subtests
	} else if h == nodesHalf {
		part, ok := turn()
		if !ok {
			return nil
		}
		run += part
	}
	args := append([]string{}, os.Args[1:]...)
	// The last one of a flag counts.
	return append(args, "-test.run="+run, "-test.skip="+flagValue("test.skip"), "-test.bench="+bench)
}

// start runs the test binary inside new namespaces. The function that it returns waits for its end.
func (h half) start(repo, cache, run string, args []string) (end func() (int, error), err error) {
	dir := filepath.Join(run, string(h))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Symlink(filepath.Join(run, "bin"), filepath.Join(dir, "bin")); err != nil {
		return nil, err
	}
	out := &heldWriter{to: os.Stdout}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envRun+"="+dir, envRoot+"="+repo, envHalf+"="+string(h), "FABRIC_CLUSTER="+cache)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run the tests in namespaces of their own: %w", err)
	}
	return func() (int, error) {
		if err := out.release(); err != nil {
			return 2, err
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			return exit.ExitCode(), nil
		}
		if err != nil {
			return 2, fmt.Errorf("tests of the half %s: %w", h, err)
		}
		return 0, nil
	}, nil
}

// heldWriter keeps what is written until it is released, and passes on what comes afterwards.
type heldWriter struct {
	to io.Writer

	mu   sync.Mutex
	held bytes.Buffer
	open bool
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open {
		return w.to.Write(p)
	}
	return w.held.Write(p)
}

func (w *heldWriter) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = true
	_, err := w.held.WriteTo(w.to)
	return err
}
