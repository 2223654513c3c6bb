package result

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Extend is the result of one attachment. It starts with everything in prev (nil outside a chain), unchanged and in its
// order, and adds no more than what was done:
//   - iface, unless prev has an interface of that name in that sandbox: then only the non-zero fields of iface replace
//     those of prev, since they were seen later (the hardware address of an IPoIB netdev changes when its RDMA device
//     moves). An iface without a name adds nothing;
//   - the addresses and routes of IPAM, on that interface, unless prev has the same;
//   - DNS, merged by MergeDNS in the order conf, prev, IPAM.
//
// No argument is changed, and the result shares no slice with them.
func Extend(prev *Result, iface Interface, ipam *Result, conf netconf.DNS) *Result {
	out := &Result{}
	if prev != nil {
		out.Interfaces = slices.Clone(prev.Interfaces)
		out.Addresses = slices.Clone(prev.Addresses)
		out.Routes = slices.Clone(prev.Routes)
		out.DNS = prev.DNS
	}
	index := out.put(iface)
	if ipam == nil {
		ipam = &Result{}
	}
	for _, a := range ipam.Addresses {
		if a.Interface = index; !slices.Contains(out.Addresses, a) {
			out.Addresses = append(out.Addresses, a)
		}
	}
	for _, r := range ipam.Routes {
		if !slices.ContainsFunc(out.Routes, r.equal) {
			out.Routes = append(out.Routes, r)
		}
	}
	out.DNS = MergeDNS(conf, out.DNS, ipam.DNS)
	return out
}

// put tells the index of the interface, or NoInterface for one without a name.
func (r *Result) put(f Interface) int {
	if f.Name == "" {
		return NoInterface
	}
	i := slices.IndexFunc(r.Interfaces, func(g Interface) bool { return g.Name == f.Name && g.Sandbox == f.Sandbox })
	if i < 0 {
		r.Interfaces = append(r.Interfaces, f)
		return len(r.Interfaces) - 1
	}
	g := &r.Interfaces[i]
	if f.MAC != "" {
		g.MAC = f.MAC
	}
	if f.MTU != 0 {
		g.MTU = f.MTU
	}
	if f.SocketPath != "" {
		g.SocketPath = f.SocketPath
	}
	if f.PCIID != "" {
		g.PCIID = f.PCIID
	}
	return i
}

func (r Route) equal(o Route) bool {
	same := func(a, b *int) bool { return a == b || (a != nil && b != nil && *a == *b) }
	table, scope := same(r.Table, o.Table), same(r.Scope, o.Scope)
	r.Table, r.Scope, o.Table, o.Scope = nil, nil, nil, nil
	return table && scope && r == o
}

// MergeDNS is the union of the lists, in order and without duplicates, and the first domain that is set. A resolver
// tries servers and search domains in the order given, so the most specific source comes first.
func MergeDNS(sources ...netconf.DNS) netconf.DNS {
	var out netconf.DNS
	for _, s := range sources {
		out.Nameservers = union(out.Nameservers, s.Nameservers)
		out.Search = union(out.Search, s.Search)
		out.Options = union(out.Options, s.Options)
		if out.Domain == "" {
			out.Domain = s.Domain
		}
	}
	return out
}

func union(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
