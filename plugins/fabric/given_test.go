package fabric_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// givenNode is a node with two devices, of which kubelet has given the first to the pod "other".
func givenNode(t *testing.T) *railNode {
	t.Helper()
	r := &railNode{node: newNode(t), kubelet: filepath.Join(t.TempDir(), "device-plugins"), t: t}
	r.host.Veth(t, "v1", r.far, "w1")
	r.mustDo(os.Mkdir(r.kubelet, 0o700), os.WriteFile(r.file(), []byte(givenText), 0o600))
	r.policyWith("")
	r.before = r.host.State(t)
	return r
}

const givenText = `{"Data":{"PodDeviceEntries":[{"PodUID":"other","ContainerName":"c","ResourceName":"fabric.dev/ib",` +
	`"DeviceIDs":{"-1":["netdev/v0"]},"AllocResp":"Gi0K"},{"PodUID":"` + podUID + `","ContainerName":"c",` +
	`"ResourceName":"fabric.dev/ib","DeviceIDs":{"0":["netdev/v1"]},"AllocResp":""}],` +
	`"RegisteredDevices":{"fabric.dev/ib":["netdev/v0","netdev/v1"]}},"Checksum":1}`

// policyWith is the node's policy with these fields.
func (r *railNode) policyWith(fields string) {
	r.t.Helper()
	r.policy(r.t, strings.TrimSuffix(sandbox.AllowVirtual, "}")+
		fmt.Sprintf(`,"devicePluginDir":%q%s}`, r.kubelet, fields))
}

// A network names a device that kubelet has given to another pod, which is not attached yet.
func TestAddOfKubeletsDevice(t *testing.T) {
	t.Parallel()
	r := givenNode(t)
	env := []string{podArgs("thief")}
	thief := func(command string) call {
		c := r.call(command, confOf("1.1.0", `"device":"v0"`))
		c.env = env
		return c
	}
	refused := func(when string) {
		t.Helper()
		want := `device netdev/v0 is given to pod of UID "other" by kubelet (resource "fabric.dev/ib")`
		if a := r.run(t, thief("ADD")); a.Code != 101 || !strings.Contains(a.Msg, want) {
			t.Errorf("%s: %+v", when, a)
		}
		r.must(t, thief("DEL"))
		r.same(t, "after a refused ADD "+when)
	}
	for _, env = range [][]string{nil, {podArgs(`x","PodUID":"other`)}, {podArgs("thief")}} {
		refused(fmt.Sprintf("without kubelet's directory of pods, %q", env))
	}
	pods := filepath.Join(filepath.Dir(r.kubelet), "pods")
	r.mustDo(os.MkdirAll(filepath.Join(pods, "other"), 0o700))
	refused("of a pod that runs")
	r.mustDo(os.Remove(filepath.Join(pods, "other")))
	refused("of a pod that starts")

	// A clock that was set back says nothing.
	later := time.Now().Add(time.Hour)
	r.mustDo(os.Chtimes(r.file(), later, later))
	refused("with a checkpoint of the future")

	// Kubelet forgets a pod that is gone only when it gives out something else.
	old := time.Now().Add(-2 * time.Minute)
	r.mustDo(os.Chtimes(r.file(), old, old))
	r.must(t, thief("ADD"))
	r.must(t, thief("DEL"))

	// The rightful pod gets it, whatever its network is called and however it names it.
	r.mustDo(os.Mkdir(filepath.Join(pods, "other"), 0o700))
	for _, field := range []string{`"device":"v0"`, `"deviceID":"netdev/v0"`} {
		for _, command := range []string{"ADD", "DEL"} {
			c := r.call(command, confOf("1.1.0", field))
			c.env = []string{podArgs("other")}
			r.must(t, c)
		}
	}
	// Where kubelet has written something else, nothing is known, and the log reports that.
	r.mustDo(os.WriteFile(r.file(), []byte("{"), 0o600))
	if a := r.must(t, thief("ADD")); !strings.Contains(a.stderr, "it is not known which devices kubelet has given") {
		t.Errorf("log %q", a.stderr)
	}
	r.must(t, thief("DEL"))
	r.same(t, "at the end")
}

// With requireAllocated a pod gets only what it was given; by default where the agent has noted that Fabrics are in
// force. What the owner writes counts more.
func TestRequireAllocated(t *testing.T) {
	t.Parallel()
	r := givenNode(t)
	r.mustDo(os.WriteFile(r.file(), []byte(strings.ReplaceAll(givenText, "v0", "v9")), 0o600))
	for _, tt := range []struct {
		name, policy string
		fabrics      bool
		device       string
		pod          string
		want         string // of the refusal; empty: it is attached
	}{
		{"no agent", "", false, "v0", podUID, ""},
		{"without Fabrics", "", false, "v0", podUID, ""},
		{"with Fabrics", "", true, "v0", podUID, "netdev/v0 was not given to this pod"},
		{"its own", "", true, "v1", podUID, ""},
		{"the owner forbids", `,"requireAllocated":true`, false, "v0", podUID, "was not given to this pod"},
		{"the owner allows", `,"requireAllocated":false`, true, "v0", podUID, ""},
		{"no pod", "", true, "v0", "", "CNI_ARGS has no K8S_POD_UID"},
		{"of a claim, by name", "", true, "v0", "claims", ""},
	} {
		note := filepath.Join(r.state, policy.NodeAddressesFile)
		r.mustDo(os.MkdirAll(r.state, 0o700))
		if tt.name != "no agent" {
			b, err := json.Marshal(policy.NodeAddresses{Addresses: []netip.Addr{}, Fabrics: tt.fabrics})
			r.mustDo(err, os.WriteFile(note, b, 0o600))
		}
		r.policyWith(tt.policy)
		if tt.pod == "claims" {
			r.prepare(t, tt.pod, claimUID, rail("v0"))
		}
		c := r.call("ADD", confOf("1.1.0", fmt.Sprintf(`"device":%q`, tt.device)))
		if tt.pod != "" {
			c.env = []string{podArgs(tt.pod)}
		}
		a := r.run(t, c)
		if a.ok != (tt.want == "") || tt.want != "" && (a.Code != 104 || !strings.Contains(a.Msg, tt.want)) {
			t.Errorf("%s: %+v", tt.name, a)
		}
		c.command = "DEL"
		r.must(t, c)
	}
	r.unprepare(t, claimUID)
	// Without kubelet's file nothing was given.
	r.mustDo(os.Remove(filepath.Join(r.kubelet, kubelet.Checkpoint)))
	r.policyWith(`,"requireAllocated":true`)
	c := r.call("ADD", confOf("1.1.0", `"device":"v1"`))
	c.env = []string{podArgs(podUID)}
	if a := r.run(t, c); a.Code != 104 {
		t.Errorf("without a checkpoint: %+v", a)
	}
	r.mustDo(os.Remove(filepath.Join(r.state, policy.NodeAddressesFile)))
	c.command = "DEL"
	r.must(t, c)
	r.same(t, "at the end")
}
