package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Netdev is the network face of a device as the kernel shows it in one network namespace, with all that a move between
// namespaces loses and a return has to bring back.
type Netdev struct {
	Index    int      `json:"index"`
	Name     string   `json:"name"`
	AltNames []string `json:"altNames,omitempty"`
	Alias    string   `json:"alias,omitempty"`
	Kind     string   `json:"kind,omitempty"` // IFLA_INFO_KIND: "ipoib", "veth"; empty for most hardware
	ARPType  uint16   `json:"arpType"`        // ARPHRD_*: 1 Ethernet, 32 InfiniBand

	HWAddr    net.HardwareAddr `json:"hwAddr,omitempty"` // 6 bytes, or 20 for IPoIB
	PermAddr  net.HardwareAddr `json:"permAddr,omitempty"`
	PortName  string           `json:"portName,omitempty"` // IFLA_PHYS_PORT_NAME: "p0", "pf0vf3" for a representor
	Broadcast net.HardwareAddr `json:"broadcast,omitempty"`

	MTU      int    `json:"mtu"`
	TxQueue  int    `json:"txQueue"`
	Flags    uint32 `json:"flags"` // IFF_*
	Carrier  bool   `json:"carrier,omitempty"`
	Group    uint32 `json:"group,omitempty"`
	Master   int    `json:"master,omitempty"`   // ifindex of the bond, bridge or VRF it is enslaved to
	Parent   int    `json:"parent,omitempty"`   // IFLA_LINK: ifindex of an IPoIB child's parent, in its namespace
	ParentIn *int   `json:"parentIn,omitempty"` // IFLA_LINK_NETNSID when the parent is in another namespace

	Address Address `json:"address,omitzero"` // the bus address of the hardware behind it
	IPoIB   *IPoIB  `json:"ipoib,omitempty"`

	AddrGenMode uint8    `json:"addrGenMode"` // IN6_ADDR_GEN_MODE_*
	IPv4Conf    []uint32 `json:"ipv4Conf,omitempty"`
	IPv6Conf    []int32  `json:"ipv6Conf,omitempty"`
	// Token is the interface identifier, in the lower 64 bits, that addresses from router advertisements are made with
	// (ip token); zero: another one.
	Token netip.Addr `json:"token,omitzero"`

	Addrs  []Addr  `json:"addrs,omitempty"`
	Routes []Route `json:"routes,omitempty"`
	Kept   Kept    `json:"kept,omitzero"`
}

// IPoIB holds the settings that only an IPoIB netdev has.
type IPoIB struct {
	PKey   PKey   `json:"pkey"`
	Mode   uint16 `json:"mode"` // 0 datagram, 1 connected (IPOIB_MODE_*, include/uapi/linux/if_link.h)
	Umcast uint16 `json:"umcast"`
}

// Modes of an IPoIB netdev.
const (
	ModeDatagram  uint16 = 0
	ModeConnected uint16 = 1
)

// Flags of a netdev that a return restores (include/uapi/linux/if.h).
const (
	FlagUp         uint32 = 0x1
	FlagDebug      uint32 = 0x4
	FlagLoopback   uint32 = 0x8
	FlagNoTrailers uint32 = 0x20
	FlagNoARP      uint32 = 0x80
	FlagPromisc    uint32 = 0x100
	FlagAllMulti   uint32 = 0x200
	FlagMulticast  uint32 = 0x1000
	FlagPortSel    uint32 = 0x2000
	FlagAutoMedia  uint32 = 0x4000
	FlagDynamic    uint32 = 0x8000
)

// Up says whether the administrator has it up.
func (n *Netdev) Up() bool { return n.Flags&FlagUp != 0 }

// IsIPoIB recognises a netdev of InfiniBand link type.
func (n *Netdev) IsIPoIB() bool { return n.ARPType == 32 }

// IsIPoIBChild recognises an IPoIB netdev created on top of another one.
func (n *Netdev) IsIPoIBChild() bool { return n.IsIPoIB() && n.Parent != 0 }

// Named says whether name is the netdev's name or one of its altnames.
func (n *Netdev) Named(name string) bool { return n.Name == name || slices.Contains(n.AltNames, name) }

// Addr is an address on a netdev.
type Addr struct {
	Prefix    netip.Prefix `json:"prefix"` // address and prefix length
	Peer      netip.Addr   `json:"peer,omitzero"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	Flags     uint32       `json:"flags,omitempty"` // IFA_F_*
	Scope     uint8        `json:"scope,omitempty"`
	Valid     uint32       `json:"valid"`     // seconds; ^0 for ever
	Preferred uint32       `json:"preferred"` // seconds; ^0 for ever
	Metric    uint32       `json:"metric,omitempty"`
	Proto     uint8        `json:"proto,omitempty"`
	// NoRoute says that there is no route to its prefix, which the kernel makes when the address is added: one that the
	// kernel has learnt from a router advertisement has none if the prefix is not on the link, or it was removed.
	NoRoute bool `json:"noRoute,omitempty"`
}

// RoutePrefix is what the kernel makes a route to when the address is added: the prefix of its peer, or its own.
func (a *Addr) RoutePrefix() netip.Prefix {
	p := a.Prefix
	if a.Peer.IsValid() {
		p = netip.PrefixFrom(a.Peer, p.Bits())
	}
	return p.Masked()
}

// Route is a route through a netdev.
type Route struct {
	Dst      netip.Prefix `json:"dst"` // 0.0.0.0/0 or ::/0 for the default route
	Gateway  netip.Addr   `json:"gateway,omitzero"`
	Src      netip.Addr   `json:"src,omitzero"` // preferred source
	Table    uint32       `json:"table"`
	Priority uint32       `json:"priority,omitempty"`
	Protocol uint8        `json:"protocol"`
	Scope    uint8        `json:"scope"`
	Type     uint8        `json:"type"`
	TOS      uint8        `json:"tos,omitempty"`
	Expires  uint32       `json:"expires,omitempty"` // seconds; 0: never. IPv6 only
	Flags    uint32       `json:"flags,omitempty"`   // RTNH_F_ONLINK
	MTU      uint32       `json:"mtu,omitempty"`
	AdvMSS   uint32       `json:"advmss,omitempty"`
	// Multipath marks a route that has other ways beside this netdev. It is not this netdev's to restore.
	Multipath bool   `json:"multipath,omitempty"`
	Raw       []byte `json:"raw,omitempty"` // the whole RTM_NEWROUTE payload, replayed on return
}

// String is the route as `ip route` spells it, without its netdev.
func (r Route) String() string {
	var b strings.Builder
	b.WriteString(r.Dst.String())
	if r.Dst.Bits() == 0 {
		b.Reset()
		b.WriteString("default")
	}
	if r.Gateway.IsValid() {
		b.WriteString(" via " + r.Gateway.String())
	}
	if r.Src.IsValid() {
		b.WriteString(" src " + r.Src.String())
	}
	if r.Priority != 0 {
		b.WriteString(" metric " + strconv.FormatUint(uint64(r.Priority), 10))
	}
	if r.Table != 0 && r.Table != 254 {
		b.WriteString(" table " + strconv.FormatUint(uint64(r.Table), 10))
	}
	return b.String()
}

// Rule sends traffic from a source to a routing table of its own.
type Rule struct {
	Src      netip.Prefix `json:"src"`
	Table    uint32       `json:"table"`
	Priority uint32       `json:"priority"`
}

// String is the rule as `ip rule` spells it.
func (r Rule) String() string {
	return fmt.Sprintf("from %s lookup %d pref %d", r.Src, r.Table, r.Priority)
}
