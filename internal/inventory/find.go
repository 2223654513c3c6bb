package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Find returns the one device that the selector picks in the host's namespace. It returns fs.ErrNotExist without a
// match, ErrAmbiguous with several.
func (r *Reader) Find(s netconf.Selector) (*Device, error) {
	switch s.Kind {
	case netconf.ByAddress:
		if s.Address.Bus == device.Virtual {
			return r.Find(netconf.Selector{Kind: netconf.ByName, Value: s.Address.Name})
		}
		return r.At(s.Address)
	case netconf.ByName:
		n, err := r.Link.ByName(s.Value)
		if err != nil {
			return nil, err
		}
		return r.Of(n)
	case netconf.ByHWAddr:
		return r.byHWAddr(s)
	case netconf.ByKernelPath:
		return r.byPath(strings.TrimPrefix(path.Clean(s.Value), "/sys/"))
	case netconf.ByRDMADevice:
		return r.byRDMA(s.Value)
	case netconf.ByGUID:
		return r.byGUID(s.GUID)
	}
	return nil, fmt.Errorf("find device: no selector: %w", fs.ErrNotExist)
}

// Of completes a netdev to the device it is a face of.
func (r *Reader) Of(n *device.Netdev) (*Device, error) {
	r.complete(n)
	d := &Device{Address: n.Address, Netdev: n}
	if d.Address.IsZero() {
		return d, nil
	}
	dir := sysDevice(d.Address)
	d.PCI = r.pciOf(dir, d.Address)
	var err error
	d.HCA, err = r.hcaIn(dir, d.Address)
	return d, err
}

// byHWAddr matches 6 bytes against the address and the permanent address, 20 or 8 bytes against the GUID at the end
// of an IPoIB address: the rest of it changes at each recreation. VLANs and the like repeat their parent's address and
// are not meant.
func (r *Reader) byHWAddr(s netconf.Selector) (*Device, error) {
	list, err := r.Link.List("")
	if err != nil {
		return nil, err
	}
	guid := s.GUID
	if g, ok := device.GUIDOf(s.HWAddr); ok {
		guid = g
	}
	var hits []device.Netdev
	for _, n := range list {
		if n.Parent != 0 && n.Kind != "veth" { // a veth's "parent" is its peer
			continue
		}
		if g, ok := device.GUIDOf(n.HWAddr); ok {
			if guid != 0 && g == guid {
				hits = append(hits, n)
			}
		} else if len(s.HWAddr) == 6 && (bytes.Equal(n.HWAddr, s.HWAddr) || bytes.Equal(n.PermAddr, s.HWAddr)) {
			hits = append(hits, n)
		}
	}
	switch len(hits) {
	case 0:
		return nil, fmt.Errorf("find netdev with hardware address %s: %w", s.Value, fs.ErrNotExist)
	case 1:
		return r.Of(&hits[0])
	}
	return nil, fmt.Errorf("%w: hardware address %s belongs to %s", ErrAmbiguous, s.Value, names(hits))
}

// byPath takes the path of a device, or of its net directory, or of the netdev in it.
func (r *Reader) byPath(p string) (*Device, error) {
	if _, err := fs.Stat(r.Sys, p); err != nil {
		return nil, fmt.Errorf("find device at kernelpath: %w", err)
	}
	if path.Base(path.Dir(p)) == "net" {
		n, err := r.Link.ByName(path.Base(p))
		if err != nil {
			return nil, err
		}
		return r.Of(n)
	}
	if path.Base(p) == "net" {
		p = path.Dir(p)
	}
	bus, err := fs.ReadLink(r.Sys, path.Join(p, "subsystem"))
	if err != nil {
		return nil, fmt.Errorf("find device at kernelpath: %s is no device: %w", p, err)
	}
	return r.At(device.Address{Bus: path.Base(bus), Name: path.Base(p)})
}

func (r *Reader) byRDMA(name string) (*Device, error) {
	a, err := r.HCAAddress(name)
	if err != nil {
		return nil, err
	}
	return r.At(a)
}

// HCAAddress returns the bus address of an RDMA device. It returns fs.ErrNotExist when no device has that name, and a
// SoftError, which matches it, when it has no hardware.
func (r *Reader) HCAAddress(name string) (device.Address, error) {
	if r.lists == nil {
		return r.hcaAddress(name)
	}
	return remembered(&r.lists.addresses, name, func() (device.Address, error) { return r.hcaAddress(name) })
}

func (r *Reader) hcaAddress(name string) (device.Address, error) {
	a, ok := r.addressOf(path.Join("class/infiniband", name, "device"))
	if !ok {
		if r.Sys != nil && r.soft(name) {
			return a, &SoftError{name}
		}
		return a, fmt.Errorf("find RDMA device %s: %w", name, fs.ErrNotExist)
	}
	return a, nil
}

// byGUID matches a node GUID or a port GUID.
func (r *Reader) byGUID(g device.GUID) (*Device, error) {
	entries, err := fs.ReadDir(r.Sys, "class/infiniband")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	var hits []string
	for _, e := range entries {
		if r.hasGUID(path.Join("class/infiniband", e.Name()), g) {
			hits = append(hits, e.Name())
		}
	}
	switch len(hits) {
	case 0:
		return nil, fmt.Errorf("find RDMA device with GUID %s: %w", g, fs.ErrNotExist)
	case 1:
		return r.byRDMA(hits[0])
	}
	return nil, fmt.Errorf("%w: GUID %s belongs to %s", ErrAmbiguous, g, strings.Join(hits, ", "))
}

func (r *Reader) hasGUID(dir string, g device.GUID) bool {
	if v, err := device.ParseGUID(r.text(path.Join(dir, "node_guid"))); err == nil && v == g {
		return true
	}
	ports, err := fs.ReadDir(r.Sys, path.Join(dir, "ports"))
	if err != nil {
		return false
	}
	for _, p := range ports {
		gid := r.text(path.Join(dir, "ports", p.Name(), "gids/0"))
		if len(gid) < 20 {
			continue
		}
		if v, err := device.ParseGUID(gid[len(gid)-19:]); err == nil && v == g {
			return true
		}
	}
	return false
}

// PKeys lists what a port's table holds, as far as want, where that is in it: full and limited membership of one
// partition both count.
func (r *Reader) PKeys(hca string, port uint32, want device.PKey) (held []device.PKey, err error) {
	dir := path.Join("class/infiniband", hca, "ports", fmt.Sprint(port), "pkeys")
	entries, err := fs.ReadDir(r.Sys, dir)
	if err != nil {
		return nil, fmt.Errorf("list PKeys of %s port %d: %w", hca, port, err)
	}
	for i := range entries { // in the order of the table: the used ones come first
		k, err := device.ParsePKey(r.text(path.Join(dir, fmt.Sprint(i))))
		if err != nil {
			continue // empty place: 0x0000
		}
		held = append(held, k)
		if k|device.FullMember == want|device.FullMember {
			break
		}
	}
	return held, nil
}

// text is an attribute of sysfs, empty if it can't be read.
func (r *Reader) text(file string) string {
	b, err := fs.ReadFile(r.Sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
