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
	more := slices.Clone(ipam.Addresses)
	for i := range more {
		more[i].Interface = index
	}
	out.Addresses = append(out.Addresses, missing(out.Addresses, more, func(a Address) Address { return a })...)
	out.Routes = append(out.Routes, missing(out.Routes, ipam.Routes, Route.key)...)
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

// routeKey is what makes two routes one.
type routeKey struct {
	Route
	table, scope       int
	hasTable, hasScope bool
}

func (r Route) key() routeKey {
	k := routeKey{Route: r, hasTable: r.Table != nil, hasScope: r.Scope != nil}
	if k.hasTable {
		k.table = *r.Table
	}
	if k.hasScope {
		k.scope = *r.Scope
	}
	k.Table, k.Scope = nil, nil
	return k
}

// missing lists what of more is not in list, each once and in its order. It takes time in proportion to both: who wrote
// them may have written many.
func missing[T any, K comparable](list, more []T, key func(T) K) []T {
	have := make(map[K]bool, len(list)+len(more))
	for _, v := range list {
		have[key(v)] = true
	}
	var out []T
	for _, v := range more {
		if k := key(v); !have[k] {
			have[k] = true
			out = append(out, v)
		}
	}
	return out
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
	return append(list, missing(list, more, func(s string) string { return s })...)
}
