package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// key is what the ports of one fabric have in common.
type key struct {
	layer  device.LinkLayer
	rate   float64
	prefix device.SubnetPrefix
	sm     uint16 // one of the LIDs at which the subnet's manager was seen
}

// Group sorts ports into fabrics and rails.
//
// InfiniBand ports belong together if subnet prefix, subnet manager and rate agree. Neither prefix nor LID of the
// manager alone tells two subnets apart: nearly all use the prefix fe80:: and a subnet manager with LID 1 (opensm's
// defaults). Nor are two LIDs of managers two subnets: after a failover the manager is another host, and pictures of
// nodes are of different times; subnets says what is proof. The rate is no property of a subnet, but a collective runs
// at the pace of its slowest port, so that a NAD with both rates is no use. LIDs are unique within a subnet (IBTA 1.4,
// section 4.1.3): one that is seen twice proves two subnets.
//
// Ethernet ports belong together by rate; their IP subnets are the rails, unless they are routed.
func Group(ports []Port) Fabrics {
	ports = slices.Clone(ports)
	slices.SortFunc(ports, order)
	out := Fabrics{Fabrics: []Fabric{}}
	var usable []Port
	for _, p := range ports {
		if why := unusable(&p, p.Idle); why != "" {
			out.Left = append(out.Left, Left{p, why})
			continue
		}
		usable = append(usable, p)
	}
	found := subnets(usable)
	groups := map[key][]Port{}
	for _, p := range usable {
		k := key{layer: p.LinkLayer, rate: p.RateGb}
		if p.LinkLayer == device.InfiniBand {
			k.prefix, k.sm = p.Prefix, found.of(&p)
		}
		groups[k] = append(groups[k], p)
	}
	seen := map[key][]uint16{}
	for k := range groups {
		seen[k] = managers(groups[k])
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b key) int {
		return cmp.Or(
			-cmp.Compare(a.layer, b.layer),
			-cmp.Compare(a.rate, b.rate),
			cmp.Compare(a.prefix, b.prefix),
			cmp.Compare(seen[a][0], seen[b][0]),
		)
	})
	names := nameKeys(keys)
	for i, k := range keys {
		f := Fabric{Name: names[i], LinkLayer: k.layer, RateGb: k.rate, Prefix: k.prefix, SMLID: seen[k][0]}
		f.Reason = why(k, keys, names, seen)
		if k.layer == device.InfiniBand {
			f.moved(groups[k], seen[k])
			f.Warnings = append(f.Warnings, found.doubt(&f)...)
			f.infiniband(groups[k])
		} else {
			f.ethernet(groups[k])
		}
		out.Fabrics = append(out.Fabrics, f)
	}
	return out
}

// order is that of the hardware: node, PF, port, kind (PF before SF and VF), rail order of the functions.
func order(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), a.slot().Compare(b.slot()), cmp.Compare(a.Kind, b.Kind),
		device.Location{Address: a.Address, PCI: a.PCI}.Compare(device.Location{Address: b.Address, PCI: b.PCI}),
		natural(a.HCA, b.HCA), cmp.Compare(a.Port, b.Port))
}

// slot is the place of a port's hardware in its node: functions of one slot share the port.
type slot struct {
	at   device.Location
	port uint32
}

func (p *Port) slot() slot {
	at := device.Location{PCI: cmp.Or(p.Slot, p.PCI)}
	switch {
	case p.PCI == "" && !p.Address.IsZero():
		at = device.Location{Address: p.Address}
	case at.PCI == "":
		at.Address.Name = p.HCA
	}
	return slot{at, p.Port}
}

// Compare orders slots as rails are, the ports of one by their numbers.
func (s slot) Compare(t slot) int { return cmp.Or(s.at.Compare(t.at), cmp.Compare(s.port, t.port)) }

// String names the port of the slot, unless it is the first.
func (s slot) String() string {
	if s.port == 1 {
		return s.where()
	}
	return s.where() + "/" + utoa(s.port)
}

// where is the slot without its port, for people.
func (s slot) where() string { return cmp.Or(s.at.PCI, s.at.ID(), s.at.Address.Name) }

func slotsOf(set map[slot]bool) []slot { return slices.SortedFunc(maps.Keys(set), slot.Compare) }

// unusable tells why a port is in no fabric; empty: it is in one.
func unusable(p *Port, idle bool) string {
	carries := device.Port{State: p.State, LinkLayer: p.LinkLayer}.CarriesTraffic(idle)
	switch {
	case p.Kind == Soft:
		return softReason(p)
	case carries:
		return kept(p)
	case p.State == device.PortDown || p.State == device.PortNop:
		return "Down (physical state " + p.Phys.String() + "): " + downCause(p)
	case p.State == device.PortInit:
		return "Init: the link is up, but no subnet manager has configured the port"
	}
	return p.State.String() + ": carries no traffic yet"
}

