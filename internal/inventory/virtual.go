package inventory

import (
	"fmt"
	"io/fs"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// A virtual netdev has no bus address. Its name, altnames, group and hardware address are the pod's to change. What it
// can't change is the ifindex, the kind, and what a veth, macvlan or VLAN is made on: IFLA_LINK, the ifindex of its
// peer or of the netdev below it. See kernel fact 37.

// Attached returns a virtual netdev in the pod by the ifindex that it has there. It returns fs.ErrNotExist when it is
// not there any more.
func (r *Reader) Attached(was *device.Netdev, index int) (*device.Netdev, error) {
	n, err := r.Link.ByIndex(index)
	if err == nil && !sameMake(was, n) {
		err = fmt.Errorf("find netdev %s: index %d is %s now: %w", was.Name, index, n.Name, fs.ErrNotExist)
	}
	return n, err
}

// CameHome says whether a virtual netdev on the host is one that was in a pod, and not one that has been given its name
// meanwhile: that has another ifindex and another hardware address, which it is given back before it leaves the pod.
func CameHome(was, n *device.Netdev) bool {
	peer := was.Parent != 0 && n.Parent == was.Parent && n.Named(was.Name)
	return sameMake(was, n) && (sameHWAddr(was, n) || n.Index == was.Index || peer)
}

// sameMake compares what can't be changed. That the peer of a veth is not shown means that it is not known.
func sameMake(was, n *device.Netdev) bool {
	return n.Kind == was.Kind && n.ARPType == was.ARPType &&
		(was.Parent == 0 || n.Parent == 0 || n.Parent == was.Parent)
}
