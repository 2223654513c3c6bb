package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// tree is all that the node has, with types, modes and content.
func (p *place) tree() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		text := st.Mode().String()
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(b)
		}
		name, err := filepath.Rel(p.dir, path)
		out[name] = text
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// socket leaves a socket, as a process that was killed does.
func (p *place) socket(name string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
		p.t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path(name), Net: "unix"})
	if err != nil {
		p.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

// furnish has a node with everything that others put into the directories in which the agent has its things.
func (p *place) furnish() {
	p.t.Helper()
	p.write("bin/host-device", "another plugin")
	p.write("policy.json", `{"devices":[]}`)
	p.write("net.d/other.conf", "{}")
	p.write("info/nvidia.com-gpu-0-device.json", `{"type":"pci"}`)
	p.write("cdi/nvidia.json", "{}")
	p.write("dp/kubelet_internal_checkpoint", "{}")
	p.socket("dp/kubelet.sock")
	p.socket("dp/fabric-example.com-other.sock")
	p.socket("plugins_registry/other.example.com-reg.sock")
	p.socket("plugins/other.example.com/dra.sock")
}

// litter leaves everything that an agent and the plugin can leave when they are killed.
func (p *place) litter() {
	p.t.Helper()
	p.write("bin/.fabric.fabric-agent-123", "half a binary")
	p.write("net.d/fabric-agent-a.conf", "{}")
	p.write("net.d/fabric-agent-b.conf.tmp", "{")
	p.write("info/fabric.dev-a-0000:3b:00.0-device.json", `{"type":"pci","writer":"fabric-agent"}`)
	p.write("info/.fabric.dev-a-0000:5e:00.0-device.json", `{"ty`)
	p.write("cdi/fabric.dev-claim_c1.json", "{}")
	p.socket("dp/fabric-fabric.dev-a.sock")
	p.socket("plugins/fabric.dev/dra.sock")
	p.socket("plugins_registry/fabric.dev-reg.sock")
	p.write("run/agent.json", "{}")
	p.write("run/calls", "")
	p.write("run/node-addresses.json", `{"addresses":[]}`)
	p.write("run/ipam/a/10.0.0.1", "")
	p.write("run/locks/attachments", "")
	p.write("run/prepared/.tmp", "")
}

const entryOfPod = `{"version":1,"containerID":"a","ifName":"net1","kind":"device","network":"ib",` +
	`"claim":"pci/0000:3b:00.0","args":"K8S_POD_NAMESPACE=team;K8S_POD_NAME=train-0"}`

// agentRuns runs an agent with --no-cluster until the returned function is called.
func (p *place) agentRuns(command string, more ...string) (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	more = append([]string{"--no-cluster", "--interval", "10ms", "--grace", "0s"}, more...)
	go func() { done <- p.main(ctx, command, more...) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	}
}

func ready() bool { code, _ := get("/readyz"); return code == http.StatusOK }

// What is there after an uninstall is what was there before the install, whatever was killed in between.
func TestUninstallLeavesNothing(t *testing.T) {
	p := newPlace(t)
	p.furnish()
	before := p.tree()
	if err := p.main(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	p.litter()
	for range 2 {
		if err := p.main(t.Context(), "uninstall"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, p.tree()); diff != "" {
			t.Errorf("before (-) and after (+):\n%s", diff)
		}
	}
}

// An agent that runs while its node is uninstalled puts nothing back, reports that, and takes the last file with it.
// What it is told on its command line need not be said again.
func TestUninstallBesideAgent(t *testing.T) {
	p := newPlace(t)
	p.furnish()
	before := p.tree()
	stop := p.agentRuns("run")
	sandbox.Until(t, "it is ready", ready)
	p.litter()
	if err := p.uninstallOnly(t); err != nil {
		t.Fatal(err)
	}
	sandbox.Until(t, "it says so", func() bool {
		return !ready() && strings.Contains(p.logs.String(), "fabric-cni has been uninstalled from this node")
	})
	// Its loops have ended, and only one thing is left. What would bring anything back is a new look of one of them:
	// the log says when the agent works.
	after := p.tree()
	for _, name := range []string{"run", "run/uninstalled"} {
		if _, ok := after[name]; !ok {
			t.Errorf("%s is missing", name)
		}
		delete(after, name)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("before (-) and beside the agent (+):\n%s", diff)
	}
	looks := func() int { return strings.Count(p.logs.String(), "installed the CNI binary") }
	was := looks()
	for range 50 { // many of its intervals
		if code, _ := get("/healthz"); code != http.StatusOK {
			t.Fatalf("healthz: %d", code)
		}
		if now := p.tree(); len(now) != len(after)+2 {
			t.Fatalf("something is back:\n%s", cmp.Diff(after, now))
		}
	}
	stop()
	if looks() != was {
		t.Error("it has installed the binary")
	}
	if diff := cmp.Diff(before, p.tree()); diff != "" {
		t.Errorf("before (-) and after (+):\n%s", diff)
	}

	// A container that restarts does not undo it; the init container of a new pod does, beside a running agent too.
	p.write("run/uninstalled", "")
	stop = p.agentRuns("run")
	sandbox.Until(t, "it says so again", func() bool {
		return strings.Count(p.logs.String(), `"reason":"Uninstalled"`) == 2
	})
	if _, err := os.Stat(p.path("bin/fabric")); err == nil {
		t.Error("an agent that starts has installed the binary")
	}
	if err := p.main(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	sandbox.Until(t, "it is ready again", ready)
	stop()
	if _, err := os.Stat(p.path("bin/fabric")); err != nil {
		t.Error(err)
	}
}

// uninstallOnly is uninstall as an administrator calls it in the agent's container: with no flags but those without
// which it would not be this test's.
func (p *place) uninstallOnly(t *testing.T) error {
	t.Helper()
	return runMain(t, &p.logs, "uninstall", "--source", p.path("image/fabric"), "--state-dir", p.path("run"))
}

// While a pod has a device nothing is removed, and an agent that runs goes on.
func TestUninstallRefused(t *testing.T) {
	p := newPlace(t)
	p.furnish()
	stop := p.agentRuns("run")
	defer stop()
	sandbox.Until(t, "it is ready", ready)
	p.write("run/attachments/a@net1", entryOfPod)
	err := p.uninstallOnly(t)
	want := fmt.Sprintf("uninstall %s: attachments remain: pod team/train-0 (container a), net1 (network ib, device "+
		"pci/0000:3b:00.0); delete these pods first, or use --force and return the devices by hand",
		p.path("bin/fabric"))
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, err := os.Stat(p.path("run/uninstalled")); err == nil {
		t.Error("the agent was told to go")
	}
	claim, err := json.Marshal(map[string]any{
		"version": 1, "uid": "c1", "namespace": "team", "name": "rails", "podUID": "p1", "pod": "train-1",
		"devices": []any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.write("run/prepared/p1/c1", string(claim))
	if err := p.uninstallOnly(t); err == nil ||
		!strings.Contains(err.Error(), "pod team/train-1 (ResourceClaim team/rails)") {
		t.Errorf("with a claim: %v", err)
	}
	// By force all goes but what says where the devices belong.
	if err := runMain(t, &p.logs, "uninstall", "--force", "--source", p.path("image/fabric"), "--state-dir",
		p.path("run")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"bin/fabric": false, "run/attachments/a@net1": true,
		"run/prepared/p1/c1": true, "run/uninstalled": true} {
		if _, err := os.Stat(p.path(name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Once the pods have ended, nothing stays.
	if err := os.RemoveAll(p.path("run/prepared/p1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.path("run/attachments/a@net1")); err != nil {
		t.Fatal(err)
	}
	if err := p.uninstallOnly(t); err != nil {
		t.Error(err)
	}
}

// Where uninstall runs in place of the agent, it waits for the pods, is ready when nothing is left, and leaves nothing.
func TestUninstallStay(t *testing.T) {
	p := newPlace(t)
	p.furnish()
	before := p.tree()
	if err := p.main(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	p.litter()
	p.write("run/attachments/a@net1", entryOfPod)
	stop := p.agentRuns("uninstall", "--stay")
	sandbox.Until(t, "it says why it can't", func() bool {
		return strings.Contains(p.logs.String(), "UninstallRefused") &&
			strings.Contains(p.logs.String(), "pod team/train-0")
	})
	if ready() {
		t.Error("ready, but refused")
	}
	if _, err := os.Stat(p.path("bin/fabric")); err != nil {
		t.Errorf("the pod's DEL needs it: %v", err)
	}
	if err := os.Remove(p.path("run/attachments/a@net1")); err != nil { // which the DEL does
		t.Fatal(err)
	}
	sandbox.Until(t, "it is done", ready)
	if diff := cmp.Diff(before, p.tree()); diff != "" {
		t.Errorf("before (-) and after (+):\n%s", diff)
	}
	stop()
	if diff := cmp.Diff(before, p.tree()); diff != "" {
		t.Errorf("before (-) and at the end (+):\n%s", diff)
	}
	if !strings.Contains(p.logs.String(), `"msg":"uninstalled"`) {
		t.Error(p.logs.String())
	}
}
