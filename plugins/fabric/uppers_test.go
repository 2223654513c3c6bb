package fabric_test

import (
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
			if diff := cmp.Diff(n.before, n.host.State(t)); diff != "" {
				t.Errorf("after DEL: -before +after:\n%s", diff)
			}
		})
	}
}
