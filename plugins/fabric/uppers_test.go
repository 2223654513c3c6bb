package fabric_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What of the host sits on the device would be left without a link and without its routes.
func TestAddUppersOfTheHost(t *testing.T) {
	for kind, command := range map[string]string{
		"macvlan": "link add link v0 up7 type macvlan",
		"vxlan":   "link add up7 type vxlan id 7 dstport 4789 dev v0",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, command, "link set up7 up", "addr add 10.7.0.1/24 dev up7")
			n.host.Settled(t)
			n.host.IP(t, "route", "add", "10.70.0.0/16", "via", "10.7.0.9", "dev", "up7")
			n.before = n.host.State(t)
			a := n.run(t, n.call("ADD", conf()))
			if a.ok || a.Code != 101 || !strings.Contains(a.Msg, kind+" up7") {
				t.Errorf("answer: %+v", a)
			}
			n.same(t, "after the refusal")
			if _, err := n.plan(n.call("ADD", conf())); err == nil {
				t.Error("plan has nothing against it")
			}
			if a := n.run(t, n.call("STATUS", conf())); a.ok {
				t.Error("STATUS is content")
			}
			n.host.IP(t, "link", "del", "up7")
			n.before = n.host.State(t)
			n.must(t, n.call("ADD", conf()))
			n.must(t, n.call("DEL", conf()))
			n.same(t, "after DEL") // the carrier is there a second later where the peer has the same ifindex
		})
	}
}

// What the pod has made on the device would go on talking over it, in whichever pod it is next.
func TestDelRemovesUppers(t *testing.T) {
	for name, commands := range map[string][]string{
		"macvlan":         {"link add link net1 mine type macvlan mode bridge", "link set mine up"},
		"VXLAN":           {"link add mine type vxlan id 7 dstport 4789 dev net1"},
		"two levels":      {"link add link net1 mine type macvlan", "link add link mine second type macvlan"},
		"named to injure": {"link add link net1 $(reboot) type macvlan"},
		"in a bridge":     {"link add mine type bridge", "link set net1 master mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everything...)
			n.pod.IP(t, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
			before := n.pod.State(t)
			add := n.call("ADD", conf())
			n.must(t, add)
			for _, c := range commands {
				n.pod.IP(t, strings.Fields(c)...)
			}
			n.must(t, n.call("DEL", conf()))
			n.same(t, "after DEL")
			if name == "in a bridge" { // the pod's, and nothing of ours is in it
				n.pod.IP(t, "link", "del", "mine")
			}
			if diff := cmp.Diff(before, n.pod.State(t)); diff != "" {
				t.Errorf("the pod: -before +after:\n%s", diff)
			}
		})
	}
}

// One DEL returns a device on which the pod has made a thousand interfaces, with a thousand addresses and rules of its
// table: what it has made is removed at once, not one after the other, each of which the kernel waits for.
func TestDelRemovesManyUppers(t *testing.T) {
	const many = 1000
	n := newNode(t, everything...)
	before := n.pod.State(t)
	n.must(t, n.call("ADD", conf()))
	var links []struct{ Ifindex int }
	n.pod.JSON(t, &links, "link", "show", "net1")
	var batch strings.Builder
	for i := range many {
		fmt.Fprintf(&batch, "link add link net1 m%d type macvlan mode bridge\n", i)
		fmt.Fprintf(&batch, "addr add 10.8.%d.%d/32 dev net1\n", i/250, i%250+1)
		fmt.Fprintf(&batch, "rule add from 10.9.%d.%d table %d\n", i/250, i%250+1, 20000+links[0].Ifindex)
	}
	n.pod.Batch(t, batch.String())
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL")
	if diff := cmp.Diff(before, n.pod.State(t)); diff != "" {
		t.Errorf("the pod: -before +after:\n%s", diff)
	}
}
