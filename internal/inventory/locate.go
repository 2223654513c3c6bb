package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// HCA finds an RDMA device again, wherever it was renamed to. It returns fs.ErrNotExist when it is not in this
// namespace. The index holds across moves and renames; after its driver was rebound the device has a new one, and is
// known by its bus address on the host, by its node GUID in a pod.
func (r *Reader) HCA(was *device.HCA) (*device.HCA, error) {
	if r.RDMA == nil {
		return nil, fmt.Errorf("find RDMA device %s: %w", was.Name, fs.ErrNotExist)
	}
	h, err := r.RDMA.ByIndex(was.Index)
	if err == nil && h.NodeGUID == was.NodeGUID {
		h.Address = was.Address
		return h, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if r.Sys != nil && !was.Address.IsZero() {
		h, err := r.hcaIn(sysDevice(was.Address), was.Address)
		if err == nil && h == nil {
			err = fmt.Errorf("find RDMA device %s of %s: %w", was.Name, was.Address, fs.ErrNotExist)
		}
		return h, err
	}
	list, err := r.RDMA.List()
	if err != nil {
		return nil, err
	}
	for _, h := range list {
		if !was.NodeGUID.IsUnset() && h.NodeGUID == was.NodeGUID {
			h.Address = was.Address
			return &h, nil
		}
	}
	return nil, fmt.Errorf("find RDMA device %s: %w", was.Name, fs.ErrNotExist)
}

// Netdev finds a netdev again, whatever its name and ifindex are now. It returns fs.ErrNotExist when it is not in this
// namespace.
func (r *Reader) Netdev(was *device.Netdev) (*device.Netdev, error) {
	list, err := r.candidates(was)
	if err != nil {
		return nil, err
	}
	var best *device.Netdev
	for i := range list {
		n := &list[i]
		r.complete(n)
		if fits(was, n) && (best == nil || Likeness(was, n) > Likeness(was, best)) {
			best = n
		}
	}
	if best == nil {
		return nil, fmt.Errorf("find netdev %s: %w", was.Name, fs.ErrNotExist)
	}
	return best, nil
}

func (r *Reader) candidates(was *device.Netdev) ([]device.Netdev, error) {
	if r.Sys != nil && !was.Address.IsZero() {
		return r.netdevsIn(sysDevice(was.Address))
	}
	return r.Link.List(was.Kind)
}

// fits compares what neither a move nor the pod can change: the bus address. Without one (a virtual netdev, or a kernel
// before 5.14 in a pod) the kind and the hardware address have to do.
func fits(was, n *device.Netdev) bool {
	if n.Kind != was.Kind || n.ARPType != was.ARPType || was.IsIPoIB() && n.Parent != 0 {
		return false
	}
	if !n.Address.IsZero() {
		return n.Address == was.Address
	}
	return sameHWAddr(was, n) || was.Address.IsZero() && n.Named(was.Name)
}

func sameHWAddr(was, n *device.Netdev) bool {
	if g, ok := device.GUIDOf(was.HWAddr); ok {
		h, ok := device.GUIDOf(n.HWAddr)
		return ok && g == h
	}
	if len(was.PermAddr) > 0 && bytes.Equal(was.PermAddr, n.PermAddr) {
		return true
	}
	return bytes.Equal(was.HWAddr, n.HWAddr)
}

// Likeness ranks several netdevs that fit: the ports of one function, or virtual netdevs of one hardware address. The
// ifindex is kept by most moves.
func Likeness(was, n *device.Netdev) int {
	score := 0
	if sameHWAddr(was, n) {
		score += 8
	}
	if n.PortName == was.PortName {
		score += 4
	}
	if n.Named(was.Name) {
		score += 2
	}
	if n.Index == was.Index {
		score++
	}
	return score
}

// Child is what an IPoIB child that ADD has made is known by.
type Child struct {
	Parent device.Address // of the HCA
	PKey   device.PKey
	Group  uint32           // that it was made with: its only mark from its first moment. The pod can change it
	HWAddr net.HardwareAddr // empty: not known yet
	Index  int              // in the pod; 0: not known
	OnHost bool             // it is looked for on the host, where there are children of others
}

// Child finds an IPoIB child. It has the number of its queue pair, which no one can change, but the kernel may give the
// number to another child once this one is gone: one of the host's own is told by its group, by being up, and by an
// ifindex that it would not have kept.
func (r *Reader) Child(c Child) (*device.Netdev, error) {
	list, err := r.Link.List("ipoib")
	if err != nil {
		return nil, err
	}
	for i := range list {
		n := &list[i]
		if !c.is(n) {
			continue
		}
		if !c.OnHost || n.Group == c.Group {
			return n, nil
		}
		if n.Up() {
			continue
		}
		kept, err := r.keptIndex(&c, n)
		if err != nil {
			return nil, err
		}
		if kept {
			return n, nil
		}
	}
	return nil, fmt.Errorf("find IPoIB child with PKey %s: %w", c.PKey, fs.ErrNotExist)
}

// is compares what holds in every namespace. That a child has a parent is not always shown: the kernel omits a parent
// whose ifindex on the host is the child's own in the pod (net/core/rtnetlink.c, nla_put_iflink).
func (c *Child) is(n *device.Netdev) bool {
	if n.IPoIB == nil || n.IPoIB.PKey|device.FullMember != c.PKey|device.FullMember || c.OnHost && n.Parent == 0 ||
		!n.Address.IsZero() && !c.Parent.IsZero() && n.Address != c.Parent {
		return false
	}
	if qpn, ok := device.QPNOf(c.HWAddr); ok {
		now, ok := device.QPNOf(n.HWAddr)
		return ok && now == qpn
	}
	return n.Group == c.Group
}

// keptIndex says whether a netdev has the ifindex that it had in the pod, or had to take another one, because a netdev
// of any kind has that on the host (net/core/dev.c, __dev_change_net_namespace).
func (r *Reader) keptIndex(c *Child, n *device.Netdev) (bool, error) {
	if c.Index == 0 || n.Index == c.Index {
		return true, nil
	}
	_, err := r.Link.ByIndex(c.Index)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Snapshot adds to a netdev what is not among its own attributes: with it the netdev holds all that a move loses, and
// all that a pod can leave on it.
func (r *Reader) Snapshot(n *device.Netdev) error {
	if err := r.Addressing(n); err != nil {
		return err
	}
	return r.Kept(n)
}

// Addressing adds addresses and routes.
func (r *Reader) Addressing(n *device.Netdev) error {
	var err error
	if n.Addrs, err = r.Link.Addrs(n.Index); err != nil {
		return fmt.Errorf("snapshot %s: %w", n.Name, err)
	}
	if n.Routes, err = r.Link.Routes(n.Index); err != nil {
		return fmt.Errorf("snapshot %s: %w", n.Name, err)
	}
	for i := range n.Addrs {
		n.Addrs[i].NoRoute = n.Up() && n.Carrier && lacksRoute(&n.Addrs[i], n.Routes)
	}
	n.Routes = slices.DeleteFunc(n.Routes, func(t device.Route) bool { return comesWithAddress(t, n.Addrs) })
	return nil
}

const protoKernel, noPrefixRoute = 2, 0x200 // RTPROT_KERNEL, IFA_F_NOPREFIXROUTE

// comesWithAddress tells a route that the kernel makes by itself when the netdev gets its addresses. NetworkManager
// marks its routes as the kernel's, and its addresses such that the kernel makes none: those are for us to restore.
func comesWithAddress(t device.Route, addrs []device.Addr) bool {
	return t.Protocol == protoKernel && !slices.ContainsFunc(addrs, func(a device.Addr) bool {
		return a.Flags&noPrefixRoute != 0 && a.RoutePrefix() == t.Dst
	})
}

// lacksRoute says whether the kernel's route to the prefix of an address is missing: for each address without the flag
// IFA_F_NOPREFIXROUTE it makes one, for a single IPv4 address none (net/ipv4/fib_frontend.c, fib_add_ifaddr).
func lacksRoute(a *device.Addr, routes []device.Route) bool {
	dst := a.RoutePrefix()
	if a.Flags&noPrefixRoute != 0 || dst.Addr().Is4() && dst.IsSingleIP() {
		return false
	}
	return !slices.ContainsFunc(routes, func(t device.Route) bool { return t.Protocol == protoKernel && t.Dst == dst })
}

// ChildrenOf returns the IPoIB children on the parent that are in this namespace.
func (r *Reader) ChildrenOf(parent *device.Netdev) ([]device.Netdev, error) {
	list, err := r.allIPoIB()
	if err != nil {
		return nil, err
	}
	var out []device.Netdev
	for _, n := range list {
		if n.Parent == parent.Index && n.ParentIn == nil {
			out = append(out, n)
		}
	}
	return out, nil
}
