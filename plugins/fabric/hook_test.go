package fabric_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// process is one that waits in a network namespace, as a container's does while its hooks run.
func process(t *testing.T, in sandbox.Netns) int {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", in.Name, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	want, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	sandbox.Until(t, "the process is in its namespace", func() bool {
		got, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		return err == nil && got != want
	})
	return cmd.Process.Pid
}

// hook is what a container runtime calls before a container starts; the error is what it reports.
func (n *node) hook(deviceKey, state string, env ...string) error {
	cmd := n.command("fabric", "claim-attached", "--state-dir", "/run/fabric-cni", deviceKey)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(state), &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil
}

func stateOf(pid int) string {
	return fmt.Sprintf(`{"ociVersion":"1.1.0","id":"c","status":"created","pid":%d,"bundle":"/x"}`, pid)
}

// says checks the one line that an error has.
func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), want) ||
		!strings.Contains(err.Error(), "exit status 1: fabric: ") {
		t.Errorf("got %v, want %q", err, want)
	}
}

// No container starts before each device of its claim is in its pod.
func TestHook(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	state := stateOf(process(t, n.pod))
	says(t, n.hook(claimUID, state), "claim "+claimUID+" is not prepared on this node")

	n.prepare(t, podUID, claimUID, rail("v0"), rail("v1"))
	n.prepare(t, podUID, "claim-2", rail("v2"))
	const missing = "ResourceClaim default/rails gives this pod v%d of fabric rail, and no interface of it is in the " +
		"pod: name the network rail 3 times in the annotation k8s.v1.cni.cncf.io/networks (%d of 3 are attached), " +
		"and look whether Multus is installed on the node; then delete the pod"
	says(t, n.hook(claimUID, state), fmt.Sprintf(missing, 0, 0))
	n.must(t, n.ofPod("ADD", "net1")) // v2
	if err := n.hook("claim-2", state); err != nil {
		t.Errorf("all of this claim is attached: %v", err)
	}
	says(t, n.hook(claimUID, state), fmt.Sprintf(missing, 0, 1))
	n.must(t, n.ofPod("ADD", "net2")) // v1
	says(t, n.hook(claimUID, state), fmt.Sprintf(missing, 0, 2))
	n.must(t, n.ofPod("ADD", "net3"))
	for _, deviceKey := range []string{claimUID, "claim-2"} {
		if err := n.hook(deviceKey, state); err != nil {
			t.Errorf("all is attached: %v", err)
		}
	}

	other := stateOf(process(t, sandbox.New(t)))
	says(t, n.hook(claimUID, other), "pod default/p-"+podUID+" (container c1) has it as net3: it is free when")
	says(t, n.hook(claimUID, stateOf(os.Getpid())), "container c1") // neither the pod's nor the host's
	home := stateOf(process(t, n.host))
	says(t, n.hook(claimUID, home), "has it as net3: the container is on the host's network")

	store := journal.Store{Dir: n.state} // an ADD that was killed before its end
	e, err := store.Load(journal.Key{ContainerID: "c1", IfName: "net3"})
	if err != nil {
		t.Fatal(err)
	}
	e.Attached = false
	if err := store.Save(e); err != nil {
		t.Fatal(err)
	}
	says(t, n.hook(claimUID, state), "gives this pod v0 of fabric rail, and its interface net3 has not been attached "+
		"completely: delete the pod")

	for _, ifName := range []string{"net1", "net2", "net3"} {
		n.must(t, n.ofPod("DEL", ifName))
	}
	says(t, n.hook(claimUID, state), fmt.Sprintf(missing, 0, 0))
	if err := n.hook(claimUID, home); err != nil {
		t.Errorf("on the host's network, where the devices are: %v", err)
	}
	n.unprepare(t, claimUID, "claim-2")
	n.same(t, "after DEL")
}

// A device that has been attached by a configuration of another network counts: it is in the pod.
func TestHookOfAnotherNetwork(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"))
	c := n.call("ADD", conf())
	c.env = []string{podArgs(podUID)}
	n.must(t, c)
	if err := n.hook(claimUID, stateOf(process(t, n.pod))); err != nil {
		t.Error(err)
	}
	n.unprepare(t, claimUID)
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL")
}

// Two shares of one HCA are two devices: one child is not enough. The journal's entries are what the hook goes by.
func TestHookCountsShares(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	share := func(name string) prepared.Device {
		d := rail("v0")
		d.Name, d.Shared = name, true
		return d
	}
	n.prepare(t, podUID, claimUID, share("share-0"), share("share-1"))
	n.prepare(t, podUID, "claim-2", share("share-2"))
	store := journal.Store{Dir: n.state}
	child := func(ifName, deviceKey, name string) {
		e := &journal.Entry{
			Key: journal.Key{ContainerID: "c1", IfName: ifName}, Kind: journal.KindIPoIB, Attached: true,
			DeviceKey: "netdev/v0", Child: &journal.Child{}, NetnsPath: n.pod.Path, Netns: n.pod.Open(t).ID,
			FromClaim: &journal.ClaimDevice{ClaimUID: deviceKey, Request: "rails", Device: name},
		}
		if err := store.Save(e); err != nil {
			t.Fatal(err)
		}
		if err := store.AddChild(e.DeviceKey, e.Key); err != nil {
			t.Fatal(err)
		}
		n.pod.IP(t, "link", "add", ifName, "type", "bridge")
	}
	state := stateOf(process(t, n.pod))
	child("net1", claimUID, "share-0")
	child("net2", "claim-2", "share-2")
	says(t, n.hook(claimUID, state), "rail 3 times in the annotation k8s.v1.cni.cncf.io/networks (2 of 3 are attached)")
	child("net3", claimUID, "share-1")
	if err := n.hook(claimUID, state); err != nil {
		t.Error(err)
	}
}

// Whatever the runtime, or another program in its place, writes: one line, and no container.
func TestHookHostile(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"))
	n.prepare(t, podUID, "hostile", func() prepared.Device {
		d := rail("v1")
		d.Fabric, d.Netdev = "rail\x1b[2J\nx", "\u202e"
		return d
	}())
	pod := process(t, n.pod)
	for name, tt := range map[string]struct{ claim, state, want string }{
		"nothing":     {claimUID, "", "read the container's state"},
		"no JSON":     {claimUID, "\x00", "read the container's state"},
		"no pid":      {claimUID, "{}", "the pid 0"},
		"negative":    {claimUID, `{"pid":-1}`, "the pid -1"},
		"text":        {claimUID, `{"pid":"../1"}`, "read the container's state"},
		"huge number": {claimUID, `{"pid":99999999999999999999}`, "read the container's state"},
		"gone":        {claimUID, `{"pid":2147483647}`, "find the network namespace of the container's process"},
		"endless":     {claimUID, `{"pid":1,"x":"` + strings.Repeat("x", 2<<20) + `"}`, "more than 1048576 bytes"},
		"no UID":      {"../../etc/passwd", stateOf(pod), "usage: fabric claim-attached"},
		"pattern":     {"*", stateOf(pod), "usage: fabric claim-attached"},
		"names":       {"hostile", stateOf(pod), `of fabric rail\x1b[2J; x, and no interface`},
	} {
		t.Run(name, func(t *testing.T) { says(t, n.hook(tt.claim, tt.state), tt.want) })
	}
	if err := os.WriteFile(filepath.Join(n.state, "prepared", podUID, claimUID), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, n.hook(claimUID, stateOf(pod)), "read prepared claim")
}
