//go:build labguest

package guest

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"
)

// A card whose VLAN has the node's default route, or an address by which the cluster knows the node, is no pod's, and
// its VLAN and routes are there afterwards. Who allows the one is still kept from it by the VLAN.
func TestEtherPluginUplink(t *testing.T) {
	name := nics(t, "e1000e")[0].Attrs().Name
	Unload(t)
	Modprobe(t, "8021q")
	loseable(t, name, 0)
	shell(t, "ip link add link "+name+" name up.100 type vlan id 100; ip link set up.100 up; "+
		"ip address add 10.60.0.1/24 dev up.100; ip -6 address add fd60::1/64 dev up.100 nodad")
	t.Cleanup(func() { shell(t, "ip link del up.100") })
	Until(t, "the card and its VLAN have a carrier and link-local addresses", func() error {
		return waitsFor(func(l netlink.Link) bool { return l.Attrs().Name == name || l.Attrs().Name == "up.100" })
	})
	pod := NewPod(t, "pod")
	refused := func(what string, code uint, words ...string) {
		t.Helper()
		before := Snapshot(t)
		a := interfaceOf(pod, "net1", network(config{"device": name}))
		wantError(t, a.call("ADD").Exec(t), code, words...)
		a.del(t)
		Same(t, before)
		t.Log(what)
	}
	refused("VLAN", 101, name, "up.100")
	for _, route := range []string{
		"ip route add default via 10.60.0.254 metric 9", "ip route add 128.0.0.0/1 via 10.60.0.254",
		"ip -6 route add default via fd60::254 proto ra", "ip route add default via 10.60.0.254 table 300",
	} {
		shell(t, route+"; ip rule add pref 90 lookup 300")
		refused(route, 104, name, "default route", "up.100")
		shell(t, "ip route del default table 300 2>/dev/null; ip rule del pref 90; "+
			"ip route del 128.0.0.0/1 2>/dev/null; ip route del default dev up.100 2>/dev/null; "+
			"ip -6 route del default dev up.100 2>/dev/null; true")
	}
	for _, address := range []string{"10.60.0.1", "fd60::1"} {
		if err := os.MkdirAll("/run/fabric-cni", 0o700); err != nil {
			t.Fatal(err)
		}
		const file = "/run/fabric-cni/node-addresses.json"
		if err := os.WriteFile(file, []byte(`{"addresses":["`+address+`"]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(address, 104, name, address, "up.100")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
