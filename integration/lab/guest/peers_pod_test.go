//go:build labguest

package guest

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// host-device keeps the name to restore in the alias, which the pod can change; DEL fails for ever without it.
func TestPeerPodChangesInterface(t *testing.T) {
	for name, change := range map[string]string{
		"alias":              "ip link set net1 alias ibs114",
		"no alias":           "ip link set net1 alias ''",
		"altname gone":       "ip link property del dev net1 altname ibs108 altname rail0 altname ibp8s0",
		"altname of another": "ip link property add dev net1 altname ibs110 altname lo0",
		"name":               "ip link set net1 down; ip link set net1 name other",
		"name and a decoy":   "ip link set net1 down; ip link set net1 name other; ip link add net1 type dummy",
		"named as on the host": "ip link property del dev net1 altname ibs108; ip link set net1 down; ip link set " +
			"net1 name ibs108",
		"mtu, queue, group": "ip link set net1 mtu 1500; ip link set net1 txqueuelen 9; ip link set net1 group 3",
		"mode":              "ip link set net1 down; ip link set net1 type ipoib mode connected",
		"flags": "ip link set net1 promisc on; ip link set net1 allmulticast on; ip link set net1 " +
			"arp off",
		"sysctls": "echo 0 >/proc/sys/net/ipv4/conf/net1/arp_ignore; echo 2 " +
			">/proc/sys/net/ipv6/conf/net1/accept_ra; echo 1 >/proc/sys/net/ipv6/conf/net1/addr_gen_mode",
		"addresses and routes": "ip address flush dev net1; ip address add 10.99.0.1/24 dev net1; ip route add " +
			"10.98.0.0/16 via 10.99.0.2",
		"down":                "ip link set net1 down",
		"in a VRF":            "ip link add v type vrf table 9; ip link set net1 master v",
		"child of its own":    "ip link add link net1 name c type ipoib pkey 0x8001",
		"RDMA device renamed": "rdma dev set mlx5_0 name mine",
	} {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Modprobe(t, "dummy")
			Modprobe(t, "vrf")
			Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "ipam": static("10.0.0.5/24")}))
			a.add(t)
			pod.sh(t, change)
			a.del(t)
		})
	}
}

// The netdev is not left in another namespace that the pod has made: it returns to the host when that ends.
func TestPeerPodRenamesAndDies(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "ibs110", "ipam": static("10.0.0.5/24")}))
	a.add(t)
	pod.sh(
		t,
		"ip link set net1 down; ip link set net1 name ib0; ip link set ib0 alias x; rdma dev set mlx5_3 name mine",
	)
	pod.Delete(t)
	a.del(t)
}

// Everything of every rail of the node comes back: up state, addresses, routes, sysctls, mode, altnames. See node.go
// for what there is to lose.
func TestPeerEverythingRestored(t *testing.T) {
	n := S1(t)
	for _, r := range n.Rails {
		t.Run(r.Netdev, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			pod := NewPod(t, "pod")
			a := interfaceOf(
				pod,
				"net1",
				network(config{
					"device":    r.Netdev,
					"allowDown": !r.Active,
					"rdmaName":  "mlx5_rail",
					"mtu":       1800,
					"routing": config{
						"sourceBased": true,
					},
					"ipam": static("10.0.0.5/24 via 10.0.0.1", "fd00::5/64 via fd00::1"),
				}),
			)
			a.add(t)
			pod.has(t, "net1", "10.0.0.5/24", "fd00::5/64")
			pod.hasHCA(t, "mlx5_rail")
			// The host's names go along, so that people recognise the rail in the pod.
			for _, name := range []string{r.Netdev} {
				if got := pod.link(t, name).Attrs().Name; got != "net1" {
					t.Errorf("%s in the pod is %s", name, got)
				}
			}
			a.del(t)
		})
	}
}

// Without DEL: the pod's namespace goes, and only then is DEL called.
func TestPeerEverythingRestoredAfterDeath(t *testing.T) {
	n := S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	var list []*attachment
	for i, r := range n.Rails {
		a := interfaceOf(pod, "net"+string(rune('1'+i)), network(config{"device": r.Netdev, "allowDown": true}))
		a.add(t)
		list = append(list, a)
	}
	pod.Delete(t)
	for _, a := range list {
		a.del(t)
	}
}

// ipoib-cni: after netns deletion the child stays on the host as net1@ib1, the next one as dev69, and DEL says success.
func TestPeerChildrenAfterNetnsDeletion(t *testing.T) {
	S1(t)
	Unchanged(t)
	var list []*attachment
	for i, pkey := range []string{"0x8001", "0x8002", ""} {
		address := fmt.Sprintf("10.0.0.%d/24", 5+i)
		conf := config{"mode": "ipoib", "master": "ibs112", "ipam": static(address)}
		if pkey != "" {
			conf["pkey"] = pkey
		}
		a := interfaceOf(NewPod(t, "pod"+string(rune('0'+i))), "net1", network(conf))
		a.add(t)
		list = append(list, a)
	}
	for i, a := range list {
		a.pod.Delete(t)
		if i == 0 {
			continue // DEL comes before the kernel has finished
		}
		Until(t, "the kernel has put the child on the host", func() error {
			return childCount(i + 1)
		})
	}
	for _, a := range list {
		a.del(t)
		a.del(t)
	}
}

// childCount is an error unless the host has n IPoIB children.
func childCount(n int) error {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return err
	}
	got := 0
	for _, l := range links {
		if l.Type() == "ipoib" && l.Attrs().ParentIndex != 0 {
			got++
		}
	}
	if got != n {
		return countError{got, n}
	}
	return nil
}
