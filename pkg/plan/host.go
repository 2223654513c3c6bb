package plan

import (
	"net/netip"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Flags of addresses (include/uapi/linux/if_addr.h). The first means another thing in IPv4.
const (
	addrTemporary     = 0x01
	addrDADFailed     = 0x08
	addrPermanent     = 0x80
	addrTentative     = 0x40
	addrNoPrefixRoute = 0x200
)

// OnHost is what the pod's interface takes along of the addressing that it has on the host.
type OnHost struct {
	Addressing
	// Leases are addresses that run out unless a client renews them, as of a DHCP server. They are not in Addrs.
	Leases []device.Addr
	// Advertised are addresses of Addrs that end unless router advertisements renew them (RFC 4862).
	Advertised []netip.Prefix
	// Token is the interface identifier of all these; invalid where they have several.
	Token netip.Addr
	Waits bool // an address is about to be usable: duplicate address detection is under way
}

// HostAddressing returns what goes along of the addressing of a netdev: addresses of more than its link, in the order
// in which the kernel is to get them, with their lifetimes; routes of all tables; and rules that send what comes from
// these addresses to these tables. wide are the netdev's default routes of any origin.
//
// What the kernel makes for an address or has learnt from a router advertisement comes again by itself. A default route
// in the main table would be a second one beside the pod's own: it goes along only into the table of the rail.
func HostAddressing(cfg *netconf.Config, was *device.Netdev, rules []device.Rule, wide []device.Route) *OnHost {
	h := &OnHost{}
	for _, a := range inOrder(was.Addrs) {
		h.address(a, cfg.KeepLeases, was.Carrier)
	}
	for _, a := range h.Advertised {
		t := token(a)
		if a != h.Advertised[0] && t != h.Token {
			h.Token = netip.Addr{}
			break
		}
		h.Token = t
	}
	has := func(a netip.Addr) bool {
		return slices.ContainsFunc(h.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	}
	family := func(a netip.Addr) bool {
		return slices.ContainsFunc(h.Addrs, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() })
	}
	type table struct {
		number uint32
		v4     bool
	}
	var tables []table
	for _, r := range slices.Concat(was.Routes, onlyDefaults(wide, was.Routes)) {
		isDefault := r.Table == tableMain && device.Wide(r.Dst)
		switch {
		case r.Multipath, !family(r.Dst.Addr()), r.Src.IsValid() && !has(r.Src), isDefault && !cfg.SourceBased,
			isDefault && r.Dst.Bits() > 0:
			continue
		case r.Table == tableMain:
			r.Table = 0
		default:
			tables = append(tables, table{r.Table, r.Dst.Addr().Is4()})
		}
		h.Routes = append(h.Routes, r)
	}
	slices.SortStableFunc(h.Routes, func(a, b device.Route) int { return reach(a) - reach(b) })
	for _, r := range rules {
		from := func(p netip.Prefix) bool { return r.Src.Contains(p.Addr()) }
		if slices.Contains(tables, table{r.Table, r.Src.Addr().Is4()}) && slices.ContainsFunc(h.Addrs, from) {
			h.Rules = append(h.Rules, r)
		}
	}
	return h
}

// onlyDefaults are the default routes in the main table that others does not have: those of router advertisements.
func onlyDefaults(wide, others []device.Route) []device.Route {
	return slices.DeleteFunc(slices.Clone(wide), func(r device.Route) bool {
		return r.Table != tableMain || r.Dst.Bits() > 0 ||
			slices.ContainsFunc(others, func(o device.Route) bool { return sameRoute(o, r) })
	})
}

// address sorts an address of the host.
func (h *OnHost) address(a device.Addr, keepLeases, carrier bool) {
	ip := a.Prefix.Addr()
	switch {
	case ip.IsLinkLocalUnicast() && ip.Is6(), ip.IsLoopback(), isAddr6(a) && a.Flags&addrTemporary != 0,
		a.Flags&addrDADFailed != 0: // made by the kernel, of no use, or for no one to rely on
		return
	case a.Flags&addrTentative != 0 && carrier: // without one it stays so
		h.Waits = true
		return
	case a.Valid != forever && isAddr6(a) && a.Prefix.Bits() == 64:
		h.Advertised = append(h.Advertised, a.Prefix)
	case a.Valid != forever && keepLeases:
		a.Valid, a.Preferred = forever, forever
	case a.Valid != forever:
		h.Leases = append(h.Leases, a)
		return
	}
	flags := a.Flags & addrNoPrefixRoute
	if a.NoRoute {
		flags |= addrNoPrefixRoute
	}
	if isAddr6(a) {
		flags |= addrNoDAD // it is this interface's already
	}
	a.Flags, a.Label = flags, ""
	h.Addrs, h.Full = append(h.Addrs, a.Prefix), append(h.Full, a)
}

// token is the interface identifier of an address.
func token(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	clear(b[:8])
	return netip.AddrFrom16(b)
}

// DEVCONF_* (include/uapi/linux/ipv6.h).
const (
	forwarding          = 0
	acceptRA            = 3
	routerSolicitations = 7
)

// acceptsRA says whether the kernel accepts router advertisements on a netdev (include/net/ipv6.h, ipv6_accept_ra).
func acceptsRA(n *device.Netdev) bool {
	c := n.IPv6Conf
	if len(c) <= routerSolicitations {
		return false
	}
	return c[acceptRA] == 2 || c[acceptRA] == 1 && c[forwarding] == 0
}

// advertisements returns the steps that let a netdev in the pod, which is down, take router advertisements as it did on
// the host, or as a program of the host did for it; and bring it up. It keeps the addresses that it had, and takes no
// default route: the first advertisement may come as soon as it is up.
func advertisements(was *device.Netdev, h *OnHost) []Step {
	conf := map[string]int32{"accept_ra": 0, "accept_ra_defrtr": 0}
	switch {
	case acceptsRA(was):
		conf["accept_ra"] = 2 // a pod may forward
		for _, c := range ipv6Conf {
			switch c.name {
			case "autoconf", "accept_ra_pinfo", "accept_ra_rt_info_min_plen", "accept_ra_rt_info_max_plen",
				"accept_ra_mtu", "accept_ra_min_hop_limit", "accept_ra_min_lft":
				if c.index < len(was.IPv6Conf) {
					conf[c.name] = was.IPv6Conf[c.index]
				}
			}
		}
	case len(h.Advertised) > 0:
		conf["accept_ra"], conf["autoconf"], conf["accept_ra_pinfo"] = 2, 1, 1
	}
	steps := []Step{SetLink{In: Pod, Attrs: Attrs{IPv6Conf: conf}}}
	if conf["accept_ra"] != 0 && h.Token.IsValid() {
		// By any rule that the addresses of the host were made (net/ipv6/addrconf.c, addrconf_prefix_rcv).
		steps = append(steps, SetLink{In: Pod, Attrs: Attrs{Token: h.Token}})
	}
	return append(steps, SetLink{In: Pod, Attrs: Attrs{Flags: device.FlagUp, Mask: device.FlagUp}})
}
