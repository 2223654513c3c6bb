package fabric_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// aloneNode is a claimNode whose mounts last, with host-local's addresses in a directory of the test.
func aloneNode(t *testing.T) (n *node, ipam string) {
	t.Helper()
	n = claimNode(t)
	dir := t.TempDir()
	n.policy(t, allowIPAM(dir))
	n.last(t)
	return n, `"ipam":{"type":"host-local","dataDir":"` + dir + `","ranges":[[{"subnet":"10.77.0.0/24"}]]}`
}

// promise prepares a claim as the agent does: with the configuration of its network.
func (n *node) promise(t *testing.T, uid, ipam string, devices ...prepared.Device) {
	t.Helper()
	c := &prepared.Claim{
		UID: uid, Namespace: "default", Name: "rails", PodUID: podUID, Pod: "p-" + podUID, Devices: devices,
		Networks: map[string]json.RawMessage{"rail": json.RawMessage(confOf("1.0.0", `"allocation":"DRA"`, ipam))},
	}
	n.save(t, c)
}

func called(name prepared.InterfaceName, d prepared.Device) prepared.Device {
	d.Interface = name
	return d
}

// has are the pod's attachments: INTERFACE=DEVICE.
func (n *node) has(t *testing.T) (out []string) {
	t.Helper()
	list, err := journal.Store{Dir: n.state}.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Attached {
			out = append(out, e.IfName+"="+strings.TrimPrefix(e.DeviceKey, "netdev/"))
		}
	}
	slices.Sort(out)
	return out
}

// detach is what the agent does when a pod with claims has ended.
func (n *node) detach(t *testing.T) {
	t.Helper()
	list, err := journal.Store{Dir: n.state}.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		n.must(t, call{
			command: "DEL", id: e.ContainerID, ifName: e.IfName, conf: string(e.Conf),
			env: []string{"CNI_ARGS=" + e.Args},
		})
	}
}

// end takes the pod's claims back, as kubelet and the agent do when it has ended, and checks that nothing is left.
func (n *node) end(t *testing.T, claims ...string) {
	t.Helper()
	n.unprepare(t, claims...)
	n.detach(t)
	n.same(t, "after DEL")
	if got := n.held(t); len(got) != 0 {
		t.Errorf("held after DEL: %v", got)
	}
}

// held are the network namespaces that are mounted in the state directory.
func (n *node) held(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", n.lasts))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], "/run/fabric-cni/netns/") {
			out = append(out, f[4])
		}
	}
	return out
}

// look is what the agent does from time to time.
func (n *node) look(t *testing.T) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := n.command("fabric", "own-names")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err, stderr.String())
	}
}

// endOf ends a pod as a container runtime does: its processes, then its namespace.
func endOf(t *testing.T, pid int, ns sandbox.Netns) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Kill()
	sandbox.Until(t, "the process is gone", func() bool {
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		return err != nil
	})
	sandbox.Run(t, "ip", "netns", "delete", ns.Name)
	sandbox.Run(t, "ip", "netns", "add", ns.Name) // for the end of the test; another namespace
}

