package fabric_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// claimNode is a node with three rails, of which ResourceClaims give some to the pod p1.
func claimNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.host.Veth(t, "v1", n.far, "w1")
	n.host.Veth(t, "v2", n.far, "w2")
	n.before = n.host.State(t)
	return n
}

// rail is a device that is named v0, v1 or v2. The names count down where the rails count up.
func rail(name string) prepared.Device {
	return prepared.Device{
		Request: "rails", Name: "netdev-" + name, Fabric: "rail", Rail: 9 - int(name[1]-'0'), ID: "netdev/" + name,
		Address: device.Address{Bus: prepared.Virtual, Name: name}, Netdev: name,
		Attributes: prepared.Attributes{"fabric": []byte(`{"string":"rail"}`)},
	}
}

const claimUID, podUID = "11111111-2222", "aaaa-bbbb"

// prepare writes what the agent prepares.
func (n *node) prepare(t *testing.T, pod, deviceKey string, devices ...prepared.Device) {
	t.Helper()
	c := &prepared.Claim{
		UID: deviceKey, Namespace: "default", Name: "rails", PodUID: pod, Pod: "p-" + pod, Devices: devices,
	}
	n.save(t, c)
}

// save writes a claim with its files, as the agent does.
func (n *node) save(t *testing.T, c *prepared.Claim) {
	t.Helper()
	if err := errors.Join(prepared.In(n.state).InitMetadata(c), prepared.In(n.state).Save(c)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) unprepare(t *testing.T, claims ...string) {
	t.Helper()
	for _, c := range claims {
		if err := prepared.In(n.state).Remove(c); err != nil {
			t.Error(err)
		}
	}
}

// ofPod is a call for an interface of a pod, as containerd and Multus make it.
func (n *node) ofPod(command, ifName string, fields ...string) call {
	c := n.call(command, confOf("1.1.0", append([]string{`"allocation":"DRA"`}, fields...)...))
	c.ifName = ifName
	c.env = []string{podArgs(podUID)}
	return c
}

func podArgs(uid string) string {
	return "CNI_ARGS=IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p-" + uid + ";K8S_POD_UID=" + uid
}

// deviceOf is the device that an attachment has, by its journal entry.
func (n *node) deviceOf(t *testing.T, id, ifName string) string {
	t.Helper()
	e, err := journal.Store{Dir: n.state}.Load(journal.Key{ContainerID: id, IfName: ifName})
	if err != nil {
		t.Fatal(err)
	}
	return e.DeviceKey
}

// Interfaces get the devices of the pod's claims in the order of their rails, and each goes home.
func TestAddFromClaims(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	small := rail("v1")
	small.Network = json.RawMessage(`{"mtu":1400}`)
	n.prepare(t, podUID, claimUID, rail("v0"), small)
	n.prepare(t, podUID, "claim-2", rail("v2"))
	n.prepare(t, podUID, "claim-3", settled("ethernet", "{}"))
	for i, want := range []string{"v2", "v1", "v0"} {
		c := n.ofPod("ADD", "net"+string(rune('1'+i)))
		result := n.must(t, c).stdout
		if got := n.deviceOf(t, "c1", c.ifName); got != "netdev/"+want {
			t.Errorf("%s has %s, want %s", c.ifName, got, want)
		}
		if want == "v1" && !strings.Contains(n.pod.IP(t, "link", "show", "dev", c.ifName), "mtu 1400") {
			t.Errorf("the claim's MTU is not set: %s", n.pod.IP(t, "link", "show", "dev", c.ifName))
		}
		c.command, c.conf = "CHECK", with(t, c.conf, result)
		n.must(t, c)
		if want == "v1" { // the claim's setting is what CHECK compares with
			n.pod.IP(t, "link", "set", c.ifName, "mtu", "1500")
			c.conf = with(t, c.conf, strings.ReplaceAll(result, `"mtu": 1400`, `"mtu": 0`))
			if a := n.run(t, c); !strings.Contains(a.Msg, "mtu: want 1400, got 1500") {
				t.Errorf("CHECK: %+v", a)
			}
		}
	}
	a := n.run(t, n.ofPod("ADD", "net4"))
	for _, want := range []string{"pod default/p-" + podUID, "network rail", "v2 (claim default/rails) is net1"} {
		if a.Code != 100 || !strings.Contains(a.Msg, want) {
			t.Errorf("one more than there are devices: %d %s, want %q", a.Code, a.Msg, want)
		}
	}
	n.must(t, call{command: "STATUS", conf: confOf("1.1.0", `"allocation":"DRA"`)})
	n.unprepare(t, claimUID, "claim-2", "claim-3") // kubelet may be first
	for _, ifName := range []string{"net2", "net1", "net3"} {
		n.must(t, n.ofPod("DEL", ifName))
		n.must(t, n.ofPod("DEL", ifName))
	}
	n.same(t, "after DEL")
}

// GC has nothing but the journal.
func TestGCOfClaims(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"), rail("v1"))
	n.must(t, n.ofPod("ADD", "net1"))
	n.must(t, n.ofPod("ADD", "net2"))
	n.unprepare(t, claimUID)
	n.age(t)
	n.must(t, call{command: "GC", conf: confOf("1.1.0", `"allocation":"DRA"`, `"cni.dev/valid-attachments":[]`)})
	n.same(t, "after GC")
}

// saved writes a prepared claim for the pod.
func saved(devices ...prepared.Device) func(*testing.T, *node) {
	return func(t *testing.T, n *node) { n.prepare(t, podUID, claimUID, devices...) }
}

// settled is v0 of another fabric, with settings.
func settled(fabric, settings string) prepared.Device {
	d := rail("v0")
	d.Fabric, d.Network = fabric, json.RawMessage(settings)
	return d
}

// claimRefusals are refused with the code and the words of ADD.
var claimRefusals = map[string]struct {
	prepare func(*testing.T, *node)
	fields  []string
	env     []string
	code    uint
	want    string
}{
	"no UID":           {env: []string{}, code: 100, want: "CNI_ARGS has no K8S_POD_UID"},
	"bad UID":          {env: []string{"CNI_ARGS=K8S_POD_UID=../x"}, code: 100, want: `value "../x" is no UID`},
	"nothing prepared": {code: 100, want: "of fabric rail; add a claim of DeviceClass rail.fabric.dev"},
	"another fabric's": {
		prepare: saved(settled("ethernet", "{}")),
		code:    100, want: "none of its ResourceClaims gives it a device of fabric rail",
	},
	"file damaged": {
		prepare: func(t *testing.T, n *node) {
			n.prepare(t, podUID, claimUID, rail("v0"))
			damage(t, n, podUID, "claim-2")
		},
		code: 100, want: "can't be read",
	},
	"deviceID of another": {
		prepare: saved(rail("v0")), fields: []string{`"runtimeConfig":{"deviceID":"netdev/v1"}`},
		code: 100, want: `device "netdev/v1" is none of those of fabric rail that ResourceClaims give to pod`,
	},
	"bad setting": {
		prepare: saved(settled("rail", `{"mtu":"9000"}`)),
		code:    7, want: `device netdev/v0 of ResourceClaim default/rails: field "mtu": value "9000" is not allowed`,
	},
	"unknown setting": {
		prepare: saved(settled("rail", `{"mtv":9000}`)),
		code:    7, want: `device netdev/v0 of ResourceClaim default/rails: field "mtv": is unknown`,
	},
	"device gone": {prepare: saved(rail("v7")), code: 100, want: `device "v7": no such device`},
	"selector beside it": {
		prepare: saved(rail("v0")), fields: []string{`"device":"v0"`},
		code: 7, want: `is a selector beside "allocation": "DRA"`,
	},
	"hostile names": {
		prepare: func(t *testing.T, n *node) {
			c := &prepared.Claim{UID: claimUID, Namespace: "de\nfault", Name: "\x1b[2J", PodUID: podUID}
			c.Devices = []prepared.Device{rail("v0")}
			n.save(t, c)
		},
		fields: []string{`"deviceID":"netdev/v1"`},
		code:   100, want: `(claim "de\nfault"/"\x1b[2J")`,
	},
}

// fabricctl plan says the same as ADD.
func TestAddFromClaimsRefused(t *testing.T) {
	for name, tt := range claimRefusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := claimNode(t)
			if tt.prepare != nil {
				tt.prepare(t, n)
			}
			c := n.ofPod("ADD", "net1", tt.fields...)
			if tt.env != nil {
				c.env = tt.env
			}
			a := n.run(t, c)
			if a.ok || a.Code != tt.code || !strings.Contains(a.Msg, tt.want) {
				t.Errorf("answer %+v, want %d %q", a, tt.code, tt.want)
			}
			args := ""
			if len(c.env) > 0 {
				args = strings.TrimPrefix(c.env[0], "CNI_ARGS=")
			}
			if out, _ := n.planWith(c, "--cni-args", args); !strings.Contains(out, tt.want) {
				t.Errorf("plan: %s, want %q", out, tt.want)
			}
			if err := os.RemoveAll(filepath.Join(n.state, "prepared")); err != nil {
				t.Error(err)
			}
			n.same(t, "afterwards")
		})
	}
}

