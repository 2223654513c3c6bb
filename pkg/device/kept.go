package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Kept is what a netdev has beside its name, addresses and routes. The first four stay on a netdev through every move
// between namespaces, so what a pod has changed returns to the host with it; the others are lost by a move, so what the
// host had has to be made again (kernel facts 30 and 31). A map or pointer that is nil means: not read, leave it.
type Kept struct {
	Attrs    map[LinkAttr]uint32 `json:"attrs,omitzero"`
	Programs []Program           `json:"programs,omitempty"`
	Features *Features           `json:"features,omitempty"`
	Queues   map[string]string   `json:"queues,omitzero"` // by path below /sys/class/net/NAME; what is 0 is left out

	Sysctls    map[string]string `json:"sysctls,omitzero"` // by path below /proc/sys/net, with % for the name
	Qdiscs     []Qdisc           `json:"qdiscs,omitempty"` // the configured ones
	Neighbours []Neighbour       `json:"neighbours,omitempty"`
	Nexthops   []Nexthop         `json:"nexthops,omitempty"`
}

// StableSecret is the sysctl that IPv6 makes addresses of in the modes stable-privacy and random. A netdev loses it
// when it moves; without it, it can't be set to the first and gets another address in the second (net/ipv6/addrconf.c,
// check_stable_privacy and ipv6_gen_mode_random_init).
const StableSecret = "ipv6/conf/%/stable_secret"

// Modes of IPv6 addresses (include/uapi/linux/if_link.h, IN6_ADDR_GEN_MODE_*).
const (
	StablePrivacy uint8 = 2
	randomSecret  uint8 = 3
)

// NeedsStableSecret says whether the netdev's IPv6 addresses are made of a secret.
func (n *Netdev) NeedsStableSecret() bool {
	return n.AddrGenMode == StablePrivacy || n.AddrGenMode == randomSecret
}

// LinkAttr is a number that rtnetlink sets on a netdev and that a move keeps, as "ip link" calls it.
type LinkAttr string

// The attributes. Setting the size for all families sets that for IPv4 as well, where it is small enough for it
// (net/core/dev.h, netif_set_gso_max_size): those come last.
const (
	LinkMode       LinkAttr = "mode"
	GSOMaxSize     LinkAttr = "gso_max_size"
	GSOMaxSegs     LinkAttr = "gso_max_segs"
	GROMaxSize     LinkAttr = "gro_max_size"
	GSOIPv4MaxSize LinkAttr = "gso_ipv4_max_size"
	GROIPv4MaxSize LinkAttr = "gro_ipv4_max_size"
)

// linkAttr is a row of the table of attributes. A new one is a row here, and one in internal/link.
type linkAttr struct {
	name LinkAttr
	sets LinkAttr // another attribute that the kernel changes along with it; empty: none
}

var linkAttrs = []linkAttr{
	{LinkMode, ""},
	{GSOMaxSize, GSOIPv4MaxSize},
	{GSOMaxSegs, ""},
	{GROMaxSize, GROIPv4MaxSize},
	{GSOIPv4MaxSize, ""},
	{GROIPv4MaxSize, ""},
}

// LinkAttrsToSet lists the attributes in which have differs from want, in the order in which they are set. What either
// does not have is left alone.
func LinkAttrsToSet(want, have map[LinkAttr]uint32) []LinkAttr {
	var out []LinkAttr
	var also []LinkAttr
	for _, r := range linkAttrs {
		w, ok := want[r.name]
		h, known := have[r.name]
		if !ok || !known || w == h && !slices.Contains(also, r.name) {
			continue
		}
		out = append(out, r.name)
		also = append(also, r.sets)
	}
	return out
}

// Text is the attribute as "ip link set" spells it.
func (a LinkAttr) Text(v uint32) string {
	if a == LinkMode && v <= 1 {
		return "mode " + name(int(v), "default", "dormant")
	}
	return fmt.Sprintf("%s %d", a, v)
}

// Program is a BPF program on a netdev: every packet goes through it.
type Program struct {
	Hook Hook   `json:"hook"`
	ID   uint32 `json:"id"`
	Link uint32 `json:"link,omitempty"` // id of the BPF link that holds it there; 0: none, or not known
}

// Hook is where a program is, as ip and bpftool call it.
type Hook string

// The hooks.
const (
	XDPDriver  Hook = "xdpdrv"
	XDPGeneric Hook = "xdpgeneric"
	XDPOffload Hook = "xdpoffload"
	TCXIngress Hook = "tcx_ingress"
	TCXEgress  Hook = "tcx_egress"
)

