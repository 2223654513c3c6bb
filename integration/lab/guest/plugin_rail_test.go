//go:build labguest

package guest

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// neighbour returns the hardware address that the pod has for an IP address, "" without a usable entry.
func (p *Pod) neighbour(t *testing.T, ifname, ip string) string {
	t.Helper()
	h := p.Handle(t)
	list, err := dump(func() ([]netlink.Neigh, error) {
		return h.NeighList(p.link(t, ifname).Attrs().Index, netlink.FAMILY_ALL)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if n.IP.Equal(net.ParseIP(ip)) && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
			return n.HardwareAddr.String()
		}
	}
	return ""
}

// Two rails of one pod on one subnet: each answers for its own address, over itself. Without routing.sourceBased the
// first interface would answer for both, and all traffic would go over one rail.
func TestPluginRailsOnOneSubnet(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod, third := NewPod(t, "pod"), NewPod(t, "third")
	var list []*attachment
	for i, c := range []struct {
		pod    *Pod
		device string
	}{{pod, "ibs108"}, {pod, "ibs114"}, {third, "ibs112"}} {
		a := interfaceOf(
			c.pod,
			fmt.Sprintf("net%d", i+1),
			network(config{
				"device":  c.device,
				"routing": config{"sourceBased": true},
				"ipam": static(
					fmt.Sprintf("10.0.0.%d/24 via 10.0.0.254", i+1),
					fmt.Sprintf("fd00::%d/64 via fd00::fe", i+1),
				),
			}),
		)
		a.add(t)
		list = append(list, a)
	}
	for round := range 3 {
		third.sh(t, "ip neigh flush all")
		for i := range 2 {
			rail := pod.link(t, fmt.Sprintf("net%d", i+1)).Attrs().HardwareAddr.String()
			for _, ip := range []string{fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1)} {
				ping(t, third, ip)
				if got := third.neighbour(t, "net3", ip); got != rail {
					t.Errorf("round %d: %s is answered by %s, want %s", round, ip, got, rail)
				}
			}
		}
	}
	for i := range 2 {
		for _, to := range []string{
			"10.0.0.3 from 10.0.0.%d", "10.99.0.1 from 10.0.0.%d", "fd00::3 from fd00::%d", "fd99::1 from fd00::%d",
		} {
			route := pod.sh(t, "ip route get "+fmt.Sprintf(to, i+1))
			if !containsAll(route, fmt.Sprintf("dev net%d ", i+1)) {
				t.Errorf("route of rail %d: %s", i+1, route)
			}
		}
	}
	if out := pod.sh(t, "ip route show table main; ip -6 route show table main"); containsAll(out, "default") {
		t.Errorf("a rail has taken the pod's default route: %s", out)
	}
	// One rail goes, the other stays whole.
	list[0].del(t)
	list[1].call("CHECK").Must(t)
	if out := pod.sh(t, "ip rule; ip -6 rule"); containsAll(out, "10.0.0.1 ") || !containsAll(out, "10.0.0.2 ") {
		t.Errorf("rules after one rail has gone: %s", out)
	}
	ping(t, third, "10.0.0.2")
	list[1].del(t)
	list[2].del(t)
}

// An address that comes to another rail: the neighbours that had it learn the new hardware address without asking.
func TestPluginTellsNeighbours(t *testing.T) {
	for name, conf := range map[string]func(device string) config{
		"device": func(device string) config { return config{"device": device} },
		"ipoib":  func(device string) config { return config{"mode": "ipoib", "master": device, "mtu": 2000} },
	} {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			peer := NewPod(t, "peer")
			other := interfaceOf(
				peer,
				"net1",
				network(config{"device": "ibs114", "ipam": static("10.0.0.9/24", "fd00::9/64")}),
			)
			other.add(t)
			add := func(name, device string) *attachment {
				fields := conf(device)
				fields["ipam"] = static("10.0.0.1/24", "fd00::1/64")
				a := interfaceOf(NewPod(t, name), "net1", network(fields))
				a.add(t)
				return a
			}
			old := add("old", "ibs108")
			ping(t, peer, "10.0.0.1")
			ping(t, peer, "fd00::1")
			before := peer.neighbour(t, "net1", "10.0.0.1")
			old.del(t)
			young := add("young", "ibs112")
			now := young.pod.link(t, "net1").Attrs().HardwareAddr.String()
			if before == now || before == "" {
				t.Fatalf("the neighbour had %q before, %s is new", before, now)
			}
			for _, ip := range []string{"10.0.0.1", "fd00::1"} {
				Until(t, "the neighbour has been told of "+ip, func() error {
					if got := peer.neighbour(t, "net1", ip); got != now {
						return fmt.Errorf("it has %q, want %q", got, now)
					}
					return nil
				})
			}
			young.del(t)
			other.del(t)
		})
	}
}
