package repair_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// The tests run the plugin itself, on interfaces of the sandbox.
func TestMain(m *testing.M) { sandbox.Main(m, build) }

const pluginDir = "FABRIC_TEST_PLUGINS"

func build() (func(), error) {
	dir, err := os.MkdirTemp("", "repair-test-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(
		"go",
		"build",
		"-o",
		dir+"/",
		"github.com/fabric-cni/fabric-cni/cmd/fabric",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
	)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build plugins: %w: %s", err, out)
	}
	return func() { os.RemoveAll(dir) }, os.Setenv(pluginDir, dir)
}

// node is a host with one rail that a pod may have.
type node struct {
	t     *testing.T
	store journal.Store
	now   time.Time
	loop  *repair.Loop
	done  []error
}

func newNode(t *testing.T) *node {
	n := &node{t: t, store: journal.Store{Dir: journal.DefaultDir}, now: time.Now()}
	t.Cleanup(func() { os.RemoveAll(journal.DefaultDir) })
	n.restart()
	if err := sandbox.SetPolicy(sandbox.AllowVirtual); err != nil {
		t.Fatal(err)
	}
	published := filepath.Join(journal.DefaultDir, policy.PublishedDir)
	if err := os.MkdirAll(published, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(published, policy.Published("rail")), []byte(n.conf()), 0o600); err != nil {
		t.Fatal(err)
	}
	sandbox.Run(t, "ip", "link", "add", "rail0", "address", mac, "type", "veth", "peer", "name", "rail0peer")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", "rail0peer").Run() })
	sandbox.Run(t, "ip", "addr", "add", "192.0.2.1/24", "dev", "rail0")
	return n
}

// restart is a new agent.
func (n *node) restart() {
	n.loop = &repair.Loop{
		Store:       n.store,
		Plugin:      filepath.Join(os.Getenv(pluginDir), "fabric"),
		Grace:       time.Minute,
		CallTimeout: time.Minute,
		Log:         slog.New(slog.NewTextHandler(n.t.Output(), nil)),
		Now:         func() time.Time { return n.now },
		Done:        func(_ *journal.Entry, err error) { n.done = append(n.done, err) },
	}
}

func (n *node) conf() string {
	b, err := json.Marshal(
		map[string]any{
			"cniVersion": "1.0.0",
			"name":       "rail",
			"type":       "fabric",
			"device":     "rail0",
			"rdma":       "none",
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": filepath.Join(journal.DefaultDir, "ipam"),
				"ranges":  [][]map[string]string{{{"subnet": "198.51.100.0/24"}}},
			},
		},
	)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

