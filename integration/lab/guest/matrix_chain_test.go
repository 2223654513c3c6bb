//go:build labguest

package guest

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// mover does what host-device does to a netdev: it is the plugin before ours in a chain.
type mover struct {
	netdev string
	home   func(t testing.TB) // makes the netdev what it was, once it is on the host again
}

var (
	etherMover = &mover{"eno2", func(t testing.TB) { etherNetdev(t, "52:54:00:00:02:01", "eno2") }}
	ipoibMover = &mover{"ib1", func(t testing.TB) {
		host := Host(t)
		var name string
		Until(t, "the netdev of "+BusAddress(1)+" is home", func() error {
			l, err := NetdevOf(host, BusAddress(1))
			if err == nil {
				name = l.Attrs().Name
			}
			return err
		})
		commands(t, [][]string{
			{"ip", "link", "set", name, "down"}, {"ip", "link", "set", name, "name", "ib1", "mtu", "2044"},
		})
		noDAD(t, "ib1")
	}}
)

// give moves the netdev into the pod, configures it, and returns the prevResult.
func (m *mover) give(t testing.TB, pod *Pod) map[string]any {
	t.Helper()
	l, err := netlink.LinkByName(m.netdev)
	if err != nil {
		t.Fatal(err)
	}
	if err := MoveLink(l.Attrs().Index, pod.Path, "net1"); err != nil {
		t.Fatal(err)
	}
	if err := pod.Do(func() error { return settleIn("net1") }); err != nil {
		t.Fatal(err)
	}
	// With the carrier IPv6 gets its multicast route. A pod that is recorded before would have one too many afterwards.
	Until(t, "the earlier plugin's interface is up",
		func() error { return pod.Do(func() error { return isUp("net1") }) })
	return map[string]any{"cniVersion": "1.1.0", "interfaces": []map[string]any{{"name": "net1", "sandbox": pod.Path}},
		"ips": []map[string]any{{"address": "10.60.0.2/24", "interface": 0}}}
}

// isUp says that IPv6 has seen the carrier of a netdev: with it comes the multicast route. The operational state does
// not show that: it is set some time after the carrier has changed, and may be that of the time before the move.
func isUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	routes, err := dump(func() ([]netlink.Route, error) {
		local := &netlink.Route{Table: unix.RT_TABLE_LOCAL}
		return netlink.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return err
	}
	multicast := func(r netlink.Route) bool {
		return r.LinkIndex == l.Attrs().Index && r.Dst != nil && r.Dst.String() == "ff00::/8"
	}
	if !slices.ContainsFunc(routes, multicast) {
		return fmt.Errorf("%s has no multicast route", name)
	}
	return nil
}

// settleIn configures a netdev in the calling thread's network namespace. It has no link-local address, which would
// come some time later.
func settleIn(name string) error {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/addr_gen_mode", []byte("1\n"), 0o644); err != nil {
		return err
	}
	return commandsHere([][]string{
		{"ip", "link", "set", name, "mtu", "1400", "up"},
		{"ip", "address", "add", "10.60.0.2/24", "dev", name},
		{"ip", "route", "add", "10.61.0.0/16", "via", "10.60.0.254", "dev", name},
	})
}

// takeBack makes the host what it was. The pod may be gone.
func (m *mover) takeBack(t testing.TB, pod *Pod, gone bool) {
	t.Helper()
	if !gone {
		err := pod.Do(func() error {
			l, err := netlink.LinkByName("net1")
			if err != nil {
				return err
			}
			return MoveLink(l.Attrs().Index, HostPath, m.netdev)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	m.home(t)
}
