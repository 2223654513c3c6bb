package walk

import (
	"slices"
	"strings"
)

// trick is something that a pod does to a device: a shell script in its network namespace, with a /sys of its own. $D
// is the interface, $I the number of the device, $R the RDMA device if it is in the namespace, $OTHER the name that
// another device has on the host, $OTHERRDMA that of an RDMA device, $THIRD a network namespace that is no pod's and
// $SECOND that of another pod, by their names in /run/netns. What the kernel refuses is no failure.
type trick struct {
	name   string
	script string
	act    func(ifname string) error // instead of a script, where no program of a usual machine does it
	on     string                    // "ib", "ether" or "rdma"; "": any
}

var tricks = []trick{
	{name: "rename", script: `ip link set $D down; ip link set $D name mine$I; ip link set mine$I up`},
	{name: "rename-as-host", script: `ip link set $D down; ip link set $D name $OTHER`},
	{name: "swap-names", script: `for x in net0 net1 net2 net3; do if [ $x != $D ] && ip link set $x down 2>&-; then
ip link set $D down; ip link set $D name swap$I; ip link set $x name $D; ip link set swap$I name $x; exit; fi; done`},
	{name: "altname", script: `ip link property add dev $D altname mine$I`},
	{name: "altname-as-host", script: `ip link property add dev $D altname $OTHER`},
	{name: "altnames-removed", script: `for a in $(ip link show $D | awk '$1 == "altname" { print $2 }'); do
ip link property del dev $D altname $a; done`},
	{name: "mac", script: `ip link set $D down
ip link set $D address 02:66:66:66:66:0$I; ip link set $D up`, on: "ether"},
	{name: "mtu", script: `ip link set $D mtu 1400`},
	{name: "mtu-small", script: `ip link set $D mtu 1000`},
	{name: "down", script: `ip link set $D down`},
	{name: "promisc", script: `ip link set $D promisc on allmulticast on`},
	{name: "noarp", script: `ip link set $D arp off`},
	{name: "group", script: `ip link set $D group 9 alias mine txqueuelen 5`},
	{name: "protodown", script: `ip link set $D protodown on`},
	{name: "addresses", script: `ip addr add 10.66.$I.1/24 dev $D; ip addr add fd66:$I::1/64 dev $D nodad;
ip route add 10.67.$I.0/24 via 10.66.$I.9; ip rule add from 10.66.$I.1 lookup 66
ip route add default dev $D table 66`},
	{name: "flush", script: `ip addr flush dev $D; ip route flush table all dev $D`},
	{name: "sysctl", script: `for f in ipv4/conf/$D/rp_filter ipv4/conf/$D/arp_ignore ipv4/conf/$D/accept_local \
ipv6/conf/$D/accept_ra ipv6/conf/$D/use_tempaddr; do echo 2 >/proc/sys/net/$f; done`},
	{name: "ipv6-off", script: `echo 1 >/proc/sys/net/ipv6/conf/$D/disable_ipv6`},
	{name: "multicast", script: `ip link set $D multicast off`},
	{name: "dynamic", script: `ip link set $D dynamic on`},
	{name: "dormant", script: `ip link set $D mode dormant; ip link set $D state dormant`},
	{name: "gso", script: `ip link set $D gso_max_size 4096 gso_max_segs 8; ip link set $D gro_max_size 4096`},
	{name: "napi", script: `for f in gro_flush_timeout napi_defer_hard_irqs threaded; do
echo 1 >/sys/class/net/$D/$f; done; for q in /sys/class/net/$D/queues/rx-*; do echo 1 >$q/rps_cpus; done`},
	{name: "qdisc", script: `tc qdisc replace dev $D root pfifo limit 3; tc qdisc add dev $D clsact`},
	{name: "neighbours", script: `ip neigh replace 10.66.$I.7 lladdr 02:00:00:00:00:66 dev $D nud permanent
ip neigh add proxy 10.66.$I.8 dev $D`, on: "ether"},
	{name: "nexthop", script: `ip nexthop replace id 66$I dev $D`},
	{name: "neighbour-sysctl", script: `for f in ipv4/neigh/$D/gc_stale_time ipv6/neigh/$D/gc_stale_time \
ipv4/neigh/$D/ucast_solicit; do echo 7 >/proc/sys/net/$f; done`},
	{name: "addrgenmode", script: `ip link set $D addrgenmode random`},
	{name: "addrgenmode-secret", script: `echo 66::66 >/proc/sys/net/ipv6/conf/$D/stable_secret
ip link set $D addrgenmode stable_secret`},
	{name: "macvlan", script: `ip link add kid$I link $D type macvlan && ip link set kid$I up`, on: "ether"},
	{name: "macvlan-third", script: `ip link add stray$I link $D type macvlan mode passthru &&
ip link set stray$I netns $THIRD`, on: "ether"},
	{name: "vlan", script: `ip link add link $D name kidv$I type vlan id 66 && ip link set kidv$I up`, on: "ether"},
	{name: "bridge", script: `ip link add kidb$I type bridge; ip link set $D master kidb$I`, on: "ether"},
	{name: "ipoib-child", script: `ip link add link $D name kid$I type ipoib pkey 0x8002 &&
ip link set kid$I up`, on: "ib"},
	{name: "xdp", act: dropAll, on: "ether"},
	{name: "name-all", script: `ip link set $D down mtu 1279; ip link set $D name all`},
	{name: "name-bytes", script: `ip link set $D down; ip link set $D name "$(printf '\377')"`, on: "ib"},
	{name: "altname-temporary",
		script: `for n in 2 3 4 5 6 7 8 9; do ip link property add dev $D altname fabric$n; done`},
	{name: "third", script: `ip link set $D netns $THIRD`},
	{name: "third-up", script: `ip link set $D netns $THIRD && ip -n $THIRD link set $D name mine$I &&
ip -n $THIRD link set mine$I up`},
	{name: "third-ends", script: `ip link property add dev $D altname $OTHER; ip link set $D netns $THIRD
ip netns del $THIRD; ip netns add $THIRD`, on: "ib"},
	{name: "third-rdma", script: `rdma dev set $R netns $THIRD`, on: "rdma"},
	{name: "second-pod", script: `ip link set $D netns $SECOND`},
	{name: "second-pod-renamed", script: `ip link set $D down; ip link set $D netns $SECOND name mine$I`},
	{name: "rdma-rename", script: `rdma dev set $R name mine$I`, on: "rdma"},
	{name: "rdma-as-host", script: `rdma dev set $R name $OTHERRDMA`, on: "rdma"},
}

// Tricks are the names of what a pod can do to a device of these kinds, but for the named ones.
func Tricks(kinds []string, but ...string) []string {
	var names []string
	for _, t := range tricks {
		if (t.on == "" || slices.Contains(kinds, t.on)) && !slices.Contains(but, t.name) {
			names = append(names, t.name)
		}
	}
	return names
}

// moves says whether a trick takes the device to where it may end without its pod.
func moves(trick string) bool {
	return strings.HasPrefix(trick, "third") || strings.HasPrefix(trick, "second-pod")
}

// Trick returns what a trick is: a script, or a function for a thread that is in the pod's network namespace.
func Trick(name string) (script string, act func(ifname string) error) {
	for _, t := range tricks {
		if t.name == name {
			return t.script, t.act
		}
	}
	return "", nil
}
