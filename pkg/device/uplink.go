package device

import "net/netip"

// Uplink is what tells whether the host itself reaches others over a netdev.
type Uplink struct {
	// Interfaces are the netdev itself, and all that sits on it: VLANs, the bond or bridge that it is part of.
	Interfaces []Carrier
	// Lookups are the host's routing rules. They are read only if a route is in another table than main.
	Lookups []Lookup
	// Sources are the addresses that the host's own packets have towards addresses that it has no special route for,
	// at most one per family.
	Sources []netip.Addr
}

// Carrier is one interface of an Uplink.
type Carrier struct {
	Name   string
	Addrs  []Addr
	Routes []Route // all wide ones through it, of any origin and table
}

// wideBits is the shortest prefix that is no part of a default route. Shorter ones occur as parts: two of /1, four of
// /2, 2000::/3, or the list of prefixes without the private ranges, whose widest are of /2 to /7. 10.0.0.0/8 is a
// network.
const wideBits = 8

// Wide says whether a route's destination is a default, or so large a part of all addresses that it serves as one.
// Multicast does not count: 224.0.0.0/4 goes to a network of its own on many hosts.
func Wide(dst netip.Prefix) bool { return dst.Bits() < wideBits && !dst.Addr().IsMulticast() }

// Lookup is a routing rule that sends packets to a table, with what it looks at. What is zero it does not look at;
// protocols, ports and types of service are left out.
type Lookup struct {
	Table    uint32
	Src, Dst netip.Prefix // not valid: all
	Mark     uint32       // that packets must have; 0: none
	IIF, OIF string       // interface that packets come in from ("lo": made by the host), or that a socket is bound to
	NotRoot  bool         // it looks at users, and not at root
	Tunnel   bool         // it looks at what a tunnel has noted on a packet
	Not      bool         // it takes what does not fit
}
