package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// SoftError says that an RDMA device is a soft one: the drivers rxe and siw have made it on a netdev, and no hardware
// is behind it. It matches fs.ErrNotExist: there is no device that could be found by it.
type SoftError struct{ Name string }

func (e *SoftError) Error() string {
	return fmt.Sprintf("find the device of RDMA device %s: it is a soft one (rxe, siw), without hardware", e.Name)
}

func (*SoftError) Unwrap() error { return fs.ErrNotExist }

// soft says whether an RDMA device that sysfs shows has no hardware: no link "device" (drivers/infiniband/core/device.c
// makes it for the parent, which rxe and siw do not set since Linux 5.11, commit a9d2e9ae953f).
func (r *Reader) soft(name string) bool {
	dir := path.Join("class/infiniband", name)
	if _, err := fs.Lstat(r.Sys, path.Join(dir, "device")); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err := fs.Stat(r.Sys, dir) // it may have gone meanwhile
	return err == nil
}

// SoftOn returns the names of the soft RDMA devices on a netdev of the host: the kernel destroys them when the netdev
// changes its network namespace. See kernel fact 45 in docs/kernel.md. On a node without any the price is one directory
// and one link per RDMA device in sysfs. Only soft ones are asked for their netdev, by netlink: its ifindex, which is
// not shown if the netdev is in another namespace, as it is in sysfs, where it may have the name of one that is here.
func (r *Reader) SoftOn(n *device.Netdev) ([]string, error) {
	entries, err := fs.ReadDir(r.Sys, "class/infiniband")
	if errors.Is(err, fs.ErrNotExist) || r.RDMA == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	var out []string
	for _, e := range entries {
		if !r.soft(e.Name()) {
			continue
		}
		index, err := r.netdevIndex(e.Name())
		if errors.Is(err, fs.ErrNotExist) { // gone meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if index == n.Index {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// NetdevUnder returns the name of the netdev that an RDMA device is on; empty: it is in another network namespace, or
// can't be read.
func (r *Reader) NetdevUnder(hca string) string {
	index, err := r.netdevIndex(hca)
	if err != nil || index == 0 {
		return ""
	}
	n, err := r.Link.ByIndex(index)
	if err != nil {
		return ""
	}
	return n.Name
}

// StrayNetdev says whether a RoCE port has an interface in another network namespace: sysfs has its name, and nldev,
// which tells of this namespace only, has none.
func (r *Reader) StrayNetdev(h *device.HCA) bool {
	if r.RDMA.Ports(h) != nil {
		return false // it has just left
	}
	for _, p := range h.Ports {
		dir := path.Join("class/infiniband", h.Name, "ports", fmt.Sprint(p.Number))
		if p.Netdev == 0 && r.text(path.Join(dir, "gid_attrs/ndevs/0")) != "" {
			return true
		}
	}
	return false
}

// netdevIndex returns the ifindex of the netdev that an RDMA device is on; 0: none in this network namespace.
func (r *Reader) netdevIndex(hca string) (int, error) {
	h, err := r.HCANamed(hca)
	if err != nil {
		return 0, err
	}
	if err := r.RDMA.Ports(h); err != nil {
		return 0, err
	}
	for _, p := range h.Ports {
		if p.Netdev != 0 {
			return int(p.Netdev), nil
		}
	}
	return 0, nil
}
