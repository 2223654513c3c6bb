package selftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Device is a device that is to be tested.
type Device struct {
	Name   string   // as it was asked for
	Netdev string   // its interface on the host
	HCA    string   // its RDMA device; empty without one
	Addrs  []string // of its interface, with those that sit on it
	Users  []string // what of the host uses its RDMA device
	Routes int      // through its interface

	key     string // of the journal
	mtu     int
	layer   device.LinkLayer
	address string // that it gets in the namespace
	bus     device.Address

	pod  *pod            // that has it
	prev json.RawMessage // the result of its ADD
	took time.Duration   // of its shortest ADD
	lost string          // why it is not tested any further
}

// Find looks for devices by the name of the RDMA device, the name or an altname of the interface, or the bus address.
func Find(store journal.Store, names []string) ([]*Device, error) {
	h, err := openHost(store)
	if err != nil {
		return nil, err
	}
	defer h.close()
	var out []*Device
	number := rand.IntN(200) // of the first address: selftest may run on the next node, too
	for i, name := range names {
		d, err := h.find(name)
		if err != nil {
			return nil, err
		}
		for _, o := range out {
			if o.key == d.key {
				return nil, fmt.Errorf("%s and %s are one device", o.Name, d.Name)
			}
		}
		d.address = fmt.Sprintf("192.0.2.%d/24", 1+number+i) // TEST-NET-1, RFC 5737
		out = append(out, d)
	}
	return out, nil
}

func (h *host) find(name string) (*Device, error) {
	selectors := []netconf.Selector{
		{Kind: netconf.ByRDMADevice, Value: name}, {Kind: netconf.ByName, Value: name},
	}
	if a, err := device.ParseAddress(name); err == nil {
		selectors = append(selectors, netconf.Selector{Kind: netconf.ByAddress, Value: name, Address: a})
	}
	var found *inventory.Device
	var err error
	for _, s := range selectors {
		if found, err = h.Find(s); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && h.holder(name) != "":
		return nil, fmt.Errorf("device %q: %s has it", name, h.holder(name))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("device %q: the host has no RDMA device, interface or bus address of this name; "+
			"fabricctl discover lists them", name)
	case err != nil:
		return nil, fmt.Errorf("device %q: %w", name, err)
	case found.Netdev == nil:
		return nil, fmt.Errorf("device %q: it has no interface on the host, and selftest looks for one in its "+
			"namespace", name)
	}
	n := found.Netdev
	d := &Device{Name: name, Netdev: n.Name, key: found.DeviceKey(), mtu: n.MTU, bus: found.Address}
	if found.HCA != nil {
		d.HCA = found.HCA.Name
		if err := h.ports(d, found.HCA); err != nil {
			return nil, fmt.Errorf("device %q: %w", name, err)
		}
	}
	return d, h.uses(d, n)
}

// holder is who has a device that is not on the host, as the journal knows; empty: it is not known.
func (h *host) holder(name string) string {
	entries, _ := h.store.List() // damaged ones name nothing
	for _, e := range entries {
		if e.HCA != nil && e.HCA.Name == name || e.Netdev != nil && e.Netdev.Named(name) || e.DeviceKey == name {
			return e.Who()
		}
	}
	return ""
}

func (h *host) ports(d *Device, hca *device.HCA) (err error) {
	if err = h.RDMA.Ports(hca); err != nil {
		return err
	}
	if len(hca.Ports) > 0 {
		d.layer = hca.Ports[0].LinkLayer
	}
	d.Users, err = h.Users(hca, "/proc")
	return err
}

// uses reads what the host has on the interface.
func (h *host) uses(d *Device, n *device.Netdev) error {
	uppers, err := h.Uppers(n)
	if err != nil {
		return err
	}
	if n.Addrs, err = h.Addrs(n.Index); err != nil {
		return err
	}
	for _, a := range n.Addrs {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			d.Addrs = append(d.Addrs, a.Prefix.String())
		}
	}
	for _, u := range uppers {
		d.Addrs = append(d.Addrs, "those of "+u.Name)
	}
	routes, err := h.Link.Routes(n.Index)
	d.Routes = len(routes)
	return err
}

// Conf is the network configuration that it is attached with. A port without a cable will do.
func (d *Device) Conf() ([]byte, error) { return json.Marshal(d.conf()) }

func (d *Device) conf() conf {
	return conf{
		"cniVersion": "1.1.0", "name": network, "type": "fabric", "device": d.Netdev, "allowDown": true,
		"ipam": conf{"type": "static", "addresses": []conf{{"address": d.address}}},
	}
}

// wrongConf has a value that no interface can have.
func (d *Device) wrongConf() conf {
	c := d.conf()
	c["mtu"] = 1
	return c
}
