package plan

import (
	"bytes"
	"net"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// ReleaseNetdev returns the steps that take our addresses and rules out of the pod before IPAM may give them to another
// pod. Rules do not leave with the netdev; own are those of the host that ADD has added beside the rail's.
func ReleaseNetdev(have *device.Netdev, rules, own []device.Rule) []Step {
	var steps []Step
	for _, r := range rules {
		if r.Table == Table(have.Index) || slices.Contains(own, r) {
			steps = append(steps, DelRule{r})
		}
	}
	for _, a := range have.Addrs {
		if a.Scope != scopeLink {
			steps = append(steps, DelAddr{In: Pod, Addr: a})
		}
	}
	return steps
}

// deleteUppers removes what sits on the netdev. A macvlan, a VLAN or an IPoIB child stays in the pod when the netdev
// below it leaves, and goes on sending and receiving through it, wherever that is by then (drivers/net/macvlan.c,
// macvlan_device_event; net/8021q/vlan.c, vlan_device_event: they act on NETDEV_UNREGISTER only if the netdev really
// ends). A bond, bridge or VRF lets go of its member by itself. See kernel fact 35.
func deleteUppers(in Side, uppers []device.Netdev, keep []KeptChild) []Step {
	var steps []Step
	for i := range uppers {
		u := &uppers[i]
		if !slices.ContainsFunc(keep, func(k KeptChild) bool { return u.IsIPoIB() && k.is(u) }) {
			steps = append(steps, DeleteUpper{In: in, Netdev: *u})
		}
	}
	return steps
}

// KeptChild is an IPoIB child of another attachment: its hardware address, or its group as long as that is not known.
type KeptChild struct {
	HWAddr net.HardwareAddr
	Group  uint32
}

// is compares flags, queue pair number and subnet prefix, which can't be changed
// (drivers/infiniband/ulp/ipoib/ipoib_main.c, ipoib_check_lladdr).
func (k KeptChild) is(n *device.Netdev) bool {
	const fixed = 12
	if len(k.HWAddr) < fixed || len(n.HWAddr) < fixed {
		return n.Group == k.Group
	}
	return bytes.Equal(n.HWAddr[:fixed], k.HWAddr[:fixed])
}

// orphans are IPoIB children of a pod whose namespace is gone: the kernel deletes other virtual netdevs with it, these
// come to the host. Where the RDMA device was in the pod, they have ended with its move. See kernel fact 10. In a pod
// that is alive, they are what was not there to be removed before the netdev left, or could not be.
func orphans(w Where, h Home) ([]Step, bool) {
	if w.Netdev == nil || w.NetdevSide != Host || h.Side != Host {
		return nil, false
	}
	if w.PodGone {
		return deleteUppers(Host, w.Uppers, h.Keep), false
	}
	return deleteUppers(Pod, w.Uppers, h.Keep), false
}

// ReleaseOrphans returns the steps that remove rules of ours whose netdev is not in the pod any more: they name a
// rail's table, and no netdev there has its ifindex, or are among those of the host that ADD has added.
func ReleaseOrphans(there []device.Netdev, rules, own []device.Rule) []Step {
	var steps []Step
	for _, r := range rules {
		if slices.Contains(own, r) || r.Priority == rulePriority && r.Table > Table(0) && r.Src.IsSingleIP() &&
			!slices.ContainsFunc(there, func(n device.Netdev) bool { return Table(n.Index) == r.Table }) {
			steps = append(steps, DelRule{r})
		}
	}
	return steps
}
