//go:build failpoint

package fabric_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// ADD is killed between its choice of a device and its end. The container does not start, the pod that comes next gets
// no device twice, and all go home.
func TestAddFromClaimsKilled(t *testing.T) {
	for _, point := range []string{
		"journal/save", "journal/claim", "before/move-netdev", "after/move-netdev", "journal/save#2",
	} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			n := claimNode(t)
			n.prepare(t, podUID, claimUID, rail("v0"), rail("v1"))
			killed := n.ofPod("ADD", "net1")
			killed.env = append(killed.env, "FABRIC_FAILPOINT="+point+":kill")
			if a := n.run(t, killed); a.ok {
				t.Fatal("ADD was not killed")
			}
			state := stateOf(process(t, n.pod))
			says(t, n.hook(claimUID, state), "gives this pod ")
			n.must(t, n.ofPod("ADD", "net1")) // the same again, without a DEL
			n.must(t, n.ofPod("ADD", "net2"))
			if a, b := n.deviceOf(t, "c1", "net1"), n.deviceOf(t, "c1", "net2"); a != "netdev/v1" || b != "netdev/v0" {
				t.Errorf("net1 has %s, net2 has %s", a, b)
			}
			if err := n.hook(claimUID, state); err != nil {
				t.Error(err)
			}
			n.unprepare(t, claimUID)
			for _, ifName := range []string{"net1", "net2"} {
				n.must(t, n.ofPod("DEL", ifName))
			}
			n.same(t, "after DEL")
		})
	}
}

// A killed ADD whose pod gets a new sandbox: that takes the device, with or without the DEL of the old one.
func TestClaimsOfKilledSandbox(t *testing.T) {
	t.Parallel()
	n := claimNode(t)
	n.prepare(t, podUID, claimUID, rail("v0"))
	killed := n.ofPod("ADD", "net1")
	killed.env = append(killed.env, "FABRIC_FAILPOINT=before/move-netdev:kill")
	if a := n.run(t, killed); a.ok {
		t.Fatal("ADD was not killed")
	}
	sandbox.Run(t, "ip", "netns", "delete", n.pod.Name)
	sandbox.Run(t, "ip", "netns", "add", n.pod.Name) // for the end of the test; another namespace
	second := sandbox.New(t)
	c := n.ofPod("ADD", "net1")
	c.id, c.netns = "c2", second.Path
	n.must(t, c)
	if err := n.hook(claimUID, stateOf(process(t, second))); err != nil {
		t.Error(err)
	}
	n.must(t, n.ofPod("DEL", "net1")) // late
	c.command = "DEL"
	n.must(t, c)
	n.unprepare(t, claimUID)
	n.same(t, "after DEL")
}

// DEL is killed, and kubelet unprepares the claim and prepares the device for the next pod, or for none.
func TestDelOfClaimsKilled(t *testing.T) {
	for _, point := range []string{
		"before/ipam-del", "before/move-netdev", "after/move-netdev", "journal/disclaim", "journal/remove",
	} {
		t.Run(strings.ReplaceAll(point, "/", " "), func(t *testing.T) {
			t.Parallel()
			n := claimNode(t)
			n.prepare(t, podUID, claimUID, rail("v0"))
			n.must(t, n.ofPod("ADD", "net1"))
			killed := n.ofPod("DEL", "net1")
			killed.env = append(killed.env, "FABRIC_FAILPOINT="+point+":kill")
			if a := n.run(t, killed); a.ok {
				t.Fatal("DEL was not killed")
			}
			n.unprepare(t, claimUID)
			c := &prepared.Claim{UID: "claim-2", PodUID: "next", Devices: []prepared.Device{rail("v0")}}
			n.save(t, c)
			n.must(t, n.ofPod("DEL", "net1"))
			next := n.ofPod("ADD", "net1")
			next.id, next.env = "c2", []string{podArgs("next")}
			n.must(t, next)
			if err := n.hook("claim-2", stateOf(process(t, n.pod))); err != nil {
				t.Error(err)
			}
			next.command = "DEL"
			n.must(t, next)
			n.unprepare(t, "claim-2")
			n.same(t, "after DEL")
		})
	}
}

// The hook is killed while it attaches. The container does not start; the next start attaches the rest, in this sandbox
// or, when that has ended, in another one, and all return.
func TestHookKilled(t *testing.T) {
	for _, point := range []string{
		"journal/save", "journal/claim", "before/move-netdev", "after/move-netdev", "journal/save#2",
		"after/move-netdev#2", "metadata/emptied",
	} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprint(strings.ReplaceAll(point, "/", " "), " ", ended), func(t *testing.T) {
				t.Parallel()
				n, ipam := aloneNode(t)
				n.promise(t, claimUID, ipam, rail("v0"), rail("v1"))
				in, pid := n.pod, process(t, n.pod)
				if err := n.hook(claimUID, stateOf(pid), "FABRIC_FAILPOINT="+point+":kill"); err == nil {
					t.Fatal("the hook was not killed")
				}
				if ended {
					endOf(t, pid, in)
					in = sandbox.New(t)
					pid = process(t, in)
				}
				if err := n.hook(claimUID, stateOf(pid)); err != nil {
					t.Fatal(err)
				}
				if got := n.has(t); !slices.Equal(got, []string{"net1=v1", "net2=v0"}) {
					t.Errorf("the pod has %v", got)
				}
				n.told(t, in, claimUID)
				n.unprepare(t, claimUID)
				endOf(t, pid, in)
				n.detach(t)
				n.look(t)
				n.same(t, "after DEL")
				if got := n.held(t); len(got) != 0 {
					t.Errorf("held after DEL: %v", got)
				}
			})
		}
	}
}
