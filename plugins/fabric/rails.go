package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/attach"
	"github.com/fabric-cni/fabric-cni/internal/devinfo"
	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/kubelet"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// allocated are the devices that kubelet has given to the pod: the one that Multus names, and others of its resource.
type allocated struct {
	attach.AllocatedDevices
	resource string
}

// allocatedToPod reads which devices the pod has, if it has several; else it returns nil. Without a pod, without Multus
// or without kubelet there are none, and the device is the one that the configuration names.
func (c *call) allocatedToPod() *allocated {
	if c.cfg.Injected == "" || c.cfg.Mode != netconf.ModeDevice || c.pod == nil || !prepared.IsUID(c.cfg.Pod.UID) {
		return nil
	}
	p, err := c.policy()
	if err != nil {
		return nil // attach.Decide reports it
	}
	given, err := kubelet.Of(p.DevicePluginDir, c.cfg.Pod.UID, c.cfg.Injected)
	if err != nil {
		c.log.Warn("devices go to networks in the order of kubelet, not of rails", "reason", err)
		return nil
	}
	if given == nil || len(given.IDs) < 2 {
		return nil
	}
	r := &allocated{resource: given.Resource}
	for _, id := range given.IDs {
		a, err := device.ParseAddress(id)
		if err != nil { // these are no whole devices
			c.log.Info("devices go to networks in the order of kubelet, not of rails", "reason", err)
			return nil
		}
		r.Devices = append(r.Devices, attach.AllocatedDevice{
			Location: device.Location{Address: a, PCI: c.host.PCIOf(a)}, ID: id, Named: id == c.cfg.Injected,
		})
	}
	r.Sort()
	return r
}

// byRail chooses the one of the pod's devices that this network gets.
func (c *call) byRail(r *allocated) (choice, error) {
	ch := choice{cfg: c.cfg}
	if err := c.markUnusable(r); err != nil {
		return ch, err
	}
	i := r.Choose()
	named := slices.IndexFunc(r.Devices, func(d attach.AllocatedDevice) bool { return d.Named })
	if i < 0 || i == named {
		return ch, nil
	}
	d := r.Devices[i]
	var err error
	if ch.cfg, err = c.cfg.SelectInjected(d.ID, d.Address); err != nil {
		return ch, fmt.Errorf("device %s, which is next in the order of rails: %w", d.ID, err)
	}
	c.log.Info("device in the order of rails", "device", d.ID, "named", c.cfg.Injected)
	ch.replaced = &replaced{pci: r.Devices[named].PCI}
	if ch.replaced.plugin, err = devinfo.OfPlugin(r.resource, d.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("device information of the device plugin can't be read", "reason", err)
	}
	return ch, nil
}

// markUnusable gathers what speaks against devices of the pod for this network.
func (c *call) markUnusable(r *allocated) error {
	have := c.store.Of(c.key.ContainerID)
	for i := range r.Devices {
		d := &r.Devices[i]
		s := netconf.Selector{Kind: netconf.ByAddress, Address: d.Address}
		d.Taken = slices.ContainsFunc(have, func(e *journal.Entry) bool {
			return e.Key != c.key && e.Claim != "" && e.Kind != journal.KindIPoIB && selects(s, "", e)
		})
	}
	if r.Keep = c.cfg.Unsorted; !r.Keep && c.cfg.DeviceInfo == "" {
		// Multus has told the pod's network-status of the device that it has named, which can't be corrected.
		_, err := devinfo.OfPlugin(r.resource, c.cfg.Injected)
		if r.Keep = err == nil; r.Keep {
			c.log.Warn("devices go to networks in the order of kubelet, not of rails: the network has no capability " +
				"CNIDeviceInfoFile")
		}
	}
	return c.findLacking(r)
}

// findLacking looks for devices that come before the named one and that a plugin of another type has put into the pod
// already: the journal does not know of that. Those that are a dead pod's are returned before they are attached.
func (c *call) findLacking(r *allocated) error {
	var named *inventory.Device
	for i := range r.Devices {
		d := &r.Devices[i]
		if d.Named && !d.Taken {
			return nil
		}
		if d.Taken {
			continue
		}
		if _, owned, err := c.store.Owner(d.Address.String()); err != nil || owned {
			return err
		}
		var err error
		if named == nil {
			named, err = c.host.Find(c.cfg.Selector)
		}
		if named == nil { // it has left itself: there is nothing to compare with
			c.log.Info("device that Multus names is not on the host", "reason", err)
			return nil
		}
		dev, err := c.host.Find(netconf.Selector{Kind: netconf.ByAddress, Address: d.Address})
		d.Lacking = err != nil || named.Netdev != nil && dev.Netdev == nil || named.HCA != nil && dev.HCA == nil
		if !d.Lacking {
			return nil
		}
	}
	return nil
}

// isGiven says whether kubelet has given the pod the device at an address beside the one that Multus names: then the
// configuration can mean it.
func (c *call) isGiven(a device.Address, pci string) bool {
	r := c.allocatedToPod()
	return r != nil && slices.ContainsFunc(r.Devices, func(d attach.AllocatedDevice) bool {
		return d.Address == a || pci != "" && d.Address == device.OnPCI(pci)
	})
}