// kept tells why a port that carries traffic is in no fabric.
func kept(p *Port) string {
	switch {
	case p.Bond != "":
		return "part of bond " + p.Bond + ": it carries the node's own traffic (storage, bootstrap); no rail of its own"
	case p.Primary:
		return "carries the node's default route: the node policy keeps it on the host"
	case p.LinkLayer != device.InfiniBand && p.LinkLayer != device.Ethernet:
		return "its link layer is unknown"
	}
	return p.Kept
}

// Inactive are the ports that are not Active now, with the reason: also idle ones of fabrics.
func (f *Fabrics) Inactive() []Left {
	out := slices.DeleteFunc(slices.Clone(f.Left), func(l Left) bool { return l.Port.State == device.PortActive })
	for i := range f.Fabrics {
		for _, r := range f.Fabrics[i].Rails {
			for _, p := range r.Ports {
				if p.State != device.PortActive {
					out = append(out, Left{p, unusable(&p, false)})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Left) int { return order(a.Port, b.Port) })
	return out
}

func softReason(p *Port) string {
	on := "a soft RDMA device (rxe, siw), without hardware"
	if p.Netdev != "" {
		on = "a soft RDMA device (rxe, siw) on " + p.Netdev + ", without hardware"
	}
	return on + ": no rail, it can't be given to a pod"
}

// downCause is what the physical state means, which depends on what the port is: only a VF has a link state
// that its PF
// sets, and a RoCE port follows its interface.
func downCause(p *Port) string {
	vf := p.Kind == "VF"
	switch {
	case p.Phys == device.PhysPolling || p.Phys == device.PhysSleep:
		return "no peer answers: cable, transceiver or switch port"
	case p.Phys == device.PhysDisabled && vf:
		return "disabled by the VF's link state, or its interface is down"
	case p.Phys == device.PhysLinkUp && vf:
		return "the link is up, the port is not: the VF's link state"
	case p.LinkLayer == device.Ethernet:
		return "its interface is down, or has no carrier: cable, transceiver or switch port"
	case p.Phys == device.PhysDisabled:
		return "disabled by the administrator (mlxlink, ibportstate), or by the firmware's configuration"
	case p.Phys == device.PhysLinkUp:
		return "the link is up, the port is not: the firmware or the driver hangs"
	}
	return "the link is not up"
}

// nameKeys gives each fabric a name that is short and says what a user looks for first.
func nameKeys(keys []key) []string {
	count := map[string]int{}
	names := make([]string, len(keys))
	for i, k := range keys {
		layer := "ib"
		if k.layer == device.Ethernet {
			layer = "roce"
		}
		names[i] = layer + "-" + strings.ReplaceAll(rate(k.rate), ".", "p") + "g"
		count[names[i]]++
	}
	next := map[string]int{}
	for i, n := range names {
		if count[n] > 1 {
			names[i] = n + "-" + letters(next[n])
			next[n]++
		}
	}
	return names
}

// letters counts a, b, ..., z, aa.
func letters(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return letters(i/26-1) + letters(i%26)
}

// why says what the ports have in common, and what keeps them apart from other fabrics. seen are the LIDs of the subnet
// managers that the ports of each fabric name.
func why(k key, all []key, names []string, seen map[key][]uint16) string {
	var b strings.Builder
	if k.layer == device.InfiniBand {
		fmt.Fprintf(&b, "InfiniBand, subnet prefix %s, subnet manager at %s, %s Gb/s", k.prefix, lids(seen[k]),
			rate(k.rate))
	} else {
		fmt.Fprintf(&b, "Ethernet, %s Gb/s", rate(k.rate))
	}
	for i, o := range all {
		if o == k || o.layer != k.layer {
			continue
		}
		var differ []string
		if o.prefix != k.prefix {
			differ = append(differ, "subnet prefix "+o.prefix.String())
		}
		if !slices.Equal(seen[o], seen[k]) {
			differ = append(differ, "subnet manager at "+lids(seen[o]))
		}
		if o.rate != k.rate {
			differ = append(differ, rate(o.rate)+" Gb/s")
		}
		fmt.Fprintf(&b, "; %s has %s", names[i], strings.Join(differ, ", "))
	}
	return b.String()
}

func rate(gb float64) string { return strconv.FormatFloat(gb, 'f', -1, 64) }

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// natural compares names whose numbers count as numbers: mlx5_2 before mlx5_10.
func natural(a, b string) int {
	x, y := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	if x != y {
		return cmp.Compare(a, b)
	}
	n, _ := strconv.Atoi(a[len(x):])
	m, _ := strconv.Atoi(b[len(y):])
	return cmp.Or(cmp.Compare(n, m), cmp.Compare(a, b))
}
