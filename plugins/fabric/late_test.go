package fabric_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// home waits until v0 is on the host.
func (n *node) home(t *testing.T) {
	t.Helper()
	sandbox.Until(t, "v0 is home", func() bool {
		return strings.Contains(n.host.IP(t, "-d", "addr", "show"), "altname enp59s0") &&
			strings.Contains(n.host.IP(t, "-4", "addr", "show"), "10.1.0.1/24")
	})
}

// hang starts an ADD of container c1, and waits until its IPAM plugin has written a line and waits for g.open.
func (g *gate) hang(t *testing.T, n *node, add call, line string) *running {
	t.Helper()
	g.shut(t, "ADD", "c1")
	r := n.start(t, add)
	g.began(t, line)
	return r
}

// lateAdd starts an ADD of container c1 that hangs in its IPAM plugin, and waits until the device is in the pod.
func lateAdd(t *testing.T, typ string) (*node, *gate, *running) {
	t.Helper()
	n, g := newNode(t, everything...), newGate(t, typ)
	add := g.hang(t, n, g.call(n, "ADD", "c1"), "ADD c1")
	sandbox.Until(t, "the device is in the pod", func() bool { return n.pod.Has(t, "net1") })
	return n, g, add
}

// An ADD hangs in its IPAM plugin, its DEL returns the device at once, and the next pod takes it. When the ADD goes on
// it leaves the device alone, and gives back the address that it has got. "gate" runs before the interface is in the
// pod, "dhcp" after it.
func TestLateAdd(t *testing.T) {
	for _, typ := range []string{"gate", "dhcp"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			n, g, add := lateAdd(t, typ)
			second := sandbox.New(t)
			del := n.start(t, g.call(n, "DEL", "c1"))
			n.home(t)
			n.waiting(t, "ipam")

			c2 := g.call(n, "ADD", "c2")
			c2.netns = second.Path
			n.must(t, c2)
			before := second.State(t)
			g.open(t, "ADD", "c1")
			if a := <-add.done; a.ok || a.Code != 3 {
				t.Errorf("the late ADD: %+v", a)
			}
			a := <-del.done // or it has waited for its time
			if !a.ok && (a.Code != 11 || !strings.Contains(a.Msg, "IPAM plugin of attachment c1/net1")) {
				t.Errorf("its DEL: %+v", a)
			}
			if diff := cmp.Diff(before, second.State(t)); diff != "" {
				t.Errorf("the next pod: -before +after:\n%s", diff)
			}
			n.must(t, g.call(n, "DEL", "c1")) // late
			if g.has("c1") || !g.has("c2") {
				t.Errorf("addresses: c1 %v, c2 %v", g.has("c1"), g.has("c2"))
			}
			if diff := cmp.Diff(before, second.State(t)); diff != "" {
				t.Errorf("the next pod: -before +after:\n%s", diff)
			}
			c2.command = "DEL"
			n.must(t, c2)
			n.same(t, "after all")
		})
	}
}

// The same with a DEL that was killed, or could not end: the late ADD tidies up.
func TestLateAddAfterKilledDel(t *testing.T) {
	t.Parallel()
	n, g, add := lateAdd(t, "gate")
	del := n.start(t, g.call(n, "DEL", "c1"))
	n.home(t)
	n.waiting(t, "ipam")
	sandbox.Until(t, "the DEL has given the claim up", func() bool {
		owned, _, err := journal.Store{Dir: n.state}.DevicesOf(journal.Key{ContainerID: "c1", IfName: "net1"})
		return err == nil && len(owned) == 0
	})
	del.kill(t)
	g.open(t, "ADD", "c1")
	if a := <-add.done; a.ok || a.Code != 3 {
		t.Errorf("the late ADD: %+v", a)
	}
	n.same(t, "after the late ADD")
	g.hasNot(t, "c1")
}

// Another ADD of the same container and interface comes meanwhile: what it has is its own.
func TestLateAddOfTwo(t *testing.T) {
	t.Parallel()
	n, g, first := lateAdd(t, "gate")
	second := n.start(t, g.call(n, "ADD", "c1"))
	n.waiting(t, "ipam")
	g.open(t, "ADD", "c1")
	if a := <-first.done; a.ok || a.Code != 101 || !strings.Contains(a.Msg, "another ADD") {
		t.Errorf("the first ADD: %+v", a)
	}
	second.succeeds(t, "the second ADD")
	if s := n.pod.IP(t, "addr", "show", "dev", "net1"); !strings.Contains(s, "192.168.10.7/24") || !g.has("c1") {
		t.Errorf("in the pod: %s, address given: %v", s, g.has("c1"))
	}
	n.must(t, g.call(n, "DEL", "c1"))
	n.same(t, "after DEL")
	g.hasNot(t, "c1")
}

