package inventory

import (
	"fmt"
	"net/netip"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// nowhere are addresses for which no network has a route of its own, so that the default route takes them: the IPv4
// dummy address (RFC 7600) and one of those that are never routed (ORCHIDv2, RFC 7343). Nothing is sent there.
var nowhere = [...]netip.Addr{
	netip.AddrFrom4([4]byte{192, 0, 0, 8}),
	netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 3: 0x20, 15: 1}),
}

const tableMain = 254 // RT_TABLE_MAIN

// Uplink reads what the host's own network has to do with a netdev of the host that has its addresses: what it and its
// uppers (see Uppers) carry. IPoIB children sit on their parent, too.
func (r *Reader) Uplink(n *device.Netdev, uppers []device.Upper) (*device.Uplink, error) {
	u := &device.Uplink{Interfaces: []device.Carrier{{Name: n.Name, Addrs: n.Addrs}}}
	indexes := []int{n.Index}
	for i := range uppers {
		u.Interfaces = append(u.Interfaces, device.Carrier{Name: uppers[i].Name})
		indexes = append(indexes, uppers[i].Index)
	}
	if n.IsIPoIB() && n.Parent == 0 {
		children, err := r.ChildrenOf(n)
		if err != nil {
			return nil, err
		}
		for i := range children {
			u.Interfaces = append(u.Interfaces, device.Carrier{Name: children[i].Name})
			indexes = append(indexes, children[i].Index)
		}
	}
	if err := r.carried(u, indexes); err != nil {
		return nil, fmt.Errorf("read what the host needs of %s: %w", n.Name, err)
	}
	u.Sources = r.sources()
	return u, nil
}

func (r *Reader) carried(u *device.Uplink, indexes []int) (err error) {
	rules := false
	for i := range u.Interfaces {
		c := &u.Interfaces[i]
		if i > 0 {
			if c.Addrs, err = r.Addrs(indexes[i]); err != nil {
				return err
			}
		}
		if c.Routes, err = r.wideRoutes(indexes[i]); err != nil {
			return err
		}
		for _, t := range c.Routes {
			rules = rules || t.Table != tableMain
		}
	}
	if rules {
		u.Lookups, err = r.lookups()
	}
	return err
}