// damage writes a file that can't be read.
func damage(t *testing.T, n *node, pod, deviceKey string) {
	t.Helper()
	dir := filepath.Join(n.state, "prepared", pod)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, deviceKey), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The device that Multus names is taken out of turn. One that kubelet's device plugin has given to a pod of before the
// switch is attached as before.
func TestAddFromClaimsWithDeviceID(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.policy(t, sandbox.AllowVirtual)
	n.prepare(t, podUID, claimUID, rail("v0"), rail("v1"))
	n.must(t, n.ofPod("ADD", "net1", `"runtimeConfig":{"deviceID":"netdev/v0"}`))
	n.must(t, n.ofPod("ADD", "net2"))
	if a, b := n.deviceOf(t, "c1", "net1"), n.deviceOf(t, "c1", "net2"); a != "netdev/v0" || b != "netdev/v1" {
		t.Errorf("net1 has %s, net2 has %s", a, b)
	}
	before := n.ofPod("ADD", "net9", `"deviceID":"0000:3b:00.0"`)
	before.id, before.env = "c2", []string{podArgs("older")}
	if a := n.run(t, before); a.Code != 100 || !strings.Contains(a.Msg, `deviceID "0000:3b:00.0": no such device`) {
		t.Errorf("as without claims: %+v", a)
	}
	n.unprepare(t, claimUID)
	n.must(t, n.ofPod("DEL", "net1"))
	n.must(t, n.ofPod("DEL", "net2"))
	n.same(t, "after DEL")
}

