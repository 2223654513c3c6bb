package survey

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/link"
	"github.com/fabric-cni/fabric-cni/internal/rdma"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// hold marks the device that an attachment has, and adds it if it is not on the host.
func (n Node) hold(list []Device, e *journal.Entry, r *inventory.Reader) ([]Device, error) {
	if e.HCA == nil || e.Kind == journal.KindIPoIB {
		return list, nil
	}
	owner, ok, err := n.Store.Owner(e.DeviceKey)
	if err != nil || !ok || owner != e.Key { // a late entry: the device is home, or another attachment's
		return list, err
	}
	address := e.HCA.Address
	if address.IsZero() {
		address = e.Address
	}
	if i := slices.IndexFunc(list, func(d Device) bool { return d.Address == address }); i >= 0 {
		list[i].held(e)
		return list, nil
	}
	if !r.Present(address) { // pulled out while the pod had it
		return list, nil
	}
	d := Device{
		Location: device.Location{Address: address, PCI: e.PCI}, HCA: *e.HCA, NameNow: e.HCA.Name,
		Holder: e, Away: true,
		Stale: true,
	}
	d.HCA.Ports = slices.Clone(e.HCA.Ports)
	if e.Netdev != nil && e.Kind == journal.KindDevice {
		d.Netdev, d.AltNames = e.Netdev.Name, e.Netdev.AltNames
	}
	if err := n.complete(&d, r); err != nil {
		return list, err
	}
	if ns, err := e.OpenNetns(); err == nil { // else as it was when it left, and the pod will soon be gone
		defer ns.Close()
		d.Stale = ns.Do(func() error { return now(&d) }) != nil
		if !d.Stale { // else it is not there, and another device of the pod may have its name
			_ = ns.DoWithSys(func(sys fs.FS) error {
				d.place(sys)
				return nil
			})
		}
	}
	return append(list, d), nil
}

// held notes who has a device that is on the host: of one in shared RDMA mode only the netdev is in the pod.
func (d *Device) held(e *journal.Entry) {
	d.Holder = e
	if e.MoveRDMA || e.Kind != journal.KindDevice || e.Netdev == nil || d.Netdev != "" {
		return
	}
	d.Netdev, d.AltNames, d.AdminUp = e.Netdev.Name, e.Netdev.AltNames, true
	if ns, err := e.OpenNetns(); err == nil {
		defer ns.Close()
		_ = ns.Do(func() error {
			d.AdminUp = up(uint32(e.PodIndex))
			return nil
		})
	}
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
	d.NameNow, d.HCA.Ports = h.Name, h.Ports
	d.AdminUp = true
	if len(h.Ports) > 0 && h.Ports[0].LinkLayer == device.Ethernet {
		if index := cmp.Or(h.Ports[0].Netdev, uint32(d.Holder.PodIndex)); index != 0 {
			d.AdminUp = up(index)
		}
	}
	d.otherPorts(func(index int) bool { return up(uint32(index)) })
	return nil
}

// up reports whether an interface of the calling thread's namespace is up. One that can't be asked counts as such: its
// port is judged by its own state.
func up(index uint32) bool {
	c, err := link.Dial()
	if err != nil {
		return true
	}
	defer c.Close()
	n, err := c.ByIndex(int(index))
	return err != nil || n.Up()
}

// Counter is one counter of one port.
type Counter = counters.Counter

// Counters reads the counters of a device where it is: on the host, or with the /sys of its pod. With names, only
// these: a counter costs a question to the firmware.
func (n Node) Counters(d *Device, names ...string) ([]Counter, error) {
	if !d.Away {
		return countersOf(n.Sys, d, names), nil
	}
	if d.Stale { // it is on its way, and another device of the pod may have its name
		return nil, nil
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
		out = countersOf(sys, d, names)
		return nil
	})
	return out, err
}

func countersOf(sys fs.FS, d *Device, names []string) (out []Counter) {
	for _, p := range d.HCA.Ports {
		dir := path.Join("class/infiniband", d.NameNow, "ports", strconv.FormatUint(uint64(p.Number), 10))
		out = append(out, counters.In(sys, dir, p.Number, names...)...)
	}
	return out
}
