package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// uplink refuses a device over which the node itself reaches others, or is reached: by a route, by its address.
func (p *Policy) uplink(d Device) error {
	u := d.Uplink
	if u == nil {
		return nil
	}
	elsewhere := p.elsewhere(u)
	for i := range u.Interfaces {
		c := &u.Interfaces[i]
		j := slices.IndexFunc(c.Routes, func(r device.Route) bool {
			return (!d.IgnoreRA || !ofRA(r)) && counts(r, u.Lookups, elsewhere)
		})
		if j >= 0 && !match(p.AllowDefaultRoute, d) {
			return fmt.Errorf("%w: %s carries %s", ErrRefused, d.name(), theDefault(c.Routes[j], c.Name, d.name()))
		}
	}
	for i := range u.Interfaces {
		c := &u.Interfaces[i]
		for _, a := range c.Addrs {
			own := a.Prefix.Addr()
			known, source := p.has(own), slices.Contains(u.Sources, own) && !match(p.AllowDefaultRoute, d)
			if source && d.IgnoreRA && own.Is6() && slices.ContainsFunc(c.Routes, ofRA) {
				source = false // by that default route
			}
			if !known && !source || match(p.AllowNodeAddress, d) {
				continue
			}
			why := ""
			if !known {
				why = ", which the host's packets have by default"
			}
			return fmt.Errorf("%w: %s carries the node's address %s%s%s", ErrRefused, d.name(), own,
				on(c.Name, d.name()), why)
		}
	}
	return nil
}

// ofRA recognises a route that the kernel, or a program of the host, has made for a router advertisement.
func ofRA(r device.Route) bool {
	const protoRA = 9 // RTPROT_RA
	return r.Protocol == protoRA
}

// theDefault names a route and where it is.
func theDefault(r device.Route, name, dev string) string {
	what := "the host's default route"
	if r.Dst.Bits() > 0 {
		what = "a part of the host's default route"
	}
	by := ""
	if ofRA(r) {
		by = ", by router advertisement: a Fabric with addresses.host.ignoreRADefaultRoute does without it"
	}
	return fmt.Sprintf("%s (%s%s)%s", what, r, by, on(name, dev))
}

func on(name, dev string) string {
	if name == dev {
		return ""
	}
	return " on " + name + ", which sits on it"
}

// elsewhere are the node's addresses that are not on the device. What is sent from those that are is the device's own
// traffic, and the rule for the node's addresses judges it.
func (p *Policy) elsewhere(u *device.Uplink) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(p.NodeAddresses), func(a netip.Addr) bool {
		return slices.ContainsFunc(u.Interfaces, func(c device.Carrier) bool {
			return slices.ContainsFunc(c.Addrs, func(b device.Addr) bool { return b.Prefix.Addr() == a })
		})
	})
}

// counts says whether a route is a default route, or a part of one, that packets of the node itself take. Rails have
// default routes too, in tables of their own, to which rules lead that look at the source: these do not count.
func counts(r device.Route, lookups []device.Lookup, own []netip.Addr) bool {
	const main = 254 // RT_TABLE_MAIN: used even if no rule leads there at the moment
	if !device.Wide(r.Dst) {
		return false
	}
	return r.Table == main || slices.ContainsFunc(lookups, func(l device.Lookup) bool {
		return l.Table == r.Table && leads(l, own)
	})
}

// leads says whether a rule may take packets that the node, which has these addresses, makes for itself. It errs
// towards yes: what it looks at beside the things named here (protocol, port, type of service) a packet of the node
// may have.
func leads(l device.Lookup, own []netip.Addr) bool {
	switch {
	case l.Not: // all but something: wg-quick's "not fwmark"
		return true
	case l.Src.IsValid() && !device.Wide(l.Src) && !slices.ContainsFunc(own, l.Src.Contains):
		return false
	case l.Dst.IsValid() && !device.Wide(l.Dst):
		return false // no longer a default
	case l.IIF != "" && l.IIF != "lo": // "lo" are the host's own packets
		return false
	}
	return l.Mark == 0 && l.OIF == "" && !l.NotRoot && !l.Tunnel
}

// has says whether the node is known by an address.
func (p *Policy) has(a netip.Addr) bool { return slices.Contains(p.NodeAddresses, a.Unmap()) }
