// Package inventory reads what is there: sysfs, rtnetlink and nldev become device values. It changes nothing.
package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/netns"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Reader looks at one network namespace.
type Reader struct { //nolint:methods // one for each question about a device
	Sys  fs.FS      // the host's /sys; nil in a pod, whose own is not mounted here
	Link *link.Conn // in the namespace
	RDMA *rdma.Conn // in the namespace; nil without RDMA
	NS   *netns.NS  // the namespace, for what is read otherwise; nil: the one of the calling thread

	lists *lists // of Once
}

// Device is one device with both its faces, as the host sees it.
type Device struct {
	Address device.Address // of the hardware; zero for a virtual netdev
	PCI     string         // PCI address of the device or of the function it sits on; empty without one
	Netdev  *device.Netdev // nil without one on the host
	HCA     *device.HCA    // nil without one on the host
}

// DeviceKey is the device's name in the journal.
func (d *Device) DeviceKey() string { return device.KeyOf(d.Address, d.Netdev) }

// ErrAmbiguous means that a selector fits several devices.
var ErrAmbiguous = errors.New("more than one device fits")

// sysDevice is the directory of a device in sysfs.
func sysDevice(a device.Address) string { return path.Join("bus", a.Bus, "devices", a.Name) }

// At returns the device at a bus address. It returns fs.ErrNotExist when the bus has none there.
func (r *Reader) At(a device.Address) (*Device, error) {
	if r.lists == nil {
		return r.at(a)
	}
	d, err := remembered(&r.lists.devices, a, func() (*Device, error) { return r.at(a) })
	return d.clone(), err
}

