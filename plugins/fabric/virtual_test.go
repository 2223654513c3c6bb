package fabric_test

import (
	"strings"
	"testing"
)

// A virtual interface has no bus address. Whatever the pod makes of its name and its hardware address, and whatever has
// its name on the host meanwhile, it is the one that returns to the host.
func TestDelFindsVirtualInterface(t *testing.T) {
	const disguise = "link set net1 down address 02:00:00:00:00:99"
	for name, tt := range map[string]struct {
		pod, host []string
	}{
		"disguised": {[]string{disguise, "link property del dev net1 altname v0", "link set net1 name other"}, nil},
		"its name is taken": {
			[]string{disguise, "link property del dev net1 altname v0", "link set net1 name other"},
			[]string{"link add v0 type veth peer name v9"},
		},
		"another in its place": {
			[]string{
				disguise, "link property del dev net1 altname v0", "link set net1 name other",
				"link add net1 type veth peer name x1", "link property add dev net1 altname v0",
			}, nil,
		},
		"its ifindex is taken": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everything...)
			if name == "its ifindex is taken" {
				for _, name := range []string{"a0", "a1", "a2"} {
					n.pod.IP(t, "link", "add", name, "type", "bridge")
				}
				tt.pod = []string{disguise, "link property del dev net1 altname v0", "link set net1 name other"}
			}
			n.must(t, n.call("ADD", conf()))
			for _, c := range tt.pod {
				n.pod.IP(t, strings.Fields(c)...)
			}
			for _, c := range tt.host {
				n.host.IP(t, strings.Fields(c)...)
			}
			a := n.run(t, n.call("DEL", conf()))
			if len(tt.host) > 0 { // it is home, and DEL reports the name; then that is free
				if a.ok || !strings.Contains(a.Msg, "the name is taken") {
					t.Errorf("answer: %+v", a)
				}
				n.host.IP(t, "link", "del", "v0")
				a = n.run(t, n.call("DEL", conf()))
			}
			if !a.ok {
				t.Fatalf("DEL: %d %s", a.Code, a.Msg)
			}
			n.same(t, "after DEL")
		})
	}
}

// One that the pod has deleted does not come back, and keeps no call waiting.
func TestDelOfDeletedVirtualInterface(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must(t, n.call("ADD", conf()))
	n.pod.IP(t, "link", "del", "net1")
	n.host.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v9") // another one: it is left alone
	before := n.host.State(t)
	n.must(t, n.call("DEL", conf()))
	if got := n.host.State(t); got != before {
		t.Errorf("the host was %s\nand is %s", before, got)
	}
	if files := n.files(t); len(files) > 0 {
		t.Errorf("left on file: %v", files)
	}
}
