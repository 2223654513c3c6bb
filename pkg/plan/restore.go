package plan

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// RestoreMinMTU returns the step that has to come before a netdev is compared with its snapshot: below 1280 bytes, the
// least that IPv6 works with, the kernel removes all IPv6 settings and rejects new ones (net/ipv6/addrconf.c,
// addrconf_notify and inet6_validate_link_af).
func RestoreMinMTU(side Side, was, have *device.Netdev) []Step {
	const least = 1280
	if have.MTU >= least || was.MTU < least {
		return nil
	}
	return []Step{SetLink{In: side, Attrs: Attrs{MTU: was.MTU}}}
}

// Restore returns the steps that give a netdev (have) back everything that its snapshot (was) holds. elapsed is how
// long ago the snapshot was taken, in seconds: addresses with a lifetime have aged. Addresses and routes that have come
// since are left alone: they are not ours.
func Restore(side Side, was, have *device.Netdev, elapsed uint32) []Step {
	steps := dropPrograms(side, was, have) // before it can come up
	up := have.Up()
	if extra := extraNames(was, have); len(extra) > 0 {
		steps = append(steps, AltNames{In: side, Del: extra})
	}
	// Before 6.2 a netdev that is up can't be renamed, and a link-local address is made when it comes up, by its mode
	// then. See kernel facts 13 and 15.
	mac := !was.IsIPoIB() && len(was.HWAddr) > 0 &&
		!bytes.Equal(was.HWAddr, have.HWAddr) // in IPoIB it is a queue pair's
	if up && (have.Name != was.Name || have.AddrGenMode != was.AddrGenMode || mac) {
		steps = append(steps, SetLink{In: side, Attrs: Attrs{Mask: device.FlagUp}})
		up = false
		have = without(have, isAddr6) // they go with it, as routes do
	}
	if have.Name != was.Name {
		steps = append(steps, SetLink{In: side, Attrs: Attrs{Name: was.Name}})
	}
	if add := missingNames(was.AltNames, &device.Netdev{Name: was.Name, AltNames: have.AltNames}); len(add) > 0 {
		steps = append(steps, AltNames{In: side, Add: add})
	}
	if mac { // alone: a driver that refuses must not hold up the rest
		steps = append(steps, SetLink{In: side, Attrs: Attrs{HWAddr: was.HWAddr}})
	}
	a := restoredAttrs(was, have)
	if !a.isZero() {
		steps = append(steps, SetLink{In: side, Attrs: a})
	}
	if t := was.Token; t.IsValid() && t != have.Token && acceptsRA(was) { // else the kernel refuses it
		steps = append(steps, SetLink{In: side, Attrs: Attrs{Token: t}})
	}
	steps = append(steps, keptDown(side, was, have)...)
	if !up && was.Up() {
		steps = append(steps, early6(side, have)...)
		have = without(have, isAddr6)
	}
	if up != was.Up() { // last: with the settings it comes up with, IPv6 makes its link-local address
		steps = append(steps, SetLink{In: side, Attrs: Attrs{Flags: was.Flags & device.FlagUp, Mask: device.FlagUp}})
		if up {
			have = without(have, isAddr6)
		}
	}
	late := lateAddrs(was, have)
	for _, a := range slices.Backward(late) {
		steps = append(steps, DelAddr{In: side, Addr: a})
	}
	if len(late) > 0 { // routes go with the addresses they name
		have = without(have, func(a device.Addr) bool { return hasAddr(late, a) })
	}
	steps = append(steps, restoredAddrs(side, was, have, elapsed)...)
	steps = append(steps, extraRoutes(side, was, have)...)
	steps = append(steps, restoredNexthops(side, was, have)...)
	steps = append(steps, restoredRoutes(side, was, have, elapsed)...)
	return append(steps, keptUp(side, was, have)...)
}

func extraNames(was, have *device.Netdev) []string {
	var out []string
	for _, n := range have.AltNames {
		if !slices.Contains(was.AltNames, n) {
			out = append(out, n)
		}
	}
	return out
}