func (r *Reader) at(a device.Address) (*Device, error) {
	dir := sysDevice(a)
	nets, err := r.netdevsIn(dir)
	if err == nil && len(nets) == 0 { // what has a netdev is there, and carries it itself: that costs no look
		if _, err := fs.Stat(r.Sys, dir); err != nil {
			return nil, fmt.Errorf("find device %s: %w", a, err)
		}
		if on := r.virtio(dir); on != dir {
			dir = on
			nets, err = r.netdevsIn(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	d := &Device{Address: a, PCI: r.pciOf(dir, a)}
	if len(nets) > 1 {
		return nil, fmt.Errorf(
			"%w: device %s has the netdevs %s; select one by name (device) or hardware address (hwaddr)",
			ErrAmbiguous,
			a,
			names(nets),
		)
	}
	if len(nets) == 1 {
		d.Netdev, d.Address = &nets[0], nets[0].Address
	}
	d.HCA, err = r.hcaIn(dir, a)
	return d, err
}

// virtio steps from a PCI function to the virtio device on it, which is what carries the netdev.
func (r *Reader) virtio(dir string) string {
	if _, err := fs.Stat(r.Sys, path.Join(dir, "net")); err == nil { // cheaper than its list of files
		return dir
	}
	if m, err := fs.Glob(r.Sys, path.Join(dir, "virtio[0-9]*")); err == nil && len(m) == 1 {
		return m[0]
	}
	return dir
}

// netdevsIn returns the netdevs of a device in the namespace, without representors, VLANs and IPoIB children, which
// sysfs shows under the same device.
//
// udev and other calls rename netdevs at any moment: what was not found under the name just read is looked for again.
func (r *Reader) netdevsIn(dir string) (out []device.Netdev, err error) {
	for range 10 {
		var changed bool
		if out, changed, err = r.readNetdevs(dir); err != nil || !changed {
			break
		}
	}
	return out, err
}

// readNetdevs goes by the ifindex in the device's own directory: by now its name may be another device's.
func (r *Reader) readNetdevs(dir string) (out []device.Netdev, changed bool, err error) {
	entries, err := fs.ReadDir(r.Sys, path.Join(dir, "net"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list netdevs of %s: %w", dir, err)
	}
	for _, e := range entries {
		n, err := r.netdevIn(dir, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			changed = true
			continue
		}
		if err != nil {
			return nil, false, err
		}
		r.complete(n)
		if n.Parent == 0 && !representor(n) {
			out = append(out, *n)
		}
	}
	return out, changed, nil
}

// netdevIn returns a netdev that a device's directory lists. The name, which a pod may have chosen, decides nothing: it
// is looked up in that directory only, and what is there is this device's. Below a name that is no text io/fs opens
// nothing (fs.ValidPath): such a one is asked for by netlink, and is the device's if its bus address is.
func (r *Reader) netdevIn(dir, name string) (*device.Netdev, error) {
	if fs.ValidPath(name) {
		index, err := strconv.Atoi(r.text(path.Join(dir, "net", name, "ifindex")))
		if err != nil {
			return nil, fs.ErrNotExist
		}
		return r.byIndex(index)
	}
	n, err := r.Link.ByName(name)
	if err == nil && n.Address.Name != path.Base(dir) { // an altname of another device is spelled so
		return nil, fs.ErrNotExist
	}
	return n, err
}

// representor tells a netdev that stands for another function of an embedded switch: its physical port name is
// pf0vf3, pf0sf1, c1pf0vf0 (Documentation/networking/switchdev.rst).
func representor(n *device.Netdev) bool {
	p := n.PortName
	return strings.HasPrefix(p, "pf") || (strings.HasPrefix(p, "c") && strings.Contains(p, "pf"))
}

// complete fills in the bus address where the kernel (before 5.14) does not tell it by netlink.
func (r *Reader) complete(n *device.Netdev) {
	if r.Sys == nil || !n.Address.IsZero() {
		return
	}
	if a, ok := r.addressOf(path.Join("class/net", n.Name, "device")); ok {
		n.Address = a
	}
}

// hcaIn returns the RDMA device of a device, nil without one in the namespace.
func (r *Reader) hcaIn(dir string, a device.Address) (*device.HCA, error) {
	entries, err := fs.ReadDir(r.Sys, path.Join(dir, "infiniband"))
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices of %s: %w", a, err)
	}
	if len(entries) > 1 {
		return nil, fmt.Errorf(
			"%w: device %s has %d RDMA devices; select one by name (rdmaDevice)",
			ErrAmbiguous,
			a,
			len(entries),
		)
	}
	h, err := r.HCANamed(entries[0].Name())
	if err != nil {
		return nil, err
	}
	h.Address = a
	return h, nil
}

// HCANamed returns an RDMA device by name. The kernel has only a dump for this, which can miss a device while another
// one moves: it is asked again before "not there" is believed. See kernel fact 7 in docs/kernel.md.
func (r *Reader) HCANamed(name string) (*device.HCA, error) {
	if h, ok := r.hca(name); ok {
		return h, nil
	}
	if r.RDMA == nil {
		return nil, rdma.ErrNoRDMA
	}
	for range 10 {
		list, err := r.RDMA.List()
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
		if r.Sys != nil {
			if _, err := fs.Stat(r.Sys, path.Join("class/infiniband", name)); err != nil {
				break
			}
		}
	}
	return nil, fmt.Errorf("find RDMA device %s: %w", name, fs.ErrNotExist)
}

// addressOf reads the bus address behind a "device" link or a device's directory.
func (r *Reader) addressOf(dir string) (device.Address, bool) {
	target, err := fs.ReadLink(r.Sys, dir)
	if err != nil {
		return device.Address{}, false
	}
	bus, err := fs.ReadLink(r.Sys, path.Join(dir, "subsystem"))
	if err != nil {
		return device.Address{}, false
	}
	return device.Address{Bus: path.Base(bus), Name: path.Base(target)}, true
}

// pciOf finds the PCI function a device is, or sits on, from its path below /sys/devices.
func (r *Reader) pciOf(dir string, a device.Address) string {
	if a.Bus == "pci" {
		return a.Name
	}
	target, err := fs.ReadLink(r.Sys, sysDevice(a))
	if err != nil {
		target = dir
	}
	parts := strings.Split(target, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if p, err := device.ParseAddress(parts[i]); err == nil && p.Bus == "pci" {
			return p.Name
		}
	}
	return ""
}

// PCIOf returns the PCI address of a device, or of the function that it sits on; empty without one.
func (r *Reader) PCIOf(a device.Address) string { return r.pciOf(sysDevice(a), a) }

// Present reports whether the bus still has the device, and a driver bound to it.
func (r *Reader) Present(a device.Address) bool {
	if a.IsZero() {
		return true
	}
	dir := sysDevice(a)
	if a.Bus == "pci" || a.Bus == "auxiliary" || a.Bus == "virtio" { // other buses need no driver to have devices
		dir = path.Join(dir, "driver")
	}
	_, err := fs.Stat(r.Sys, dir)
	return err == nil
}

// OnBus reports whether the bus still has the device, with or without a driver.
func (r *Reader) OnBus(a device.Address) bool {
	_, err := fs.Stat(r.Sys, sysDevice(a))
	return a.IsZero() || err == nil
}

func names(nets []device.Netdev) string {
	var s []string
	for _, n := range nets {
		s = append(s, n.Name)
	}
	return strings.Join(s, ", ")
}

// NetdevsAt returns all netdevs of a device: two where one function has two ports.
func (r *Reader) NetdevsAt(a device.Address) ([]device.Netdev, error) {
	return r.netdevsIn(sysDevice(a))
}
