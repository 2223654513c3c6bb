package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// raced is a node with the plugin installed, a device rail0, and a pod.
type raced struct {
	*place
	store journal.Store
}

func newRaced(t *testing.T) *raced {
	t.Helper()
	r := &raced{newPlace(t), journal.Store{Dir: journal.DefaultDir}}
	t.Cleanup(func() { os.RemoveAll(journal.DefaultDir) })
	if err := os.Remove(r.path("image/fabric")); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", r.path("image/fabric"), "github.com/fabric-cni/fabric-cni/cmd/fabric")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := sandbox.SetPolicy(sandbox.AllowVirtual); err != nil {
		t.Fatal(err)
	}
	sandbox.Run(t, "ip", "link", "add", "rail0", "type", "veth", "peer", "name", "rail0peer")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", "rail0peer").Run() })
	sandbox.Run(t, "ip", "netns", "add", "pod-u")
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", "pod-u").Run() })
	if err := r.run("install"); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *raced) run(command string, more ...string) error {
	return r.main(r.t.Context(), command, append(more, "--state-dir", journal.DefaultDir)...)
}

// add begins an ADD of rail0. The channel has what it said.
func (r *raced) add() <-chan string {
	r.t.Helper()
	cmd := exec.Command(r.path("bin/fabric"))
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0","name":"rail","type":"fabric","device":"rail0",` +
		`"rdma":"none","ipam":{"type":"static","addresses":[{"address":"192.0.2.9/24"}]}}`)
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=net1", "CNI_NETNS=/run/netns/pod-u",
		"CNI_PATH=/nowhere"}
	out := make(chan string, 1)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); out <- text.String() }()
	return out
}

// waits says whether a process waits for the lock of rail0.
func (r *raced) waits() bool {
	r.t.Helper()
	return sandbox.Waits(r.t, filepath.Join(journal.DefaultDir, "locks/netdev+rail0"))
}

// An uninstall and an ADD that waits for its device: one of them gives way, and no pod has a device that nothing brings
// home. Whether uninstall waits for the ADD, or forces its way, the ADD is refused once it has the device's lock; after
// an uninstall that has waited in vain everything is in place.
func TestUninstallBesideWaitingAdd(t *testing.T) {
	r := newRaced(t)
	lock, err := r.store.Lock(t.Context(), "netdev/rail0")
	if err != nil {
		t.Fatal(err)
	}
	said := r.add()
	sandbox.Until(t, "ADD waits for the device", r.waits)
	done := make(chan error, 1)
	go func() { done <- r.run("uninstall") }()
	sandbox.Until(t, "uninstall has begun", func() bool { return r.store.Away() || len(done) > 0 })
	lock.Unlock()
	if out := <-said; !strings.Contains(out, "being uninstalled") {
		t.Errorf("ADD: %s", out)
	}
	if err := <-done; err != nil {
		t.Errorf("uninstall: %v", err)
	}
	sandbox.Run(t, "ip", "link", "show", "rail0")
	if _, err := os.Lstat(r.path("bin/fabric")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the plugin: %v", err)
	}
	if _, err := os.Lstat(journal.DefaultDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state: %v", err)
	}
}

// An uninstall does not begin while a call is at work that holds a device: what it finds then is what counts.
func TestUninstallWaitsForCalls(t *testing.T) {
	r := newRaced(t)
	call, err := r.store.LockCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.run("uninstall") }()
	sandbox.Until(t, "uninstall has begun", r.store.Away)
	if !strings.Contains(<-r.add(), "being uninstalled") {
		t.Error("an ADD has begun")
	}
	key := journal.Key{ContainerID: "c9", IfName: "net1"}
	e := &journal.Entry{Key: key, Kind: journal.KindDevice, DeviceKey: "netdev/x"}
	if err := r.store.Save(e); err != nil {
		t.Fatal(err)
	}
	call.Unlock()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "attachments remain") {
		t.Errorf("uninstall: %v", err)
	}
	if _, err := os.Lstat(r.path("bin/fabric")); err != nil || r.store.Away() {
		t.Errorf("the plugin: %v; away: %v", err, r.store.Away())
	}
	if out := <-r.add(); strings.Contains(out, `"msg"`) {
		t.Errorf("ADD after an uninstall that was refused: %s", out)
	}
}

// kubelet has made the state directory for the agent's pod, for all to read.
func TestInstallPrivate(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(p.path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.main(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(p.path("run")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}