// An ADD that fails while its IPAM plugin hangs holds no lock: its DEL returns the device at once.
func TestFailedAddBlocksNoDel(t *testing.T) {
	t.Parallel()
	n, g := newNode(t, "link add link v0 m0 type macvlan", "addr add 10.5.0.1/24 dev m0"), newGate(t, "gate")
	c := g.call(n, "ADD", "c1")
	c.conf = confOf("1.1.0", `"device":"m0"`, `"ipam":{"type":"gate"}`, `"mtu":9000`) // more than v0 has
	add := g.hang(t, n, c, "ADD c1")
	sandbox.Until(t, "the device is in the pod", func() bool { return n.pod.Has(t, "net1") })
	del := n.start(t, g.call(n, "DEL", "c1"))
	sandbox.Until(t, "m0 is home", func() bool { return n.host.Has(t, "m0") })
	g.open(t, "ADD", "c1")
	if a := <-add.done; a.ok {
		t.Errorf("ADD: %+v", a)
	}
	del.succeeds(t, "DEL")
	n.same(t, "after both")
	g.hasNot(t, "c1")
}

// The IPAM plugin of an ADD dies with it, and gives no address after the last DEL.
func TestKilledAddTakesIPAMAlong(t *testing.T) {
	t.Parallel()
	n, g := newNode(t, everything...), newGate(t, "gate")
	add := g.hang(t, n, g.call(n, "ADD", "c1"), "ADD c1")
	add.kill(t)
	n.must(t, g.call(n, "DEL", "c1"))
	n.same(t, "after DEL")
	f, err := os.OpenFile(g.fifo("ADD", "c1"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if !errors.Is(err, unix.ENXIO) { // no process has it open for reading
		f.Close()
		t.Errorf("after the last DEL a plugin waits to give an address: %v", err)
	}
}

// What the plugin has started lives on. DEL ends it, and nothing of it takes an address afterwards.
func TestDelEndsIPAMOfKilledAdd(t *testing.T) {
	t.Parallel()
	n, g := newNode(t, everything...), newGate(t, "gate")
	if err := os.WriteFile(filepath.Join(g.dir, "child"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	add := g.hang(t, n, g.call(n, "ADD", "c1"), "child")
	add.kill(t)
	n.must(t, g.call(n, "DEL", "c1")) // in which no one opens the gate
	n.same(t, "after DEL")
	f, err := os.OpenFile(g.fifo("ADD", "c1"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if !errors.Is(err, unix.ENXIO) {
		f.Close()
		t.Errorf("after DEL a process waits to give an address: %v", err)
	}
	g.hasNot(t, "c1")
}

// A process that never ends, started by the IPAM plugin of an ADD that was killed without the environment that would
// show it, does not keep the pod for ever.
func TestDelGivesUpOnEndlessIPAM(t *testing.T) {
	t.Parallel()
	n, g := newNode(t, everything...), newGate(t, "gate")
	if err := os.WriteFile(filepath.Join(g.dir, "child"), []byte("disguised"), 0o600); err != nil {
		t.Fatal(err)
	}
	add := g.hang(t, n, g.call(n, "ADD", "c1"), "child")
	add.kill(t)
	for range 2 {
		a := n.run(t, g.call(n, "DEL", "c1"))
		if a.ok || a.Code != 11 || !strings.Contains(a.Msg, "IPAM plugin of attachment c1/net1") {
			t.Errorf("DEL: %+v", a)
		}
		n.home(t)
	}
	n.must(t, g.call(n, "DEL", "c1"))
	n.same(t, "after the third DEL")
	if err := os.Remove(filepath.Join(g.dir, "address.c1")); err != nil { // of that DEL's own process
		t.Fatal(err)
	}
	g.open(t, "ADD", "c1")
	sandbox.Until(t, "the endless process has come to its end", func() bool { return g.has("c1") })
}
