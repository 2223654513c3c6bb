package fabric_test

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// A chain of this plugin and this plugin again: here the device has no RDMA device. What there is to say is what to
// drop; the lab's guests have devices with one. See TestPeerChainOfFabric there.
func TestChainOfFabricWithoutRDMA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	result := n.must(t, n.call("ADD", conf())).stdout
	second := n.call("ADD", with(t, confOf("1.1.0", `"mode":"rdma"`), result))
	a := n.run(t, second)
	for _, want := range []string{
		"device netdev/v0, which the plugin before this one in the chain has attached, has no RDMA device",
		`drop {"type": "fabric", "mode": "rdma"} from the chain`,
	} {
		if a.Code != 100 || !strings.Contains(a.Msg, want) {
			t.Errorf("answer %+v, want %q", a, want)
		}
	}
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL")
}

// The DEL of the second plugin comes first: it leaves the device to that of the first one, once.
func TestDelOfChain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	store, key := journal.Store{Dir: n.state}, journal.Key{ContainerID: "c1", IfName: "net1"}
	chained := func() string {
		t.Helper()
		result := n.must(t, n.call("ADD", conf())).stdout
		e, err := store.Load(key)
		if err != nil {
			t.Fatal(err)
		}
		e.Chained = true
		if err := store.Save(e); err != nil {
			t.Fatal(err)
		}
		return result
	}
	second := n.call("DEL", with(t, confOf("1.1.0", `"mode":"rdma"`), chained()))
	check := second
	check.command = "CHECK"
	n.must(t, check)
	n.must(t, second)
	if !n.pod.Has(t, "net1") {
		t.Error("the DEL of the second plugin has returned the device")
	}
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL of both")
	chained()
	n.must(t, second)
	n.must(t, second) // again: whatever the chain has become, the device returns
	n.same(t, "after DEL of the second one twice")
	chained()
	n.must(t, n.call("DEL", conf())) // the chain has lost its second plugin
	n.must(t, second)
	n.same(t, "after DEL of the first one")
}

// A pod that names one device in two networks is told so.
func TestAddTwiceInAPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must(t, n.call("ADD", conf()))
	c := n.call("ADD", strings.Replace(conf(), `"name":"rail"`, `"name":"storage"`, 1))
	c.ifName = "net2"
	a := n.run(t, c)
	want := "device netdev/v0 is in use by this very container: it is attached as net1 (network rail); name another " +
		"device in this network"
	if a.Code != 101 || !strings.Contains(a.Msg, want) {
		t.Errorf("answer %+v, want %q", a, want)
	}
	if out, err := n.plan(c); err == nil || !strings.Contains(out, "is in use by this very container") {
		t.Errorf("plan: %v\n%s", err, out)
	}
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL")
}