// A claim alone is enough: the first container of a pod has all devices of all of its claims attached, the others find
// them. They return when the pod has ended, its namespace before them.
func TestHookAttaches(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"), rail("v1"))
	n.promise(t, "claim-2", ipam, rail("v2"))
	pid := process(t, n.pod)
	for range 2 { // a second container, or the first one again
		for _, uid := range []string{claimUID, "claim-2"} {
			if err := n.hook(uid, stateOf(pid)); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.has(t); !slices.Equal(got, []string{"net1=v2", "net2=v1", "net3=v0"}) {
			t.Errorf("the pod has %v", got)
		}
	}
	if out := n.pod.IP(t, "-o", "-4", "addr", "show", "dev", "net3"); !strings.Contains(out, "10.77.0.4/24") {
		t.Errorf("net3: %s", out)
	}
	n.must(t, call{command: "STATUS", conf: confOf("1.1.0", `"allocation":"DRA"`)})
	n.must(t, call{command: "GC", conf: confOf("1.1.0", `"allocation":"DRA"`, ipam, `"cni.dev/valid-attachments":[]`)})
	endOf(t, pid, n.pod)
	if got := n.held(t); len(got) != 1 {
		t.Errorf("held: %v", got)
	}
	n.end(t, claimUID, "claim-2")
}

// A pod with hostUsers false: its network namespace belongs to a user namespace.
func TestHookOfUserNamespace(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"), rail("v1"))
	pid, end := sandbox.Hold(t, "", "unshare", "-Urn")
	if err := n.hook(claimUID, stateOf(pid)); err != nil {
		t.Fatal(err)
	}
	if got := n.has(t); !slices.Equal(got, []string{"net1=v1", "net2=v0"}) {
		t.Errorf("the pod has %v", got)
	}
	end()
	n.end(t, claimUID)
}

// Two containers of a pod start at once: each device is attached once.
func TestHooksAtOnce(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"), rail("v1"))
	n.promise(t, "claim-2", ipam, rail("v2"))
	state := stateOf(process(t, n.pod))
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = n.hook([]string{claimUID, "claim-2"}[i%2], state) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if got := n.has(t); !slices.Equal(got, []string{"net1=v2", "net2=v1", "net3=v0"}) {
		t.Errorf("the pod has %v", got)
	}
	n.end(t, claimUID, "claim-2")
}

// With Multus and an annotation too: nothing is attached twice, and Multus's DEL returns what is Multus's.
func TestHookBesideMultus(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"), rail("v1"), rail("v2"))
	n.must(t, n.ofPod("ADD", "net1", ipam)) // v2
	if err := n.hook(claimUID, stateOf(process(t, n.pod))); err != nil {
		t.Fatal(err)
	}
	if got := n.has(t); !slices.Equal(got, []string{"net1=v2", "net2=v1", "net3=v0"}) {
		t.Errorf("the pod has %v", got)
	}
	n.must(t, n.ofPod("DEL", "net1", ipam))
	if got := n.held(t); len(got) != 1 {
		t.Errorf("held: %v", got)
	}
	n.end(t, claimUID)
}

// What a claim says of names counts, for the hook and for Multus.
func TestHookNames(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.pod.IP(t, "link", "add", "index", "900", "name", "ib1", "type", "bridge")
	n.promise(t, claimUID, ipam, called("ib%d", rail("v0")), called("ib%d", rail("v1")))
	n.promise(t, "claim-2", ipam, called("storage", rail("v2")))
	a := n.run(t, n.ofPod("ADD", "net1", ipam))
	const other = `names its interface of fabric rail "storage", and the annotation asks for net1`
	if a.Code != 100 || !strings.Contains(a.Msg, other) {
		t.Errorf("code %d: %s", a.Code, a.Msg)
	}
	n.must(t, n.ofPod("ADD", "ib2", ipam))
	if err := n.hook(claimUID, stateOf(process(t, n.pod))); err != nil {
		t.Fatal(err)
	}
	if got := n.has(t); !slices.Equal(got, []string{"ib0=v0", "ib2=v1", "storage=v2"}) {
		t.Errorf("the pod has %v", got)
	}
	n.unprepare(t, claimUID, "claim-2")
	n.detach(t)
	n.pod.IP(t, "link", "delete", "ib1")
	n.same(t, "after DEL")
}

// What fails is named, and the next start of the container attaches the rest.
func TestHookFails(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"), called("storage", rail("v2")))
	n.pod.IP(t, "link", "add", "index", "900", "name", "storage", "type", "bridge")
	state := stateOf(process(t, n.pod))
	says(t, n.hook(claimUID, state), "ResourceClaim default/rails gives this pod v2 of fabric rail: could not attach "+
		"storage to pod default/p-"+podUID)
	n.pod.IP(t, "link", "delete", "storage")
	other := sandbox.New(t)
	taken := n.call("ADD", confOf("1.1.0", `"device":"v0"`))
	taken.id, taken.netns = "c9", other.Path
	n.unprepare(t, claimUID) // else it would be refused
	n.must(t, taken)
	n.promise(t, claimUID, ipam, rail("v0"), called("storage", rail("v2")))
	says(t, n.hook(claimUID, state), "gives this pod v0 of fabric rail: could not attach net1")
	if got := n.has(t); !slices.Equal(got, []string{"net1=v0", "storage=v2"}) { // net1 of the other pod
		t.Errorf("pods have %v", got)
	}
	taken.command = "DEL"
	n.must(t, taken)
	if err := n.hook(claimUID, state); err != nil {
		t.Error(err)
	}
	n.end(t, claimUID)
}

// A pod gets a new sandbox, and no DEL of the old one comes.
func TestHookOfNewSandbox(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, rail("v0"), rail("v1"))
	pid := process(t, n.pod)
	if err := n.hook(claimUID, stateOf(pid)); err != nil {
		t.Fatal(err)
	}
	second := sandbox.New(t)
	again := process(t, second)
	const taken = "gives this pod v1 of fabric rail: could not attach net1 to pod default/p-" + podUID
	says(t, n.hook(claimUID, stateOf(again)), taken) // the old one lives
	endOf(t, pid, n.pod)
	if err := n.hook(claimUID, stateOf(again)); err != nil {
		t.Fatal(err)
	}
	if !second.Has(t, "net1") || !second.Has(t, "net2") || len(n.held(t)) != 1 {
		t.Errorf("in the new sandbox: %s, held %v", second.IP(t, "-br", "link"), n.held(t))
	}
	n.end(t, claimUID)
}

// The configuration that the agent has published for the node is the one that counts, and whereabouts needs Multus.
func TestHookConfiguration(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, `"ipam":{"type":"whereabouts","range":"10.0.0.0/24"}`, rail("v0"))
	state := stateOf(process(t, n.pod))
	says(t, n.hook(claimUID, state), "name the network rail in the annotation k8s.v1.cni.cncf.io/networks")
	file := filepath.Join(n.state, "networks", "fabric-agent-rail.conf")
	write := func(text string) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{")
	says(t, n.hook(claimUID, state), "read the configuration of network")
	write(`{"name":"other"}`)
	says(t, n.hook(claimUID, state), `the configuration of network "rail" is that of "other"`)
	write(confOf("1.0.0", `"allocation":"DRA"`, ipam))
	if err := n.hook(claimUID, state); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	n.end(t, claimUID)
}

// What a hook that was killed has mounted goes with the agent's next look.
func TestHoldsAreReleased(t *testing.T) {
	t.Parallel()
	n, ipam := aloneNode(t)
	n.promise(t, claimUID, ipam, called("x", rail("v0")))
	n.pod.IP(t, "link", "add", "index", "900", "name", "x", "type", "bridge")
	if err := n.hook(claimUID, stateOf(process(t, n.pod))); err == nil || len(n.held(t)) != 1 {
		t.Fatalf("%v, held %v", err, n.held(t))
	}
	n.look(t)
	n.pod.IP(t, "link", "delete", "x")
	n.unprepare(t, claimUID)
	n.same(t, "after own-names")
	if got := n.held(t); len(got) != 0 {
		t.Errorf("held: %v", got)
	}
}
