//go:build labguest

package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each line changes one thing of the node S1: a snapshot that does not see it would let a plugin lose it.
// An empty undo stands for setting the node up again.
var changes = []struct{ what, do, undo string }{
	{"name", "ip link set ibs118 name other", "ip link set other name ibs118"},
	{"altname gone", "ip link property del dev ibs108 altname rail0", "ip link property add dev ibs108 altname rail0"},
	{"altname more", "ip link property add dev ibs108 altname x", "ip link property del dev ibs108 altname x"},
	{"alias", "ip link set ibs110 alias x", "echo > /sys/class/net/ibs110/ifalias"},
	{"mtu", "ip link set ibs110 mtu 1999", "ip link set ibs110 mtu 2000"},
	{"queue length", "ip link set ibs110 txqueuelen 7", "ip link set ibs110 txqueuelen 500"},
	{"down", "ip link set ibs116 down", "ip link set ibs116 up"},
	{"up", "ip link set ibs118 up", "ip link set ibs118 down"},
	{"promiscuous", "ip link set ibs114 promisc on", "ip link set ibs114 promisc off"},
	{"all multicast", "ip link set ibs112 allmulticast off", "ip link set ibs112 allmulticast on"},
	{"group", "ip link set ibs112 group 0", "ip link set ibs112 group 7"},
	{"no multicast", "ip link set ibs114 multicast off", "ip link set ibs114 multicast on"},
	{"dynamic", "ip link set ibs114 dynamic on", "ip link set ibs114 dynamic off"},
	{"link mode", "ip link set ibs118 mode dormant", "ip link set ibs118 mode default"},
	{"segments", "ip link set ibs114 gso_max_segs 7", "ip link set ibs114 gso_max_segs 65535"},
	{"qdisc", "tc qdisc add dev ibs114 root handle 7: pfifo limit 7", "tc qdisc del dev ibs114 root"},
	{
		"neighbour",
		"ip neigh add proxy 10.9.9.9 dev ibs108",
		"ip neigh del proxy 10.9.9.9 dev ibs108",
	},
	{"nexthop", "ip nexthop add id 7 dev ibs108", "ip nexthop del id 7"},
	{
		"neighbour table",
		"echo 77 >/proc/sys/net/ipv4/neigh/ibs108/gc_stale_time",
		"echo 60 >/proc/sys/net/ipv4/neigh/ibs108/gc_stale_time",
	},
	{
		"NAPI",
		"echo 777 >/sys/class/net/ibs108/gro_flush_timeout",
		"echo 0 >/sys/class/net/ibs108/gro_flush_timeout",
	},
	{
		"receive packet steering",
		"echo 1 >/sys/class/net/ibs108/queues/rx-0/rps_cpus",
		"echo 0 >/sys/class/net/ibs108/queues/rx-0/rps_cpus",
	},
	{"mode", "echo datagram > /sys/class/net/ibs110/mode", ""},
	{"umcast", "echo 0 > /sys/class/net/ibs112/umcast", "echo 1 > /sys/class/net/ibs112/umcast"},
	{"child", "ip link add link ibs114 name c type ipoib pkey 0x8001", "ip link del c"},
	{"orphan link", "ip link add orphan type dummy", "ip link del orphan"},
	{"master", "ip link add vrf9 type vrf table 9 && ip link set ibs116 master vrf9",
		"ip link del vrf9; ip rule del priority 1000; ip -6 rule del priority 1000"},
	{
		"IPv4 devconf",
		"echo 0 > /proc/sys/net/ipv4/conf/ibs108/arp_ignore",
		"echo 1 > /proc/sys/net/ipv4/conf/ibs108/arp_ignore",
	},
	{
		"IPv6 devconf",
		"echo 1 > /proc/sys/net/ipv6/conf/ibs108/accept_ra",
		"echo 0 > /proc/sys/net/ipv6/conf/ibs108/accept_ra",
	},
	{
		"IPv6 address mode",
		"echo 0 > /proc/sys/net/ipv6/conf/ibs112/addr_gen_mode",
		"echo 1 > /proc/sys/net/ipv6/conf/ibs112/addr_gen_mode; ip -6 address flush dev ibs112 scope link",
	},
	{"address gone", "ip address del 10.18.0.1/24 dev ibs118", "ip address add 10.18.0.1/24 dev ibs118"},
	{"address more", "ip address add 10.99.0.1/24 dev ibs114", "ip address del 10.99.0.1/24 dev ibs114"},
	{
		"address label",
		"ip address del 10.18.0.1/24 dev ibs118; ip address add 10.18.0.1/24 dev ibs118 label ibs118:x",
		"ip address del 10.18.0.1/24 dev ibs118; ip address add 10.18.0.1/24 dev ibs118",
	},
	{
		"address lifetime",
		"ip address change 10.18.0.1/24 dev ibs118 valid_lft 9999 preferred_lft 9999",
		"ip address change 10.18.0.1/24 dev ibs118 valid_lft forever preferred_lft forever",
	},
	{"IPv6 address", "ip address add fd00:99::1/64 dev ibs114 nodad", "ip address del fd00:99::1/64 dev ibs114"},
	{
		"IPv6 address deprecated",
		"ip address change fd00:10::1/64 dev ibs110 preferred_lft forever",
		"ip address del fd00:10::1/64 dev ibs110; ip address add fd00:10::1/64 dev ibs110 nodad preferred_lft 0",
	},
	{
		"route gone",
		"ip route del 10.88.0.0/16",
		"ip route add 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 77 mtu 1500",
	},
	{
		"route metric",
		"ip route del 10.88.0.0/16; ip route add 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 78 mtu 1500",
		"ip route del 10.88.0.0/16; ip route add 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 77 mtu 1500",
	},
	{
		"route mtu",
		"ip route change 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 77",
		"ip route change 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 77 mtu 1500",
	},
	{
		"route of another table",
		"ip route del default table 108",
		"ip route add default via 10.8.0.254 dev ibs108 table 108",
	},
	{
		"multipath route",
		"ip route add 10.77.0.0/16 nexthop via 10.8.0.254 dev ibs108 weight 1 nexthop dev bond0 weight 2",
		"ip route del 10.77.0.0/16",
	},
	{
		"IPv6 route",
		"ip -6 route del fd88::/32 table main",
		"ip -6 route add fd88::/32 via fd00:8::254 dev ibs108 metric 99",
	},
	{"rule gone", "ip rule del priority 1008", "ip rule add from 10.8.0.1 lookup 108 priority 1008"},
	{"rule more", "ip rule add fwmark 3 lookup 3 priority 3", "ip rule del priority 3"},
	{"IPv6 rule", "ip -6 rule del priority 1008", "ip -6 rule add from fd00:8::1 lookup 108 priority 1008"},
	{"RDMA name", "rdma dev set mlx5_7 name other", "rdma dev set other name mlx5_7"},
	{
		"port state",
		"echo 4,4,4,2,1,1 > /sys/module/fakeib/parameters/state",
		"echo 4,4,4,4,1,1 > /sys/module/fakeib/parameters/state",
	},
	{"character device", "touch /dev/infiniband/uverbs99", "rm /dev/infiniband/uverbs99"},
	{
		"attachment",
		"mkdir -p /run/fabric-cni/attachments && echo {} > /run/fabric-cni/attachments/a",
		"rm -r /run/fabric-cni",
	},
	{
		"held address",
		"mkdir -p /var/lib/cni/networks/n && echo id > /var/lib/cni/networks/n/10.0.0.2",
		"rm -r /var/lib/cni/networks",
	},
}