func restoredAttrs(was, have *device.Netdev) Attrs {
	a := Attrs{
		Alias:   differs(was.Alias, have.Alias),
		TxQueue: differs(was.TxQueue, have.TxQueue),
		Group:   differs(was.Group, have.Group),
	}
	if was.MTU != have.MTU {
		a.MTU = was.MTU
	}
	if was.IPoIB != nil && have.IPoIB != nil {
		a.Mode = differs(was.IPoIB.Mode, have.IPoIB.Mode)
		a.Umcast = differs(was.IPoIB.Umcast, have.IPoIB.Umcast)
		if a.Mode != nil {
			a.MTU = was.MTU // a new mode brings its own
		}
	}
	// All that can be set but up (net/core/dev.c, __dev_change_flags); a move keeps them.
	const kept = device.FlagPromisc | device.FlagAllMulti | device.FlagNoARP | device.FlagMulticast |
		device.FlagDynamic | device.FlagDebug | device.FlagNoTrailers | device.FlagPortSel | device.FlagAutoMedia
	if a.Mask = (was.Flags ^ have.Flags) & kept; a.Mask != 0 {
		a.Flags = was.Flags & a.Mask
	}
	a.IPv4Conf, a.IPv6Conf = confDiff(was, have)
	return a
}

const forever = ^uint32(0)

// early6 removes the IPv6 addresses of a netdev that is down and is to come up: the kernel makes the multicast route of
// a netdev with the first address that comes when it is up, or else only when it has a carrier (net/ipv6/addrconf.c,
// addrconf_add_dev). A way back that could not raise the netdev has left them.
func early6(side Side, have *device.Netdev) []Step {
	var steps []Step
	for _, a := range have.Addrs {
		if isAddr6(a) {
			steps = append(steps, DelAddr{In: side, Addr: a})
		}
	}
	return steps
}

// lateAddrs returns the addresses that are back before an earlier one, which an interrupted return leaves. The first
// IPv4 address of a subnet is its primary, from which the kernel sends; IPv6 has an order within each scope. A netdev
// that is renamed with its addresses on it has other IPv4 labels afterwards (net/ipv4/devinet.c, inetdev_changename),
// so that all of those are late.
func lateAddrs(was, have *device.Netdev) []device.Addr {
	var late []device.Addr
	for i, a := range was.Addrs {
		if !hasAddr(have.Addrs, a) {
			continue
		}
		at := addrAt(have.Addrs, a)
		tooLate := func(b device.Addr) bool { // b is missing, or back only after a
			if isAddr6(a) != isAddr6(b) || rank(a) != rank(b) {
				return false
			}
			is := addrAt(have.Addrs, b)
			return is < 0 || is > at == !isAddr6(a)
		}
		earlier := was.Addrs[:i]
		if isAddr6(a) {
			earlier = was.Addrs[i+1:] // youngest first, see inOrder
		}
		if !isAddr6(a) && have.Name != was.Name || slices.ContainsFunc(earlier, tooLate) {
			late = append(late, a)
		}
	}
	return withSecondaries(was, have, late)
}

// withSecondaries adds the addresses that go with others that are removed: those of a subnet with its primary, unless
// promote_secondaries is set (net/ipv4/devinet.c, __inet_del_ifa).
func withSecondaries(was, have *device.Netdev, late []device.Addr) []device.Addr {
	goes := func(a device.Addr) bool {
		at := addrAt(have.Addrs, a)
		return hasAddr(late, a) || at >= 0 && !isAddr6(a) && slices.ContainsFunc(late, func(l device.Addr) bool {
			return !isAddr6(l) && rank(l) == rank(a) && addrAt(have.Addrs, l) < at
		})
	}
	return slices.DeleteFunc(slices.Clone(was.Addrs), func(a device.Addr) bool { return !goes(a) })
}

// rank is what the kernel keeps the addresses of a netdev in order within: the subnet in IPv4, the scope in IPv6.
func rank(a device.Addr) any {
	if isAddr6(a) {
		return a.Scope
	}
	return a.Prefix.Masked()
}

// without is a netdev that has lost its routes and those addresses.
func without(n *device.Netdev, lost func(device.Addr) bool) *device.Netdev {
	left := *n
	left.Addrs, left.Routes = slices.DeleteFunc(slices.Clone(n.Addrs), lost), nil
	return &left
}

func isAddr6(a device.Addr) bool { return a.Prefix.Addr().Is6() }

