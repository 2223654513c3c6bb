package topology

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// infiniband makes rails by the place of the hardware and looks for signs that they are subnets of their own.
func (f *Fabric) infiniband(ports []Port) {
	f.Rails = bySlot(ports)
	at := map[uint16]Port{}
	for _, p := range ports {
		if p.LID == 0 || p.Kind == "VF" || p.Kind == "SF" { // some firmware shows a VF with its PF's LID
			continue
		}
		if q, ok := at[p.LID]; ok && (q.Node != p.Node || q.slot() != p.slot()) {
			f.Planes = true
			f.Warnings = append(f.Warnings, fmt.Sprintf(
				"LID %d is on %s %s and on %s %s: LIDs are unique in a subnet, so these ports are in different "+
					"ones; the rails are taken for planes that do not reach each other",
				p.LID,
				q.Node,
				q.Name(),
				p.Node,
				p.Name(),
			))
			return
		}
		at[p.LID] = p
	}
}

// ethernet makes rails by IP subnet where nodes have the same subnets, by the place of the hardware otherwise.
func (f *Fabric) ethernet(ports []Port) {
	nets := map[netip.Prefix][]Port{}
	var bare []Port
	for _, p := range ports {
		if s, ok := subnet(&p); ok {
			nets[s] = append(nets[s], p)
		} else {
			bare = append(bare, p)
		}
	}
	shared := sharedSubnets(nets)
	f.Warnings = append(f.Warnings, shared...)
	how, mixed := "", ""
	if len(bare) == 0 {
		how, mixed = f.bySubnet(nets)
	}
	if len(nets) == 0 || len(bare) > 0 || len(shared) > 0 || how != "" || mixed != "" {
		f.Rails = bySlot(ports)
		if len(nets) > 0 && len(bare) > 0 {
			f.Warnings = append(
				f.Warnings,
				fmt.Sprintf(
					"%d of %d ports have no IP address, so rails go by the place of the hardware, not by subnet",
					len(bare),
					len(ports),
				),
			)
		}
		if f.Routed = how != ""; f.Routed {
			f.Reason += "; " + how
		} else if mixed != "" && len(shared) == 0 {
			f.Planes = true
			f.Warnings = append(f.Warnings, mixed)
		}
		return
	}
	subnets := slices.SortedFunc(maps.Keys(nets), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	f.Planes = len(subnets) > 1
	for i, s := range subnets {
		f.Rails = append(f.Rails, Rail{Index: i, Subnet: []netip.Prefix{s}, Ports: nets[s],
			Reason: "addresses in " + s.String()})
	}
}

// bySubnet says why the subnets can't be the rails; empty: they can. They are where a node has all of them, and where
// each is at one place of all nodes that have it. Nodes without a subnet in common reach each other by routers only,
// and a subnet of two addresses has room for a port and its switch. Then nothing says that rails are planes: a router
// that leads to other racks leads to other rails too, unless that is forbidden. mixed is of subnets that nodes share,
// but not in the same places.
func (f *Fabric) bySubnet(nets map[netip.Prefix][]Port) (how, mixed string) {
	const across = "routed, so rails go by the place of the hardware, and are taken to reach each other; where the " +
		"routers keep rails apart, set NCCL_CROSS_NIC=0"
	subnets := slices.SortedFunc(maps.Keys(nets), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	onNode := map[string]map[netip.Prefix]bool{}
	at, in := map[slot]map[netip.Prefix]bool{}, map[netip.Prefix]map[slot]bool{}
	for _, s := range subnets {
		nodes := map[string]bool{}
		for _, p := range nets[s] {
			nodes[p.Node] = true
			put(onNode, p.Node, s, true)
			put(at, p.slot(), s, true)
			put(in, s, p.slot(), true)
		}
		if pointToPoint(s) && len(nodes) == 1 { // with two they are cabled to each other
			return fmt.Sprintf("%s has room for a port and its switch only: %s", s, across), ""
		}
	}
	for _, list := range onNode {
		if len(list) == len(subnets) {
			return "", ""
		}
	}
	if first, other, apart := strangers(onNode, nets); apart {
		return fmt.Sprintf("%s and %s have no subnet in common: %s", first, other, across), ""
	}
	for _, place := range slices.SortedFunc(maps.Keys(at), slot.Compare) {
		if list := at[place]; len(list) > 1 {
			return "", fmt.Sprintf("no node has all %d subnets, so rails go by the place of the hardware, and at "+
				"one, %s, there are several: %s; an address or a cable is wrong, or they are routed", len(subnets),
				place, few(texts(list)))
		}
	}
	for _, s := range subnets {
		if list := in[s]; len(list) > 1 {
			var places []string
			for _, place := range slotsOf(list) {
				places = append(places, place.String())
			}
			return "", fmt.Sprintf("no node has all %d subnets, so rails go by the place of the hardware, and %s "+
				"is at several: %s; an address or a cable is wrong, or the nodes are of different make", len(subnets),
				s, few(places))
		}
	}
	return "", ""
}

// pointToPoint reports whether a subnet has two addresses at the most.
func pointToPoint(s netip.Prefix) bool {
	const two, four = 1, 2 // bits; of four IPv4 addresses hosts have two
	if s.Addr().Is4() {
		return s.Addr().BitLen()-s.Bits() <= four
	}
	return s.Addr().BitLen()-s.Bits() <= two
}

func texts(list map[netip.Prefix]bool) []string {
	out := map[string]bool{}
	for s := range list {
		out[s.String()] = true
	}
	return sorted(out)
}

// strangers are two nodes that no chain of subnets in common connects.
func strangers(onNode map[string]map[netip.Prefix]bool, nets map[netip.Prefix][]Port) (a, b string, apart bool) {
	nodes := slices.Sorted(maps.Keys(onNode))
	reached := map[string]bool{nodes[0]: true}
	seen := map[netip.Prefix]bool{}
	for list := []string{nodes[0]}; len(list) > 0; list = list[1:] {
		for s := range onNode[list[0]] {
			if seen[s] {
				continue
			}
			seen[s] = true
			for _, p := range nets[s] {
				if !reached[p.Node] {
					reached[p.Node] = true
					list = append(list, p.Node)
				}
			}
		}
	}
	for _, n := range nodes {
		if !reached[n] {
			return nodes[0], n, true
		}
	}
	return "", "", false
}

// subnet is the first global IP subnet of a port.
func subnet(p *Port) (netip.Prefix, bool) {
	for _, a := range p.Addrs {
		if a.IsValid() && !a.Addr().IsLinkLocalUnicast() && !a.Addr().IsLoopback() {
			return a.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// sharedSubnets reports nodes with two ports in one subnet: the kernel answers ARP for either address on either port,
// and sends everything through one of them.
func sharedSubnets(nets map[netip.Prefix][]Port) (warnings []string) {
	for s, ports := range nets {
		on := map[string][]string{}
		for _, p := range ports {
			if p.Kind != "VF" && p.Kind != "SF" {
				on[p.Node] = append(on[p.Node], cmp.Or(p.Netdev, p.Name()))
			}
		}
		for node, names := range on {
			if len(names) > 1 {
				warnings = append(
					warnings,
					fmt.Sprintf(
						"node %s has %s in one subnet, %s: traffic of all leaves through one of them; give each "+
							"rail its own subnet, or set \"routing\": {\"sourceBased\": true}",
						node,
						strings.Join(names, ", "),
						s,
					),
				)
			}
		}
	}
	slices.Sort(warnings)
	return warnings
}

// bySlot makes rails by PCI address where one node has every place that any node has: then a port that is down on one
// node does not shift the rails behind it. Otherwise (nodes of different make, or one port of two is cabled and not the
// same one everywhere) the n-th port of a node is rail n.
func bySlot(ports []Port) []Rail {
	all, perNodePrefixLength := map[slot]bool{}, map[string]map[slot]bool{}
	most := 0
	for _, p := range ports {
		all[p.slot()] = true
		put(perNodePrefixLength, p.Node, p.slot(), true)
		most = max(most, len(perNodePrefixLength[p.Node]))
	}
	places := map[string][]slot{}
	for node, slots := range perNodePrefixLength {
		places[node] = slotsOf(slots)
	}
	index := func(p *Port) (int, string) {
		i, _ := slices.BinarySearchFunc(places[p.Node], p.slot(), slot.Compare)
		return i, fmt.Sprintf("port %d of each node, in PCI order, that is Active in this fabric", i+1) // nodes differ
	}
	if most == len(all) {
		places := slotsOf(all)
		where := "in PCI order: "
		if len(perNodePrefixLength) > 1 {
			where = "the same place in every node: "
		}
		index = func(p *Port) (int, string) {
			i, _ := slices.BinarySearchFunc(places, p.slot(), slot.Compare)
			return i, fmt.Sprintf("%s%s port %d", where, places[i].where(), places[i].port)
		}
	}
	rails := make([]Rail, most)
	for _, p := range ports {
		i, why := index(&p)
		r := &rails[i]
		r.Index, r.Reason = i, why
		r.Ports = append(r.Ports, p)
		if s, ok := subnet(&p); ok && !slices.Contains(r.Subnet, s) {
			r.Subnet = append(r.Subnet, s)
		}
	}
	return rails
}