func (n *node) add(id, netns string) error {
	cmd := exec.Command(n.loop.Plugin)
	cmd.Stdin = strings.NewReader(n.conf())
	cmd.Env = []string{
		"CNI_COMMAND=ADD",
		"CNI_CONTAINERID=" + id,
		"CNI_IFNAME=net1",
		"CNI_NETNS=" + netns,
		"CNI_PATH=" + os.Getenv(pluginDir),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// mac is what the rail is known by: a veth has no bus address.
const mac = "02:00:5e:00:53:01"

// pod has the rail, in a namespace that the test can kill. A veth dies with its namespace where hardware would return
// to the host under a name of the kernel's: the test does that part.
func (n *node) pod(id string) (kill func()) {
	n.t.Helper()
	ns := "/run/netns/" + id
	index := func(name string) string { // the plugin knows the veth by its own, which a move keeps, and by its peer's
		b, err := os.ReadFile("/sys/class/net/" + name + "/ifindex")
		if err != nil {
			n.t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	own, peer := index("rail0"), index("rail0peer")
	sandbox.Run(n.t, "ip", "netns", "add", id)
	n.t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", id).Run() })
	if err := n.add(id, ns); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		n.t.Helper()
		sandbox.Run(n.t, "ip", "netns", "delete", id)
		sandbox.Until(
			n.t,
			"the veth is gone",
			func() bool { return exec.Command("ip", "link", "show", "rail0peer").Run() != nil },
		)
		sandbox.Run(n.t, "ip", "link", "add", "dev7", "index", own, "address", mac, "type", "veth",
			"peer", "name", "rail0peer", "index", peer)
	}
}

func (n *node) entries() int {
	n.t.Helper()
	list, err := n.store.List()
	if err != nil {
		n.t.Fatal(err)
	}
	return len(list)
}

func (n *node) repaired(want int) {
	n.t.Helper()
	if got := n.loop.Once(n.t.Context()); len(got) != want {
		n.t.Fatalf("repaired %d attachments, want %d", len(got), want)
	}
}

// The agent calls the plugin by an argument that the plugin knows.
func TestOwnNames(t *testing.T) {
	n := newNode(t)
	for argument, want := range map[string]bool{"own-names": true, "other-names": false} {
		out, err := exec.Command(n.loop.Plugin, argument).CombinedOutput()
		if got := err == nil && len(out) == 0; got != want {
			t.Errorf("%s: %v %s", argument, err, out)
		}
	}
}

func TestDeadPod(t *testing.T) {
	n := newNode(t)
	kill := n.pod("pod-a")
	n.now = n.now.Add(time.Hour)
	n.repaired(0) // it lives
	kill()
	n.repaired(0) // not for long enough
	n.now = n.now.Add(59 * time.Second)
	n.repaired(0)
	if n.entries() != 1 {
		t.Fatal("within the grace period, and the entry is gone")
	}
	n.now = n.now.Add(2 * time.Second)
	n.repaired(1)
	if n.entries() != 0 {
		t.Error("the entry is still there")
	}
	if addr := sandbox.Run(t, "ip", "-4", "-br", "addr", "show", "rail0"); !strings.Contains(addr, "192.0.2.1/24") {
		t.Errorf("the rail came back as %q", addr)
	}
	left, err := filepath.Glob(filepath.Join(journal.DefaultDir, "ipam", "rail", "198.*"))
	if err != nil || len(left) != 0 {
		t.Errorf("addresses left: %v, %v", left, err)
	}
	if len(n.done) != 1 || n.done[0] != nil {
		t.Errorf("told %v", n.done)
	}
	n.repaired(0)
}

// A namespace whose path is gone lives while a process is in it.
func TestPathGoneProcessLeft(t *testing.T) {
	n := newNode(t)
	n.pod("pod-b")
	proc := exec.Command("ip", "netns", "exec", "pod-b", "sleep", "60")
	if err := proc.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = proc.Process.Kill(), proc.Wait() }()
	sandbox.Until(t, "the process is in the pod", func() bool {
		out, err := exec.Command("ip", "netns", "pids", "pod-b").Output()
		return err == nil && strings.Contains(string(out), fmt.Sprint(proc.Process.Pid))
	})
	sandbox.Run(t, "ip", "netns", "delete", "pod-b")
	for range 3 {
		n.now = n.now.Add(time.Hour)
		n.repaired(0)
	}
	if n.entries() != 1 {
		t.Error("a live pod lost its entry")
	}
}

// The path is another pod's by now. That one must not lose anything.
func TestPathReused(t *testing.T) {
	n := newNode(t)
	n.pod("pod-c")()
	sandbox.Run(t, "ip", "netns", "add", "pod-c")
	sandbox.Run(t, "ip", "-n", "pod-c", "link", "add", "net1", "type", "bridge")
	n.now = n.now.Add(time.Hour)
	n.repaired(0)
	n.now = n.now.Add(time.Hour)
	n.repaired(1)
	sandbox.Run(t, "ip", "-n", "pod-c", "link", "show", "net1")
}

// While the runtime says that the sandbox is ready nothing is taken, whatever the namespace looks like. One that it
// lists as not ready, one that it does not list, and a runtime that does not answer leave it to the namespace.
func TestRuntimeKnowsBetter(t *testing.T) {
	for name, tt := range map[string]struct {
		list map[string]bool
		err  error
		want int
	}{
		"ready":     {map[string]bool{"pod-r": true}, nil, 0},
		"not ready": {map[string]bool{"pod-r": false}, nil, 1},
		"unknown":   {map[string]bool{"other": true}, nil, 1},
		"silent":    {nil, errors.New("connection refused"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.loop.Sandboxes = func(context.Context) (map[string]bool, error) { return tt.list, tt.err }
			n.pod("pod-r")()
			n.now = n.now.Add(time.Hour)
			n.repaired(0)
			n.now = n.now.Add(time.Hour)
			n.repaired(tt.want)
			if n.entries() != 1-tt.want {
				t.Errorf("%d entries", n.entries())
			}
		})
	}
}

func TestRestartBeginsTheGracePeriodAgain(t *testing.T) {
	n := newNode(t)
	n.pod("pod-d")()
	n.now = n.now.Add(time.Hour)
	n.repaired(0)
	n.restart()
	n.now = n.now.Add(time.Hour)
	n.repaired(0)
	n.now = n.now.Add(time.Hour)
	n.repaired(1)
}

// The clock was set back after ADD: the entry is of the future. Its device is reclaimed all the same.
func TestClockSetBack(t *testing.T) {
	n := newNode(t)
	kill := n.pod("pod-g")
	list, err := n.store.List()
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	list[0].Created = list[0].Created.Add(24 * time.Hour)
	if err := n.store.Save(list[0]); err != nil {
		t.Fatal(err)
	}
	kill()
	n.repaired(0)
	n.now = n.now.Add(2 * time.Minute)
	n.repaired(1)
}

// The plugin's own words arrive, and the next round tries again.
func TestFailureIsReportedAndRepeated(t *testing.T) {
	n := newNode(t)
	n.pod("pod-e")()
	n.now = n.now.Add(time.Hour)
	n.repaired(0)
	n.now = n.now.Add(time.Hour)
	plugin := n.loop.Plugin
	n.loop.Plugin = filepath.Join(t.TempDir(), "fabric")
	if err := os.WriteFile(
		n.loop.Plugin,
		[]byte("#!/bin/sh\necho '{\"code\":11,\"msg\":\"fabric: could not return net1: device busy\"}'\nexit 1\n"),
		0o755,
	); err != nil {
		t.Fatal(err)
	}
	n.repaired(0)
	if len(n.done) != 1 || n.done[0] == nil || n.done[0].Error() != "fabric: could not return net1: device busy" {
		t.Errorf("told %v", n.done)
	}
	n.loop.Plugin = plugin
	n.repaired(1)
}

// An entry that can't be read stops nothing else.
func TestCorruptEntryBeside(t *testing.T) {
	n := newNode(t)
	n.pod("pod-f")()
	bad := filepath.Join(journal.DefaultDir, "attachments", "other@net1")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.now = n.now.Add(time.Hour)
	n.repaired(0)
	n.now = n.now.Add(time.Hour)
	n.repaired(1)
	if _, err := os.Stat(bad); err != nil {
		t.Error(err)
	}
}
