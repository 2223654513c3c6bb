package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

const (
	paused = 2 * time.Second        // how long an actor is stopped
	away   = 500 * time.Millisecond // how long an actor that was killed stays away
)

// actor is a program, or the node, that the test kills or pauses.
type actor interface {
	kill(t *testing.T, g *gap)
	restart(t *testing.T)
	pause(t *testing.T, g *gap)
	resume(t *testing.T)
}

var actorNames = []string{"kubelet", "agent", "containerd", "API server", "Multus", "node"}

func (m *matrix) newActors() map[string]actor {
	return map[string]actor{
		"kubelet":    component{func() *process { return current.kubelet }, current.startKubelet},
		"agent":      component{func() *process { return m.rig.agent }, m.rig.startAgent},
		"containerd": component{func() *process { return current.containerd }, current.startContainerd},
		"API server": component{func() *process { return current.api }, current.startAPI},
		"Multus":     &multusActor{m: m},
		"node":       &nodeActor{m: m},
	}
}

// component is a process.
type component struct {
	is    func() *process
	start func() error
}

func (c component) kill(t *testing.T, _ *gap) {
	t.Helper()
	if err := c.is().kill(); err != nil {
		t.Fatal(err)
	}
}

func (c component) restart(t *testing.T) {
	t.Helper()
	time.Sleep(away)
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
}

func (c component) pause(t *testing.T, _ *gap) {
	t.Helper()
	if err := c.is().stop(); err != nil {
		t.Fatal(err)
	}
}

func (c component) resume(t *testing.T) {
	t.Helper()
	if err := c.is().cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// stop returns when no thread of the process runs any more: on a busy machine that takes its time.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	return poll(filepath.Base(p.cmd.Path)+" is stopped", time.Minute, 5*time.Millisecond, func() error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, f := range tasks {
			b, err := os.ReadFile(f)
			if err == nil && !strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')')+1:]), " T") {
				return textError("a thread runs")
			}
		}
		return err
	})
}

// multusActor is a process for each call. Killed, it is gone from the node as well: before ADD with its configuration,
// so that the runtime gives pods the cluster's own network alone, and the hook of the container attaches; later
// without, as the runtime has to fail then and not to drop the namespace with the veths in it, which no device of a
// real node is lost by.
type multusActor struct {
	m      *matrix
	killed *gap
}

const (
	multusBin  = "/opt/cni/bin/multus"
	multusAway = "/opt/cni/multus.away" // on the same file system
	multusFile = "/etc/cni/net.d/00-multus.conf"
	multusKept = "/etc/cni/00-multus.conf"
	bridgeFile = "/etc/cni/net.d/10-bridge.conflist"
)