func hasAddr(list []device.Addr, a device.Addr) bool { return addrAt(list, a) >= 0 }

// addrAt is the place of an address in a list, -1 if it is not there.
func addrAt(list []device.Addr, a device.Addr) int {
	return slices.IndexFunc(list, func(h device.Addr) bool { return h.Prefix == a.Prefix })
}

// inOrder are addresses in the order in which they came: the kernel lists IPv4 with the oldest first, IPv6 with the
// youngest first (net/ipv6/addrconf.c, ipv6_link_dev_addr), and the first is the one it prefers.
func inOrder(list []device.Addr) []device.Addr {
	v4 := slices.DeleteFunc(slices.Clone(list), isAddr6)
	v6 := slices.DeleteFunc(slices.Clone(list), func(a device.Addr) bool { return !isAddr6(a) })
	slices.Reverse(v6)
	return append(v4, v6...)
}

// restoredAddrs adds the addresses that are missing.
func restoredAddrs(side Side, was, have *device.Netdev, elapsed uint32) []Step {
	var steps []Step
	for _, a := range inOrder(was.Addrs) {
		if hasAddr(have.Addrs, a) || ofSecret(was, a) {
			continue
		}
		if a.Valid != forever {
			if a.Valid <= elapsed {
				continue // it has run out meanwhile
			}
			a.Valid -= elapsed
		}
		if a.Preferred != forever {
			a.Preferred -= min(a.Preferred, elapsed)
		}
		steps = append(steps, AddAddr{In: side, Addr: a})
	}
	return steps
}

// ofSecret says whether IPv6 makes the address by itself as the netdev comes up, out of the secret that is back by
// then: only the kernel can mark it as such.
func ofSecret(was *device.Netdev, a device.Addr) bool {
	const stablePrivacy = 0x800 // IFA_F_STABLE_PRIVACY
	return was.Up() && a.Scope == scopeLink && a.Flags&stablePrivacy != 0 && was.Kept.Sysctls[device.StableSecret] != ""
}

// extraRoutes removes the routes that the kernel makes with addresses which had none on the host. A route that another
// address of the same prefix has stays.
func extraRoutes(side Side, was, have *device.Netdev) []Step {
	var steps []Step
	var done []netip.Prefix
	for i := range was.Addrs {
		a := &was.Addrs[i]
		dst := a.RoutePrefix()
		shared := func(b device.Addr) bool { return !b.NoRoute && b.RoutePrefix() == dst }
		bare := func(b device.Addr) bool { return b.NoRoute && b.Prefix == a.Prefix }
		if !a.NoRoute || slices.Contains(done, dst) || slices.ContainsFunc(was.Addrs, shared) ||
			slices.ContainsFunc(have.Addrs, bare) {
			continue
		}
		done = append(done, dst)
		r := device.Route{Dst: dst, Table: tableMain, Protocol: protoKernel, Type: typeUnicast, Priority: a.Metric}
		if !isAddr6(*a) {
			r.Scope = scopeLink
		}
		steps = append(steps, DelRoute{In: side, Route: r})
	}
	return steps
}

func restoredRoutes(side Side, was, have *device.Netdev, elapsed uint32) []Step {
	if !was.Up() {
		return nil // there can't have been any
	}
	routes := slices.Clone(was.Routes)
	slices.SortStableFunc(routes, func(a, b device.Route) int { // a gateway must be reachable before it is named
		return cmp.Compare(reach(a), reach(b))
	})
	var steps []Step
	for _, r := range routes {
		if r.Multipath || slices.ContainsFunc(have.Routes, func(h device.Route) bool { return sameRoute(h, r) }) {
			continue
		}
		if r.Expires != 0 {
			if r.Expires <= elapsed {
				continue // it has run out meanwhile
			}
			r.Expires -= elapsed
		}
		steps = append(steps, AddRoute{In: side, Route: r})
	}
	return steps
}

func reach(r device.Route) int {
	if r.Gateway.IsValid() {
		return 1
	}
	return 0
}

func sameRoute(a, b device.Route) bool {
	return a.Dst == b.Dst && a.Gateway == b.Gateway && a.Table == b.Table && a.Priority == b.Priority && a.TOS == b.TOS
}
