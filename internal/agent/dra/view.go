package dra

import (
	"maps"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Update tells the driver of a look at the node. It does not wait for anything.
func (d *Driver) Update(v View) {
	d.mu.Lock()
	v.Devices = d.keep(&v)
	items := make([]offer.Item, 0, len(v.Devices))
	for i := range v.Devices {
		items = append(items, v.Devices[i].Item)
	}
	offer.Rails(items, v.Rails)
	rails := map[device.Location]int{}
	for _, it := range items {
		rails[it.Location] = it.Rail
	}
	devices := map[string]*Device{}
	changed := len(v.Devices) != len(d.view.Devices)
	for i := range v.Devices {
		n := &v.Devices[i]
		n.Item.Rail = rails[n.Item.Location]
		name, err := offer.DeviceName(n.Item.ID())
		if err != nil || devices[name] != nil {
			continue // which is refused, and a condition
		}
		devices[name] = n
		was := d.devices[name]
		changed = changed || was == nil || was.Health != n.Health
	}
	d.view, d.devices = v, devices
	if changed {
		close(d.sickness)
		d.sickness = make(chan struct{})
	}
	d.mu.Unlock()
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// keep makes the devices of a look those that the slice is to have. One that is missing once stays: a device that just
// then moves to another namespace is found in neither. One on its way stays as it was, and one in a pod, whose names
// and states may be its pod's doing, apart from what is wrong with it.
func (d *Driver) keep(v *View) []Device {
	was := map[device.Location]*Device{}
	for i := range d.view.Devices {
		was[d.view.Devices[i].Item.Location] = &d.view.Devices[i]
	}
	out := slices.Clone(v.Devices)
	missing := map[device.Location]bool{}
	there := map[device.Location]bool{}
	for i := range out {
		n := &out[i]
		there[n.Item.Location] = true
		old := was[n.Item.Location]
		if old == nil || old.Item.Fabric != n.Item.Fabric || !n.Moving && !n.InPod {
			continue
		}
		problem := n.Item.Problem
		if n.Moving {
			problem = old.Item.Problem
		}
		shares := n.Item.Shares
		n.Item = old.Item
		n.Item.Problem, n.Item.Shares = problem, shares
	}
	for at, old := range was {
		// A fabric that has gone, or switched to the device plugin, leaves at once with all its devices.
		if !there[at] && !d.missing[at] && v.Fabrics[old.Item.Fabric] && !v.Elsewhere[at] {
			missing[at] = true
			out = append(out, *old)
		}
	}
	d.missing = missing
	slices.SortFunc(out, func(a, b Device) int { return a.Item.Compare(b.Item.Location) })
	return out
}

// device is a device by its name in the slice, or that of a share of it, and the share.
func (d *Driver) device(name string) (dev Device, share string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.devices[name]; n != nil {
		return *n, "", true
	}
	whole, share := offer.Share(name)
	if n := d.devices[whole]; n != nil && share != "" {
		return *n, share, true
	}
	return Device{}, "", false
}

// names are the devices of the node, for messages.
func (d *Driver) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.devices))
}
