package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Uppers returns what sits on a netdev of the host, and on that, and so on: VLANs, macvlans, tunnels, and the bond,
// bridge or VRF that it is part of. The nearest come first. sysfs has a link to each upper that is in the same network
// namespace (net/core/dev.c, netdev_adjacent_sysfs_add), but to no IPoIB child (see ChildrenOf), and a veth's peer is
// no upper.
func (r *Reader) Uppers(n *device.Netdev) ([]device.Upper, error) {
	if r.lists == nil {
		return r.uppers(n)
	}
	return remembered(&r.lists.uppers, n.Index, func() ([]device.Upper, error) { return r.uppers(n) })
}

func (r *Reader) uppers(n *device.Netdev) ([]device.Upper, error) {
	var out []device.Upper
	seen := map[int]bool{n.Index: true}
	for below := []device.Netdev{*n}; len(below) > 0; below = below[1:] {
		at := &below[0]
		indexes, err := r.uppersOf(at)
		if err != nil {
			return nil, err
		}
		for _, i := range indexes {
			if seen[i] {
				continue
			}
			seen[i] = true
			u, err := r.byIndex(i)
			if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, device.Upper{Netdev: *u, On: at.Index})
			below = append(below, *u)
		}
	}
	return out, nil
}

// On picks from all netdevs of one network namespace those that sit right on one of them: the kernel tells what a VLAN,
// macvlan, tunnel or IPoIB child is made on (IFLA_LINK), but not what a bond, bridge or VRF has.
//
// For some kinds the number is a peer's. That of an IPoIB child may be its parent's in another namespace, which the
// kernel does not say (drivers/infiniband/ulp/ipoib/ipoib_netlink.c has no get_link_net): the journal knows those that
// are ours.
func On(list []device.Netdev, n *device.Netdev) []device.Netdev {
	var out []device.Netdev
	for i := range list {
		u := &list[i]
		peer := u.Kind == "" || u.Kind == "veth" || u.Kind == "netkit" || u.Kind == "vxcan"
		if u.Index != n.Index && u.Parent == n.Index && u.ParentIn == nil && !peer {
			out = append(out, *u)
		}
	}
	return out
}

// uppersOf returns the ifindexes of what sits right on a netdev. udev may rename the netdev between two looks.
func (r *Reader) uppersOf(n *device.Netdev) ([]int, error) {
	name := n.Name
	for range 10 {
		dir := path.Join("class/net", name)
		if r.text(path.Join(dir, "ifindex")) == strconv.Itoa(n.Index) {
			out, err := r.upperLinks(dir)
			if !errors.Is(err, fs.ErrNotExist) {
				return out, err
			}
		}
		now, err := r.Link.ByIndex(n.Index)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		name = now.Name
	}
	return nil, fmt.Errorf("list what sits on %s: it is not in sysfs: %w", name, fs.ErrNotExist)
}

func (r *Reader) upperLinks(dir string) ([]int, error) {
	entries, err := fs.ReadDir(r.Sys, dir)
	if err != nil {
		return nil, fmt.Errorf("list what sits on %s: %w", path.Base(dir), err)
	}
	var out []int
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "upper_") {
			continue
		}
		if i, err := strconv.Atoi(r.text(path.Join(dir, e.Name(), "ifindex"))); err == nil {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out, nil
}
