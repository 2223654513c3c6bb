package link

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// WideRoutes returns the routes through one netdev that are a default route or a part of one, in all tables, also those
// that the kernel has made for a router advertisement. With net.ipv4.nexthop_compat_mode=0 a route names only its
// nexthop object, no netdev (kernel fact 40): it is the kernel that has filtered these by the netdev.
func (c *Conn) WideRoutes(index int) ([]device.Route, error) {
	var out []device.Route
	for _, fam := range []uint8{unix.AF_INET, unix.AF_INET6} {
		msgs, err := c.dumpRoutes(fam, index)
		if err != nil {
			return nil, err
		}
		for _, b := range msgs {
			r, oif, ok := decodeRoute(b)
			if ok && device.Wide(r.Dst) && (slices.Contains(oif, index) || len(oif) == 0 && hasNexthop(b)) {
				r.Raw = nil
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// AllWideRoutes returns them for all netdevs, by ifindex; nil where one of the routes names a nexthop object only.
func (c *Conn) AllWideRoutes() (map[int][]device.Route, error) {
	out := map[int][]device.Route{}
	for _, fam := range []uint8{unix.AF_INET, unix.AF_INET6} {
		msgs, err := c.dumpRoutes(fam, 0)
		if err != nil {
			return nil, err
		}
		for _, b := range msgs {
			r, oif, ok := decodeRoute(b)
			if !ok || !device.Wide(r.Dst) {
				continue
			}
			if len(oif) == 0 && hasNexthop(b) {
				return nil, nil
			}
			r.Raw = nil
			slices.Sort(oif)
			for _, index := range slices.Compact(oif) { // several next hops may be on one netdev
				out[index] = append(out[index], r)
			}
		}
	}
	return out, nil
}

func hasNexthop(b []byte) bool {
	for a := range nlmsg.Attrs(b[sizeofRtMsg:]) {
		if a.Type == rtaNexthop {
			return true
		}
	}
	return false
}

// Lookups returns the rules that send packets to a table, IPv4 and IPv6.
func (c *Conn) Lookups() ([]device.Lookup, error) {
	var out []device.Lookup
	for _, fam := range []uint8{unix.AF_INET, unix.AF_INET6} {
		h := make([]byte, sizeofRuleHdr)
		h[0] = fam
		msgs, err := c.nl.Dump(unix.RTM_GETRULE, h)
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		for _, b := range msgs {
			if l, ok := decodeLookup(b); ok {
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// decodeLookup reads an RTM_NEWRULE payload (include/uapi/linux/fib_rules.h).
func decodeLookup(b []byte) (l device.Lookup, ok bool) {
	const invert = 2 // FIB_RULE_INVERT
	if len(b) < sizeofRuleHdr || b[7] != unix.FR_ACT_TO_TBL {
		return l, false
	}
	l.Table, l.Not = uint32(b[4]), binary.NativeEndian.Uint32(b[8:])&invert != 0
	for a := range nlmsg.Attrs(b[sizeofRuleHdr:]) {
		switch a.Type {
		case unix.FRA_DST:
			l.Dst = prefixOf(a.Value, b[1])
		case unix.FRA_SRC:
			l.Src = prefixOf(a.Value, b[2])
		case unix.FRA_IIFNAME:
			l.IIF = a.String()
		case unix.FRA_OIFNAME:
			l.OIF = a.String()
		case unix.FRA_FWMARK:
			l.Mark = a.Uint32()
		case unix.FRA_TABLE:
			l.Table = a.Uint32()
		case unix.FRA_TUN_ID:
			l.Tunnel = true
		case unix.FRA_UID_RANGE: // struct fib_rule_uid_range: from, to
			l.NotRoot = len(a.Value) >= 4 && binary.NativeEndian.Uint32(a.Value) > 0
		}
	}
	return l, true
}

func prefixOf(b []byte, bits uint8) netip.Prefix {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, int(bits))
}

// SourceFor returns the address that the host's own packets to an address have. ok is false where there is no route.
func (c *Conn) SourceFor(dst netip.Addr) (src netip.Addr, ok bool) {
	h := make([]byte, sizeofRtMsg)
	h[0], h[1] = family(dst), uint8(dst.BitLen())
	b, err := c.nl.Get(unix.RTM_GETROUTE, nlmsg.Body(h).Put(unix.RTA_DST, dst.AsSlice()).Bytes())
	if err != nil {
		return src, false
	}
	r, _, _ := decodeRoute(b) // a lookup's answer is marked as cloned
	return r.Src, r.Src.IsValid()
}
