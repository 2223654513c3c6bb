//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/ethtool"
	"github.com/fabric-cni/fabric-cni/internal/testkit/program"
)

// mischief is what a pod does to its interface net1, one thing after the other. Some drivers refuse some of it.
const mischief = `
ip link set net1 mode dormant multicast off dynamic on trailers off promisc on allmulticast on
ip link set net1 gso_max_size 8000 gso_max_segs 7
ip link set net1 gro_max_size 9000 2>/dev/null || true
ip link set net1 alias mine txqueuelen 7 group 9
tc qdisc add dev net1 root handle 7: pfifo limit 7
ip neigh add 10.9.9.9 lladdr 02:00:00:00:00:09 dev net1 nud permanent 2>/dev/null || true
ip neigh add proxy 10.9.9.8 dev net1
ip nexthop add id 7 dev net1 2>/dev/null || true
cd /proc/sys/net
echo 77 >ipv4/neigh/net1/gc_stale_time; echo 9 >ipv6/neigh/net1/ucast_solicit; echo 3 >ipv6/conf/net1/max_addresses
echo 1 >ipv6/conf/net1/forwarding; echo 2001:db8::9 >ipv6/conf/net1/stable_secret
`

// queueMischief is done with the pod's sysfs.
var queueMischief = map[string]string{
	"gro_flush_timeout": "12345", "napi_defer_hard_irqs": "7",
	"queues/rx-0/rps_cpus": "1", "queues/rx-0/rps_flow_cnt": "64",
}

// spoil does everything to net1 that stays on an interface.
func spoil(t *testing.T, pod *Pod) {
	t.Helper()
	pod.sh(t, mischief)
	index := pod.link(t, "net1").Attrs().Index
	err := pod.Do(func() error {
		for _, k := range []program.Kind{program.TCXIngress, program.TCXLink, program.XDPLink} {
			err := program.Attach(t, k, index)
			if err != nil && (!k.IsTCX() || !errors.Is(err, unix.EINVAL)) { // EINVAL: before 6.6
				return fmt.Errorf("%s: %w", k, err)
			}
		}
		f, err := ethtool.Features("net1")
		if err != nil || f == nil {
			return err
		}
		off := *f
		off.Wanted = make([]uint32, len(f.Can))
		return ethtool.SetFeatures("net1", &off, off.Differing(f))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = pod.DoSysfs(func() error {
		for file, value := range queueMischief {
			err := os.WriteFile("/sys/class/net/net1/"+file, []byte(value), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// leavesNothing gives a device to pods that spoil it: one that lives during DEL, one that does not, and one that is to
// find nothing of the others.
func leavesNothing(t *testing.T, device string) {
	t.Helper()
	before := Snapshot(t)
	for i, gone := range []bool{false, true, false} {
		pod := NewPod(t, fmt.Sprintf("pod%d", i))
		a := interfaceOf(pod, "net1", network(config{"device": device, "ipam": static("10.0.0.5/24")}))
		a.add(t)
		spoil(t, pod)
		if gone {
			pod.Delete(t)
		}
		a.del(t)
		Same(t, before)
		if t.Failed() {
			return
		}
	}
}

// Two cards of Ethernet, one of which has a RoCE HCA.
func TestEtherLeftovers(t *testing.T) {
	v, e := nics(t, "virtio_net")[0], nics(t, "e1000e")[0]
	Fabric{RoCE: []string{e.Attrs().Name}}.Load(t)
	for i, l := range []string{v.Attrs().Name, e.Attrs().Name} {
		t.Run(l, func(t *testing.T) {
			loseable(t, l, i)
			leavesNothing(t, l)
		})
	}
}

// What the host had comes back: a move takes these.
func TestEtherLeftoversOfTheHost(t *testing.T) {
	name := nics(t, "e1000e")[0].Attrs().Name
	loseable(t, name, 1)
	shell(t, fmt.Sprintf(`
echo 2001:db8::1234 >/proc/sys/net/ipv6/conf/%[1]s/stable_secret
ip link set %[1]s down; ip link set %[1]s up
ip address replace 10.71.0.1/24 dev %[1]s; ip -6 address replace fd71::1/64 dev %[1]s nodad
tc qdisc add dev %[1]s root handle 7: pfifo limit 7
ip neigh add 10.71.0.9 lladdr 02:00:00:00:00:09 dev %[1]s nud permanent
ip nexthop add id 7 via 10.71.0.9 dev %[1]s
ip route add 10.72.0.0/16 nhid 7
echo 77 >/proc/sys/net/ipv4/neigh/%[1]s/gc_stale_time
echo 1 >/sys/class/net/%[1]s/queues/rx-0/rps_cpus
ip link set %[1]s gso_max_size 9000 multicast off`, name))
	carrier(t, name, true)
	t.Cleanup(func() {
		shell(t, fmt.Sprintf(`tc qdisc del dev %[1]s root; ip neigh del 10.71.0.9 dev %[1]s; ip nexthop del id 7
echo 60 >/proc/sys/net/ipv4/neigh/%[1]s/gc_stale_time; echo 0 >/sys/class/net/%[1]s/queues/rx-0/rps_cpus
ip link set %[1]s gso_max_size 65536 multicast on addrgenmode eui64`, name))
	})
	leavesNothing(t, name)
}

// A virtual function with a RoCE HCA.
func TestIGBLeftovers(t *testing.T) {
	igbVFs(t, 1, true)
	leavesNothing(t, "env0")
}

// In shared mode the IPoIB netdev itself moves.
func TestSharedLeftovers(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	shell(t, "ip link set ib0 up; ip address add 10.8.0.1/24 dev ib0")
	leavesNothing(t, "ib0")
}
