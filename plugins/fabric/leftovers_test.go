package fabric_test

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/program"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// drop puts a program that drops everything on an interface.
func drop(t *testing.T, n sandbox.Netns, k program.Kind, name string) {
	t.Helper()
	link, err := n.Link(t).ByName(name)
	if err == nil {
		err = n.Open(t).Do(func() error { return program.Attach(t, k, link.Index) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A device with programs of the host stays where it is.
func TestAddProgramsOfTheHost(t *testing.T) {
	for k, want := range map[program.Kind]string{
		program.XDP: "xdpgeneric program", program.TCXEgress: "tcx_egress program",
	} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			drop(t, n.host, k, "v0")
			n.before = n.host.State(t)
			a := n.run(t, n.call("ADD", conf()))
			if a.ok || a.Code != 101 || !strings.Contains(a.Msg, want) {
				t.Errorf("answer: %+v", a)
			}
			n.same(t, "after the refusal")
		})
	}
}

// Whatever a pod puts on its interface, neither the host nor the next pod has it.
func TestDelLeavesNothing(t *testing.T) {
	n := newNode(t, everything...)
	for _, k := range append([]program.Kind{"none"}, program.All...) {
		n.must(t, n.call("ADD", conf()))
		link := n.pod.IP(t, "-d", "link", "show", "dev", "net1")
		if strings.Contains(link, "xdp") || strings.Contains(link, "DORMANT") || !strings.Contains(link, "MULTICAST") {
			t.Errorf("before %s the pod has %s", k, link)
		}
		if k != "none" {
			drop(t, n.pod, k, "net1")
		}
		n.pod.IP(t, "link", "set", "net1", "mode", "dormant", "multicast", "off", "gso_max_size", "8000")
		n.must(t, n.call("DEL", conf()))
		n.same(t, "after "+string(k))
	}
}