func (a *multusActor) kill(t *testing.T, g *gap) {
	t.Helper()
	a.killed = g
	err := os.Rename(multusBin, multusAway)
	if absentAt(a.killed) {
		err = errors.Join(err, bridgeAlone())
	}
	for _, p := range processes() {
		if p.name == "multus" {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rigWithoutMultus takes Multus from the node rig, for the test.
func rigWithoutMultus(t testing.TB) {
	t.Helper()
	if err := takeMultus(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bringMultus(); err != nil {
			t.Error(err)
		}
	})
}

// takeMultus takes Multus from the node rig with its configuration, and bringMultus brings both back.
func takeMultus() error { return errors.Join(os.Rename(multusBin, multusAway), bridgeAlone()) }

func bringMultus() error { return errors.Join(os.Rename(multusAway, multusBin), multusAgain()) }

// bridgeAlone makes the cluster's own network the only one that the runtime knows.
func bridgeAlone() error {
	err := errors.Join(os.Rename(multusFile, multusKept), os.WriteFile(bridgeFile, []byte(bridgeConf), 0o600))
	time.Sleep(300 * time.Millisecond) // the runtime watches the directory
	return err
}

// multusAgain is the way back. In this order: containerd does not look again for a file that comes under its name, but
// for one that goes.
func multusAgain() error {
	return errors.Join(os.Rename(multusKept, multusFile), os.Remove(bridgeFile))
}

// absentAt says that a pod is started without Multus, if that is gone from there on: its ADD is still to come.
func absentAt(g *gap) bool {
	return !g.ending && g.after != "ADD begun" && g.after != "ADD done"
}

func (a *multusActor) restart(t *testing.T) {
	t.Helper()
	time.Sleep(away)
	var err error
	if absentAt(a.killed) {
		err = poll("the container runs without Multus", time.Minute, shortly, a.m.runs)
		err = errors.Join(err, multusAgain())
	}
	if err := errors.Join(err, os.Rename(multusAway, multusBin)); err != nil {
		t.Fatal(err)
	}
}

// pause stops the calls that run, and makes those that come slow.
func (a *multusActor) pause(t *testing.T, _ *gap) {
	t.Helper()
	for _, p := range processes() {
		if p.name == "multus" {
			_ = unix.Kill(p.pid, unix.SIGSTOP)
		}
	}
	// The line is all there is to read: a shell that opened the file would find Multus there if resume came before it.
	script := fmt.Sprintf("#!/usr/bin/env -S sh -c \"sleep %g; exec %s\"\n", paused.Seconds(), multusAway)
	if err := errors.Join(os.Rename(multusBin, multusAway),
		os.WriteFile(multusBin, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func (a *multusActor) resume(t *testing.T) {
	t.Helper()
	for _, p := range processes() {
		if strings.HasPrefix(p.name, "multus") {
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
	// a script that still sleeps finds it there, too
	if err := errors.Join(exec.Command("cp", "-p", multusAway, "/opt/cni/multus.new").Run(),
		os.Rename("/opt/cni/multus.new", multusBin)); err != nil {
		t.Fatal(err)
	}
}

// nodeActor is everything on the node at once. After a boot its tmpfs is empty, and its devices are there.
type nodeActor struct{ m *matrix }

func (a *nodeActor) kill(t *testing.T, _ *gap) {
	t.Helper()
	err := poll("nothing runs on the node", time.Minute, 10*time.Millisecond, func() error {
		list := ofNode()
		for _, p := range list {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		if len(list) > 0 {
			return textError(list[0].name + " runs")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{current.kubelet, current.containerd, a.m.rig.agent} {
		<-p.ended
	}
}

func (a *nodeActor) restart(t *testing.T) {
	t.Helper()
	time.Sleep(away)
	if err := errors.Join(wipe(), a.m.rig.makeRails()); err != nil {
		t.Fatal(err)
	}
	a.m.learn()
	if err := errors.Join(current.startContainerd(), current.startKubelet(), a.m.rig.startAgent()); err != nil {
		t.Fatal(err)
	}
}

// wipe takes away what a reboot takes away: mounts, interfaces, cgroups, and all below /run.
func wipe() error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	lines := strings.Split(string(b), "\n")
	slices.Reverse(lines) // the last one that was mounted first
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) > 4 && (strings.HasPrefix(f[4], "/run/netns/") || strings.HasPrefix(f[4], "/run/containerd/") ||
			strings.HasPrefix(f[4], journal.DefaultDir+"/") || strings.HasPrefix(f[4], "/var/lib/kubelet/pods/")) {
			_ = unix.Unmount(f[4], unix.MNT_DETACH)
		}
	}
	removeCgroups()
	_ = exec.Command("ip", "link", "delete", "cni0").Run()
	var errs []error
	for _, dir := range []string{journal.DefaultDir, "/run/containerd", "/run/cdi", "/run/k8s.cni.cncf.io"} {
		errs = append(errs, os.RemoveAll(dir))
	}
	names, err := filepath.Glob("/run/netns/*")
	for _, n := range names {
		errs = append(errs, os.Remove(n))
	}
	return errors.Join(append(errs, err)...)
}

func (a *nodeActor) pause(t *testing.T, _ *gap) { t.Helper(); signalAll(unix.SIGSTOP) }
func (a *nodeActor) resume(t *testing.T)        { t.Helper(); signalAll(unix.SIGCONT) }

func signalAll(s unix.Signal) {
	for _, p := range ofNode() {
		_ = unix.Kill(p.pid, s)
	}
}

type running struct {
	pid  int
	name string
}

// processes are all that live in this process id namespace, but for this one.
func processes() (out []running) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		b, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// PID (NAME) STATE PARENT
		text := string(b)
		end := strings.LastIndexByte(text, ')')
		rest := strings.Fields(text[end+1:])
		if len(rest) < 2 || rest[0] == "Z" {
			continue
		}
		out = append(out, running{pid, text[strings.IndexByte(text, '(')+1 : end]})
	}
	return out
}

// ofNode are those of the node: all but the control plane, this test's, and what it asks with.
func ofNode() (out []running) {
	for _, p := range processes() {
		switch p.name {
		case "etcd", "kube-apiserver", "kube-controller", "kube-scheduler", "fabric-agent", "kubectl":
		default:
			out = append(out, p)
		}
	}
	return out
}