func shell(t testing.TB, command string) {
	t.Helper()
	if err := run("sh", "-c", command); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotSeesEachChange(t *testing.T) {
	Modprobe(t, "dummy")
	Modprobe(t, "vrf")
	for _, c := range changes {
		t.Run(c.what, func(t *testing.T) {
			before := S1(t).Pristine
			shell(t, c.do)
			Until(t, "the snapshot differs", func() error {
				now, err := Take()
				if err == nil && Diff(before, now) == "" {
					return os.ErrInvalid
				}
				return err
			})
			if c.undo == "" {
				forgetS1()
				return
			}
			shell(t, c.undo)
			Same(t, before)
		})
	}
}

// TestSnapshotIgnoresLocks: lock files stay, claims do not.
func TestSnapshotIgnoresLocks(t *testing.T) {
	Unchanged(t)
	for _, path := range []string{"/run/fabric-cni/locks/fakeib.0", "/run/fabric-cni/x.lock", "/var/lib/cni/" +
		"networks/n/lock", "/var/lib/cni/networks/n/last_reserved_ip.0"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSnapshotIsStable: setting the node up a second time gives the same state, so a difference means a change.
func TestSnapshotIsStable(t *testing.T) {
	first := S1(t).Pristine
	forgetS1()
	second := S1(t).Pristine
	// The kernel counts RDMA devices up for ever.
	for _, s := range []State{first, second} {
		for name, d := range s.RDMA {
			d.Index = 0
			s.RDMA[name] = d
		}
	}
	forgetS1()
	if diff := Diff(first, second); diff != "" {
		t.Errorf("two equal hosts differ:\n%s", diff)
	}
	for _, link := range []string{"ibs108", "ibs110"} {
		if len(first.Links[link].IPv4) < 20 || len(first.Links[link].IPv6) < 20 || len(first.Addrs[link]) < 2 {
			t.Errorf("the snapshot of %s is poor: %+v %v", link, first.Links[link], first.Addrs[link])
		}
	}
	if !strings.Contains(first.RDMA["mlx5_bond_0"].Device, "/pci0000:00/") {
		t.Errorf("the bond's HCA is on %q, want a PCI function", first.RDMA["mlx5_bond_0"].Device)
	}
}
