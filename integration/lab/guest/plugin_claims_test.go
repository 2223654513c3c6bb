//go:build labguest

package guest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const claimUID, claimPod = "0a1b-claim", "0a1b-pod"

// prepare writes what the agent prepares for the pod, and removes it when the test ends.
func prepare(t *testing.T, devices ...prepared.Device) {
	t.Helper()
	s := prepared.In(journal.DefaultDir)
	c := &prepared.Claim{
		UID: claimUID, Namespace: "default", Name: "rails", PodUID: claimPod, Pod: "trainer", Devices: devices,
	}
	if err := s.Save(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unprepare(t) })
}

func unprepare(t *testing.T) {
	t.Helper()
	if err := prepared.In(journal.DefaultDir).Remove(claimUID); err != nil {
		t.Error(err)
	}
}

// claimed is the device of the simulated HCA n.
func claimed(n, rail int) prepared.Device {
	a := device.Address{Bus: "platform", Name: fmt.Sprintf("fakeib.%d", n)}
	return prepared.Device{
		Request: "rails", Name: fmt.Sprintf("platform-fakeib-%d", n), Fabric: "rails", Rail: rail, ID: a.String(),
		Address: a,
	}
}

// ofClaim is a call for an interface of the pod whose devices come from its claim.
func ofClaim(a *attachment, command string) Call {
	c := a.call(command)
	c.Args = "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=trainer;K8S_POD_UID=" + claimPod
	return c
}

// claimAttached is what the container runtime asks before it starts a container of the pod: nothing, or why not.
func claimAttached(t *testing.T, p *Process) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(BinDir(), "fabric"), "claim-attached", claimUID)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"ociVersion":"1.1.0","status":"created","pid":%d}`, p.PID()))
	out, err := cmd.CombinedOutput()
	if (err == nil) != (len(out) == 0) {
		t.Errorf("the hook ended with %v and says %q", err, out)
	}
	return string(out)
}

// Two HCAs that a ResourceClaim gives to a pod: by rail, with the claim's settings, and no container before both are
// in.
func TestPluginClaims(t *testing.T) {
	S1(t)
	Unchanged(t)
	second := claimed(0, 1)
	second.Network = json.RawMessage(`{"mtu":2000}`)
	prepare(t, second, claimed(2, 0))
	pod := NewPod(t, "pod")
	process := pod.Spawn(t)
	conf := func(i int) config {
		return network(config{"allocation": "DRA", "ipam": static(fmt.Sprintf("10.0.0.%d/24", i))})
	}
	const missing = "is in the pod: name the network rails 2 times in the annotation " +
		"k8s.v1.cni.cncf.io/networks (%d of 2"
	net1, net2 := interfaceOf(pod, "net1", conf(1)), interfaceOf(pod, "net2", conf(2))
	for i, a := range []*attachment{net1, net2} {
		want := fmt.Sprintf(missing, i)
		if got := claimAttached(t, process); !containsAll(got, "mlx5_", "(fakeib.", want) {
			t.Errorf("with %d attached the hook says %q, want %q", i, got, want)
		}
		a.prev = json.RawMessage(ofClaim(a, "ADD").Must(t).Stdout)
		ofClaim(a, "CHECK").Must(t)
	}
	if got := claimAttached(t, process); got != "" {
		t.Errorf("with all attached the hook says %q", got)
	}
	pod.has(t, "net1", "10.0.0.1/24")
	pod.has(t, "net2", "10.0.0.2/24")
	if mtu := pod.link(t, "net2").Attrs().MTU; mtu != 2000 {
		t.Errorf("MTU %d of the second rail, want the claim's", mtu)
	}
	store := journal.Store{Dir: journal.DefaultDir}
	for ifname, want := range map[string]string{"net1": "platform/fakeib.2", "net2": "platform/fakeib.0"} {
		if e, err := store.Load(journal.Key{ContainerID: pod.Name, IfName: ifname}); err != nil || e.DeviceKey != want {
			t.Errorf("%s has %+v, %v, want %s", ifname, e, err, want)
		}
	}
	third := interfaceOf(pod, "net3", conf(3))
	wantError(t, ofClaim(third, "ADD").Exec(t), 100, "once more than its ResourceClaims give it devices")

	ofClaim(net1, "DEL").Must(t)
	other := interfaceOf(NewPod(t, "other"), "net1", network(config{"deviceID": "platform/fakeib.2"}))
	wantError(t, other.call("ADD").Exec(t), 101, "is given to pod default/trainer by ResourceClaim default/rails")
	if got := claimAttached(t, process); got == "" {
		t.Error("with one device gone the hook says nothing")
	}
	unprepare(t)
	other.add(t)
	ofClaim(net2, "DEL").Must(t)
	other.del(t)
}

// Two shares of one HCA are two children of it. Its interface has another name than when the claim was prepared.
func TestPluginClaimsOfShares(t *testing.T) {
	S1(t)
	Unchanged(t)
	share := func(n int) prepared.Device {
		d := claimed(0, 0)
		d.Name, d.Netdev, d.Shared = fmt.Sprintf("%s-%d", d.Name, n), "ib9", true
		return d
	}
	prepare(t, share(0), share(1))
	pod := NewPod(t, "pod")
	process := pod.Spawn(t)
	var list []*attachment
	for i := range 2 {
		if got := claimAttached(t, process); !containsAll(got, fmt.Sprintf("(%d of 2 are attached)", i)) {
			t.Errorf("with %d attached the hook says %q", i, got)
		}
		a := interfaceOf(pod, fmt.Sprintf("net%d", i+1), network(config{
			"allocation": "DRA", "mode": "ipoib", "ipam": static(fmt.Sprintf("10.0.0.%d/24", i+1)),
		}))
		ofClaim(a, "ADD").Must(t)
		list = append(list, a)
	}
	if got := claimAttached(t, process); got != "" {
		t.Errorf("with all attached the hook says %q", got)
	}
	// A child of another pod takes nothing away; the whole HCA would be.
	child := interfaceOf(NewPod(t, "child"), "net1", network(config{"mode": "ipoib", "master": "ibs108"}))
	child.add(t)
	child.del(t)
	for _, a := range list {
		ofClaim(a, "DEL").Must(t)
	}
	whole := interfaceOf(NewPod(t, "whole"), "net1", network(config{"device": "ibs108"}))
	wantError(t, whole.call("ADD").Exec(t), 101, "is given to pod default/trainer")
	unprepare(t)
}
