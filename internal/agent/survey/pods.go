package survey

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
)

// hold marks the device that an attachment has, and adds it if it is not on the host.
func (n Node) hold(list []Device, e *journal.Entry, r *inventory.Reader) ([]Device, error) {
	if e.HCA == nil || e.Kind == journal.KindIPoIB {
		return list, nil
	}
	owner, ok, err := n.Store.Owner(e.Claim)
	if err != nil || !ok || owner != e.Key { // a late entry: the device is home, or another attachment's
		return list, err
	}
	address := e.HCA.Address
	if address.IsZero() {
		address = e.Address
	}
	if i := slices.IndexFunc(list, func(d Device) bool { return d.Address == address }); i >= 0 {
		list[i].Holder = e
		return list, nil
	}
	if !r.Present(address) { // pulled out while the pod had it
		return list, nil
	}
	d := Device{Address: address, HCA: *e.HCA, Holder: e}
	d.HCA.Ports = slices.Clone(e.HCA.Ports)
	if e.Netdev != nil && e.Kind == journal.KindDevice {
		d.Netdev, d.AltNames = e.Netdev.Name, e.Netdev.AltNames
	}
	if err := n.complete(&d, r, e.PCI); err != nil {
		return list, err
	}
	if ns, err := e.OpenNetns(); err == nil { // else as it was when it left, and the pod will soon be gone
		defer ns.Close()
		_ = ns.Do(func() error { return now(&d) })
		_ = ns.DoWithSys(func(sys fs.FS) error {
			d.place(sys)
			return nil
		})
	}
	return append(list, d), nil
}

// now reads the port states of a device in the namespace of the calling thread.
func now(d *Device) error {
	c, err := rdma.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := c.ByIndex(d.HCA.Index)
	if err != nil {
		return err
	}
	if err := c.Ports(h); err != nil {
		return err
	}
	d.HCA.Name, d.HCA.Ports = h.Name, h.Ports
	return nil
}

// Counter is one counter of one port, as sysfs has it: port_xmit_data and port_rcv_data count words of four bytes, as
// the attribute PortCounters has them (IBTA, chapter 16.1).
type Counter struct {
	Port  uint32
	Group string // "counters" (IBTA) or "hw_counters" (the driver's)
	Name  string
	Value uint64
}

// lifespan is in hw_counters and counts nothing: for how many milliseconds the kernel keeps what it has read
// (drivers/infiniband/core/sysfs.c, setup_hw_port_stats).
const lifespan = "lifespan"

// Counters reads the counters of a device where it is: on the host, or with the /sys of its pod.
func (n Node) Counters(d *Device) ([]Counter, error) {
	if !d.InPod() {
		return counters(n.Sys, d), nil
	}
	ns, err := d.Holder.OpenNetns()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var out []Counter
	err = ns.DoWithSys(func(sys fs.FS) error {
		out = counters(sys, d)
		return nil
	})
	return out, err
}

func counters(sys fs.FS, d *Device) (out []Counter) {
	for _, p := range d.HCA.Ports {
		for _, group := range []string{"counters", "hw_counters"} {
			dir := path.Join("class/infiniband", d.HCA.Name, "ports", strconv.FormatUint(uint64(p.Number), 10), group)
			entries, err := fs.ReadDir(sys, dir)
			if err != nil {
				continue // the driver has none
			}
			for _, e := range entries {
				if e.Name() == lifespan {
					continue
				}
				b, err := fs.ReadFile(sys, path.Join(dir, e.Name()))
				if err != nil {
					continue // write-only, or not supported by this port
				}
				if v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil {
					out = append(out, Counter{p.Number, group, e.Name(), v})
				}
			}
		}
	}
	return out
}
