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

// rails are the devices that kubelet has given to the pod beside the one that Multus names, and of the same resource.
type rails struct {
	attach.AllocatedDevices
	resource string
}

// instead says that the attachment is of another device than Multus has named.
type instead struct {
	pci    string // PCI address of that one
	plugin []byte // what the device plugin says of this one; nil: nothing
}

// readRails reads which devices the pod has, if it has several. Without a pod (STATUS), without Multus or without
// kubelet there are none, and the device is the one that the configuration names.
func (c *call) readRails() {
	if c.cfg.Injected == "" || c.cfg.Mode != netconf.ModeDevice || c.pod == nil || !prepared.IsUID(c.cfg.Pod.UID) {
		return
	}
	p, err := c.policy()
	if err != nil {
		return // attach.Decide says so
	}
	given, err := kubelet.Of(p.DevicePluginDir, c.cfg.Pod.UID, c.cfg.Injected)
	if err != nil {
		c.log.Warn("devices go to networks in the order of kubelet, not of rails", "reason", err)
		return
	}
	if given == nil || len(given.IDs) < 2 {
		return
	}
	r := &rails{resource: given.Resource}
	for _, id := range given.IDs {
		a, err := device.ParseAddress(id)
		if err != nil { // these are no whole devices
			c.log.Info("devices go to networks in the order of kubelet, not of rails", "reason", err)
			return
		}
		r.Devices = append(r.Devices, attach.AllocatedDevice{
			ID: id, Address: a, PCI: c.host.PCIOf(a), Named: id == c.cfg.Injected,
		})
	}
	r.Sort()
	c.rails = r
}

// byRail puts the device into the configuration that this network gets of the pod's. The caller holds the pod's lock
// until the journal says so.
func (c *call) byRail() error {
	if c.rails == nil || c.given != nil {
		return nil
	}
	if err := c.regardRails(); err != nil {
		return err
	}
	i := c.rails.Choose()
	named := slices.IndexFunc(c.rails.Devices, func(d attach.AllocatedDevice) bool { return d.Named })
	if i < 0 || i == named {
		return nil
	}
	d := c.rails.Devices[i]
	conf, err := netconf.WithDevice(c.cfg.Raw, d.ID)
	if err != nil {
		return err
	}
	cfg, err := netconf.Parse(conf, c.env)
	if err != nil {
		return fmt.Errorf("device %s, which is next in the order of rails: %w", d.ID, err)
	}
	c.log.Info("device in the order of rails", "device", d.ID, "named", c.cfg.Injected)
	c.cfg, c.instead = cfg, &instead{pci: c.rails.Devices[named].PCI}
	if c.instead.plugin, err = devinfo.OfPlugin(c.rails.resource, d.ID); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("device information of the device plugin can't be read", "reason", err)
	}
	return nil
}

// regardRails gathers what speaks against devices of the pod for this network.
func (c *call) regardRails() error {
	r := c.rails
	have := c.store.Of(c.key.ContainerID)
	for i := range r.Devices {
		d := &r.Devices[i]
		s := netconf.Selector{Kind: netconf.ByAddress, Address: d.Address}
		d.Taken = slices.ContainsFunc(have, func(e *journal.Entry) bool {
			return e.Key != c.key && e.Claim != "" && e.Kind != journal.KindIPoIB && selects(s, "", e)
		})
	}
	if r.Keep = c.cfg.Unsorted; !r.Keep && c.cfg.DeviceInfo == "" {
		// Multus has told the pod's network-status of the device that it has named, and nobody could correct it.
		_, err := devinfo.OfPlugin(r.resource, c.cfg.Injected)
		if r.Keep = err == nil; r.Keep {
			c.log.Warn("devices go to networks in the order of kubelet, not of rails: the network has no capability " +
				"CNIDeviceInfoFile")
		}
	}
	return c.findLacking()
}

// findLacking looks for devices that come before the named one and that a plugin of another type has put into the pod
// already: the journal does not know of that. Those that are a dead pod's come home before they are attached.
func (c *call) findLacking() error {
	var named *inventory.Device
	for i := range c.rails.Devices {
		d := &c.rails.Devices[i]
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
	c.readRails()
	return c.rails != nil && slices.ContainsFunc(c.rails.Devices, func(d attach.AllocatedDevice) bool {
		return d.Address == a || pci != "" && d.Address == device.Address{Bus: "pci", Name: pci}
	})
}
