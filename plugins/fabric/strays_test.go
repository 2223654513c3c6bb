package fabric_test

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// A pod makes a macvlan on its interface and moves it into a third network namespace: it would take the
// frames of the next pod. DEL removes it there. One that another plugin has put into a pod keeps its link: ADD refuses.
func TestAdversaryThirdNamespace(t *testing.T) {
	for name, kind := range map[string]string{"passthru": "macvlan mode passthru", "bridge": "macvlan mode bridge"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everything...)
			third := sandbox.New(t)
			n.must(t, n.call("ADD", conf()))
			n.pod.IP(t, strings.Fields("link add link net1 stray type "+kind)...)
			n.pod.IP(t, "link", "set", "stray", "netns", third.Name)
			n.must(t, n.call("DEL", conf()))
			n.same(t, "after DEL")
			if third.Has(t, "stray") {
				t.Error("it is on the device still")
			}

			n.host.IP(t, strings.Fields("link add link v0 other type "+kind)...)
			n.host.IP(t, "link", "set", "other", "netns", third.Name)
			if a := n.run(t, n.call("ADD", conf())); a.ok || a.Code != 101 || !strings.Contains(a.Msg, "other") ||
				!strings.Contains(a.Msg, third.Name) {
				t.Errorf("answer: %+v", a)
			}
			n.must(t, n.call("DEL", conf()))
			if !third.Has(t, "other") {
				t.Error("another pod has lost its interface")
			}
			third.IP(t, "link", "del", "other")
			n.must(t, n.call("ADD", conf()))
			n.must(t, n.call("DEL", conf()))
			n.same(t, "in the end")
		})
	}
}