// Without claims of its own a configuration may name any device, but not one that a claim gives to another pod. What
// can't be read of others keeps no pod waiting.
func TestAddOfAnothersDevice(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"))
	damage(t, n, "somebody", "claim-2")
	c := n.call("ADD", conf())
	for _, env := range [][]string{nil, {podArgs("other")}} {
		c.env = env
		a := n.run(t, c)
		want := "device netdev/v0 is given to pod default/p-" + podUID + " by ResourceClaim default/rails"
		if a.Code != 101 || !strings.Contains(a.Msg, want) || !strings.Contains(a.Msg, "NodeUnprepareResources") {
			t.Errorf("answer %+v, want %q", a, want)
		}
	}
	if out, err := n.plan(c); err == nil || !strings.Contains(out, "code 101: device netdev/v0 is given to pod") {
		t.Errorf("plan: %v\n%s", err, out)
	}
	n.must(t, call{command: "STATUS", conf: conf()}) // it passes
	c.env = []string{podArgs(podUID)}                // its own pod, by another network
	n.must(t, c)
	c.command = "DEL"
	n.must(t, c)
	free := n.call("ADD", confOf("1.1.0", `"device":"v1"`))
	n.must(t, free)
	free.command = "DEL"
	n.must(t, free)
	n.unprepare(t, claimUID)
	if err := os.RemoveAll(filepath.Join(n.state, "prepared")); err != nil {
		t.Error(err)
	}
	n.same(t, "afterwards")
}

// A new sandbox of the same pod gets the devices of the old one: as soon as that is gone.
func TestSandboxOfClaimsChanges(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"), rail("v1"))
	for _, ifName := range []string{"net1", "net2"} {
		n.must(t, n.ofPod("ADD", ifName))
	}
	second := sandbox.New(t)
	next := func(ifName string) call {
		c := n.ofPod("ADD", ifName)
		c.id, c.netns = "c2", second.Path
		return c
	}
	if a := n.run(t, next("net1")); a.Code != 101 || !strings.Contains(a.Msg, "(container c1) as net1") {
		t.Errorf("while the old one lives: %+v", a)
	}
	n.must(t, n.ofPod("DEL", "net1"))
	n.must(t, next("net1"))
	if got := n.deviceOf(t, "c2", "net1"); got != "netdev/v1" {
		t.Errorf("net1 has %s", got)
	}
	if a := n.run(t, next("net2")); a.Code != 101 { // v0 is in the old one still
		t.Errorf("while the old one has it: %+v", a)
	}
	n.must(t, n.ofPod("DEL", "net2"))
	n.must(t, next("net2"))
	for _, ifName := range []string{"net1", "net2"} {
		c := next(ifName)
		c.command = "DEL"
		n.must(t, c)
	}
	n.unprepare(t, claimUID)
	n.same(t, "after DEL")
}

// ADDs of one pod at once get a device each.
func TestAddFromClaimsAtOnce(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"), rail("v1"), rail("v2"))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []string
	for i := range 4 {
		wg.Go(func() {
			a := n.retry(t, n.ofPod("ADD", "net"+string(rune('1'+i))))
			mu.Lock()
			defer mu.Unlock()
			if !a.ok {
				failed = append(failed, a.Msg)
			}
		})
	}
	wg.Wait()
	if len(failed) != 1 || !strings.Contains(failed[0], "once more than its ResourceClaims give it devices") {
		t.Errorf("of four for three devices failed: %q", failed)
	}
	var got []string
	for _, e := range (journal.Store{Dir: n.state}).Of("c1") {
		got = append(got, e.DeviceKey)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"netdev/v0", "netdev/v1", "netdev/v2"}) {
		t.Errorf("got %v", got)
	}
	for i := range 4 {
		n.must(t, n.ofPod("DEL", "net"+string(rune('1'+i))))
	}
	n.unprepare(t, claimUID)
	n.same(t, "after DEL")
}