// IsXDP says whether the hook is one of XDP's.
func (h Hook) IsXDP() bool { return strings.HasPrefix(string(h), "xdp") }

func (p Program) String() string { return fmt.Sprintf("%s program %d", p.Hook, p.ID) }

// Features are the offloads of a netdev as ETHTOOL_GFEATURES reports them, 32 to a word. Bits and names are those of
// the running kernel.
type Features struct {
	Can    []uint32 `json:"can"`    // those that can be changed
	Wanted []uint32 `json:"wanted"` // those of them that are asked for
	Names  []string `json:"-"`      // by bit, as "ethtool -k" prints them
}

// Differing returns the bits in which have differs from want, of those that can be changed in both.
func (want *Features) Differing(have *Features) []int {
	if want == nil || have == nil {
		return nil
	}
	var out []int
	for i := range min(len(want.Can), len(want.Wanted), len(have.Can), len(have.Wanted)) {
		diff := (want.Wanted[i] ^ have.Wanted[i]) & want.Can[i] & have.Can[i]
		for b := range 32 {
			if diff&(1<<b) != 0 {
				out = append(out, 32*i+b)
			}
		}
	}
	return out
}

// On says whether the feature is asked for.
func (want *Features) On(bit int) bool {
	return bit/32 < len(want.Wanted) && want.Wanted[bit/32]&(1<<(bit%32)) != 0
}

// Name is what ethtool calls the feature.
func (want *Features) Name(bit int) string {
	if bit < len(want.Names) && want.Names[bit] != "" {
		return want.Names[bit]
	}
	return fmt.Sprintf("feature-%d", bit)
}

// Qdisc is a configured queueing discipline of a netdev. Those that the kernel puts there by itself have the handle 0.
type Qdisc struct {
	Kind    string `json:"kind"`
	Handle  uint32 `json:"handle"`
	Parent  uint32 `json:"parent"`
	Filters bool   `json:"filters,omitempty"` // it has some
	Classes bool   `json:"classes,omitempty"` // configured ones
	Raw     []byte `json:"raw"`               // RTM_NEWQDISC without statistics, replayed on return
}

// Where a qdisc is (include/uapi/linux/pkt_sched.h): TC_H_ROOT, TC_H_INGRESS.
const (
	qdiscRoot    = 0xffffffff
	qdiscIngress = 0xfffffff1
)

// String is the qdisc as "tc qdisc" spells it, without its netdev and options.
func (q Qdisc) String() string {
	switch q.Parent {
	case qdiscRoot:
		return fmt.Sprintf("root handle %x: %s", q.Handle>>16, q.Kind)
	case qdiscIngress:
		return q.Kind
	}
	return fmt.Sprintf("parent %x:%x handle %x: %s", q.Parent>>16, q.Parent&0xffff, q.Handle>>16, q.Kind)
}

// Neighbour is a configured entry in the table of neighbours: it does not age.
type Neighbour struct {
	Dst    netip.Addr       `json:"dst"`
	LLAddr net.HardwareAddr `json:"lladdr,omitempty"`
	Proxy  bool             `json:"proxy,omitempty"` // answered for, on behalf of another host
	Raw    []byte           `json:"raw"`             // the whole RTM_NEWNEIGH payload, replayed on return
}

// String is the entry as "ip neigh add" spells it, without its netdev.
func (n Neighbour) String() string {
	if n.Proxy {
		return "proxy " + n.Dst.String()
	}
	return n.Dst.String() + " lladdr " + n.LLAddr.String() + " nud permanent"
}

// Nexthop is a nexthop object through a netdev.
type Nexthop struct {
	ID  uint32     `json:"id"`
	Via netip.Addr `json:"via,omitzero"`
	Raw []byte     `json:"raw"` // the whole RTM_NEWNEXTHOP payload, replayed on return
}

// String is the object as "ip nexthop add" spells it, without its netdev.
func (n Nexthop) String() string {
	if n.Via.IsValid() {
		return fmt.Sprintf("id %d via %s", n.ID, n.Via)
	}
	return fmt.Sprintf("id %d", n.ID)
}

// FilesToSet returns the files whose content in have differs from want. Of a nil map nothing is known. absent is the
// content of a file that is not in a map; empty: such a file is left alone.
func FilesToSet(want, have map[string]string, absent string) map[string]string {
	if want == nil || have == nil {
		return nil
	}
	out := map[string]string{}
	for file, h := range have {
		w, ok := want[file]
		if !ok {
			w = absent
		}
		if w != h && w != "" {
			out[file] = w
		}
	}
	if absent != "" {
		for file, w := range want {
			if _, ok := have[file]; !ok {
				out[file] = w
			}
		}
	}
	return out
}
