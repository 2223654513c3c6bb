package fabric_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/recorded"
)

// An attachment of an older binary is returned by this one: on a host like that on which the entry was recorded, the
// entry takes the place of the live one. integration/lab has the same for RDMA devices, children and VFs.
func TestDelRecorded(t *testing.T) {
	entries, err := recorded.Entries()
	if err != nil {
		t.Fatal(err)
	}
	for _, nameless := range []bool{false, true} {
		n := newNode(t)
		// Down and up: for a link-local address that fits.
		n.host.Batch(t, `link property add dev v0 altname enp59s0 altname rail0
link set v0 address 02:00:00:00:00:07 mtu 9000 alias rail txqueuelen 500
link set v0 down
link set v0 up
addr add 10.9.0.1/24 dev v0
addr add 2001:db8:9::1/64 dev v0 nodad
route add 10.10.0.0/16 via 10.9.0.9
`)
		n.host.AwaitLinkLocal(t, "v0")
		n.host.Settled(t)
		n.before = n.host.State(t)
		const conf = `{"cniVersion":"1.1.0","name":"n","type":"fabric","device":"v0","mtu":1500,
			"routing":{"sourceBased":true},"ipam":{"type":"static","addresses":[{"address":"10.1.0.5/24"}]}}`
		n.must(t, n.call("ADD", conf))
		file := filepath.Join(n.state, "attachments", "c1@net1")
		live, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := recorded.Adopt(entries["device-veth"], live)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, entry, 0o600); err != nil {
			t.Fatal(err)
		}
		del := n.call("DEL", conf)
		if nameless { // the runtime can't name the namespace any more: it is found by its id
			del.netns = ""
		}
		n.must(t, del)
		n.same(t, "after DEL of a recorded entry")
	}
}
