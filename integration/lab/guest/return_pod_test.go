//go:build labguest

package guest

import (
	"testing"
)

// podChange is something that a container with the right to do so does to its network.
type podChange struct {
	what string
	do   string // shell, in the pod's network namespace; net1 is the attachment's netdev
	undo string // of what is the pod's own, so that the pod can be compared
}

// anyNetdev can be done to every netdev.
var anyNetdev = []podChange{
	{what: "renamed", do: "ip link set net1 down; ip link set net1 name eth7; ip link set eth7 up"},
	{what: "alias", do: "ip link set net1 alias 'mine now'"},
	{
		what: "altnames",
		do: "for n in $(ip -o link show net1 | sed 's/ *altname /\\n@/g' | sed -n 's/^@\\([^ \\\\]*\\).*/\\1/p'); do " +
			"ip link property del dev net1 altname $n; done; ip link property add dev net1 altname podname altname " +
			"another",
	},
	// The name that another device has on the host: it must not be in the way.
	{what: "altname taken on the host", do: "ip link property add dev net1 altname other0"},
	{what: "down", do: "ip link set net1 down"},
	{what: "mtu", do: "ip link set net1 mtu 1300"},
	{what: "addresses", do: "ip address flush dev net1; ip address add 10.99.0.1/24 dev net1"},
	{what: "sysctl", do: "sysctl -qw net.ipv4.conf.net1.rp_filter=1 net.ipv6.conf.net1.accept_ra=2"},
	{
		what: "own rules",
		do:   "ip rule add from 10.99.0.1 lookup 99 priority 99; ip rule add oif net1 lookup 98 priority 98",
		undo: "ip rule del priority 99; ip rule del priority 98",
	},
	{what: "routes", do: "ip route add 10.98.0.0/16 dev net1; ip route add 10.97.0.0/16 dev net1 table 97"},
	{what: "promiscuous", do: "ip link set net1 promisc on allmulticast on txqueuelen 7 group 5"},
	{what: "deleted", do: "ip link del net1 2>/dev/null || true"},
}

var anyHCA = []podChange{
	{what: "RDMA device renamed", do: "rdma dev set rail name mine"},
	{what: "adaptive moderation", do: "rdma dev set rail adaptive-moderation on"},
	{what: "automatic counters", do: "rdma statistic qp set link rail/1 auto type on"},
	{what: "both renamed", do: "rdma dev set rail name mine; ip link set net1 down; ip link set net1 name mine"},
}

var anyCard = []podChange{
	{
		what: "VLAN on it",
		do:   "ip link add link net1 name v5 type vlan id 5; ip link set v5 up",
		undo: "! ip link show v5 2>/dev/null", // it has gone with the device
	},
	{
		what: "in a VRF",
		do:   "ip link add vrf5 type vrf table 5; ip link set net1 master vrf5 up",
		undo: "ip link del vrf5; ip rule del priority 1000; ip -6 rule del priority 1000",
	},
	{
		what: "macvlan on it",
		do:   "ip link add link net1 name m5 type macvlan mode bridge",
		undo: "! ip link show m5 2>/dev/null",
	},
	{what: "MAC address", do: "ip link set net1 address 02:00:00:00:00:05"},
}

var anyIPoIB = []podChange{
	{
		what: "connected mode",
		do:   "ip link set net1 down; ip link set net1 type ipoib mode connected; ip link set net1 mtu 60000 up",
	},
	{
		what: "child of it",
		do:   "ip link add link net1 name c5 type ipoib pkey 0x8002",
		undo: "! ip link show c5 2>/dev/null",
	},
}

func TestReturnIPoIBChangedByPod(t *testing.T) {
	podChanges(t, ipoibDevice, anyNetdev, anyHCA, anyIPoIB)
}
func TestReturnPlainChangedByPod(t *testing.T) { podChanges(t, plainDevice, anyNetdev, anyCard) }
func TestReturnRoCEChangedByPod(t *testing.T)  { podChanges(t, roceDevice, anyNetdev, anyHCA, anyCard) }
func TestReturnChildChangedByPod(t *testing.T) { podChanges(t, childExclusive, anyNetdev) }

// podChanges makes each change in a pod and returns its attachment: with the pod alive, and with its namespace gone.
func podChanges(t *testing.T, m mode, changes ...[]podChange) {
	Modprobe(t, "dummy")
	for _, module := range []string{"8021q", "vrf", "macvlan"} {
		Modprobe(t, module)
	}
	host := m.host
	m.host = func(t testing.TB) {
		// On the host this netdev keeps the name, and the ifindex that the first interface of a pod has.
		shell(t, "ip link show other0 >/dev/null 2>&1 || ip link add other0 index 2 type dummy || "+
			"ip link add other0 type dummy")
		host(t)
	}
	r := newRig(t, m)
	defer shell(t, "ip link del other0")
	for _, gone := range []bool{false, true} {
		state := " pod alive"
		if gone {
			state = " pod gone"
		}
		for _, list := range changes {
			for _, c := range list {
				ok := t.Run(c.what+state, func(t *testing.T) { r.changed(t, c, gone) })
				if !ok {
					r.set(t)
				}
			}
		}
	}
}

func (r *rig) changed(t *testing.T, c podChange, gone bool) {
	s := r.sandbox(t)
	s.call("ADD").Must(t)
	if _, err := s.Command("sh", "-ec", c.do); err != nil {
		t.Fatal(err)
	}
	if gone {
		s.Delete(t)
	}
	s.call("DEL").Must(t)
	if !gone && c.undo != "" {
		if _, err := s.Command("sh", "-c", c.undo); err != nil {
			t.Fatal(err)
		}
	}
	r.back(t, s, gone)
}
