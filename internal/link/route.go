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

// Routes returns the routes through one netdev in all tables, IPv4 and IPv6, without those of the table local that the
// kernel makes for an address and those learnt from router advertisements and redirects: they come back by themselves.
func (c *Conn) Routes(index int) ([]device.Route, error) {
	var out []device.Route
	for _, fam := range []uint8{unix.AF_INET, unix.AF_INET6} {
		msgs, err := c.dumpRoutes(fam, index)
		if err != nil {
			return nil, err
		}
		for _, b := range msgs {
			if r, oif, ok := decodeRoute(b); ok && slices.Contains(oif, index) && restorable(r) {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// dumpRoutes lists the routes of all tables that the kernel says go through the netdev.
func (c *Conn) dumpRoutes(fam uint8, index int) ([][]byte, error) {
	h := make([]byte, sizeofRtMsg)
	h[0] = fam
	m := nlmsg.Body(h)
	if index != 0 {
		m.Uint32(unix.RTA_OIF, uint32(index))
	}
	msgs, err := c.nl.Dump(unix.RTM_GETROUTE, m.Bytes())
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return msgs, nil
}

func restorable(r device.Route) bool {
	if r.Protocol == unix.RTPROT_KERNEL {
		return r.Table != unix.RT_TABLE_LOCAL && r.Type == unix.RTN_UNICAST
	}
	return r.Protocol != unix.RTPROT_REDIRECT && r.Protocol != unix.RTPROT_RA
}

// decodeRoute reads an RTM_NEWROUTE payload, and the ifindexes of the netdevs it uses.
func decodeRoute(b []byte) (r device.Route, oif []int, ok bool) {
	if len(b) < sizeofRtMsg {
		return r, nil, false
	}
	const cloned = 0x200 // RTM_F_CLONED: a cache entry
	flags := binary.NativeEndian.Uint32(b[8:])
	r = device.Route{
		TOS: b[3], Table: uint32(b[4]), Protocol: b[5], Scope: b[6], Type: b[7],
		Flags: flags & unix.RTNH_F_ONLINK, Raw: append([]byte(nil), b...),
	}
	dst := netip.IPv4Unspecified()
	if b[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	for a := range nlmsg.Attrs(b[sizeofRtMsg:]) {
		switch a.Type {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_PREFSRC:
			r.Src, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_OIF:
			oif = append(oif, int(a.Uint32()))
		case unix.RTA_MULTIPATH:
			oif = append(oif, hops(a.Value)...)
			r.Multipath, r.Raw = true, nil
		case unix.RTA_TABLE:
			r.Table = a.Uint32()
		case unix.RTA_PRIORITY:
			r.Priority = a.Uint32()
		case unix.RTA_CACHEINFO:
			r.Expires = expires(a.Uint32s(), b[0])
		}
	}
	r.Dst = netip.PrefixFrom(dst, int(b[1]))
	return r, oif, r.Dst.IsValid() && flags&cloned == 0
}

// expires reads the lifetime from a struct rta_cacheinfo (include/uapi/linux/rtnetlink.h): the kernel shows it there in
// hundredths of a second, and takes it as RTA_EXPIRES in seconds. A route that has none shows 0; one that is about to
// run out gets a last second.
func expires(info []uint32, family byte) uint32 {
	if family != unix.AF_INET6 || len(info) < 3 || int32(info[2]) == 0 {
		return 0
	}
	return uint32(max(1, int32(info[2])/100))
}

// hops returns the ifindexes in an array of struct rtnexthop (include/uapi/linux/rtnetlink.h), each of which has its
// own length.
func hops(b []byte) []int {
	var out []int
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		out = append(out, int(binary.NativeEndian.Uint32(b[4:])))
		if size < unix.SizeofRtNexthop || size > len(b) {
			break
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return out
}

// AddRoute adds a route through a netdev. It fails with unix.EEXIST when there is one for the same destination, metric
// and table.
func (c *Conn) AddRoute(index int, r device.Route) error {
	return c.route(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add", index, r)
}

// DelRoute removes a route.
func (c *Conn) DelRoute(index int, r device.Route) error {
	return c.route(unix.RTM_DELROUTE, 0, "remove", index, r)
}

func (c *Conn) route(typ, flags uint16, verb string, index int, r device.Route) error {
	body := encodeRoute(index, r)
	if len(r.Raw) >= sizeofRtMsg {
		if through, ok := replayNexthop(r.Raw); ok && typ == unix.RTM_NEWROUTE && r.Expires == 0 {
			if _, err := c.nl.Do(typ, flags, through); err == nil {
				return nil
			}
		}
		body = replay(index, r.Raw, r.Expires)
	}
	if _, err := c.nl.Do(typ, flags, body); err != nil {
		return fmt.Errorf("%s route %s: %w", verb, r, err)
	}
	return nil
}

func encodeRoute(index int, r device.Route) []byte {
	h := make([]byte, sizeofRtMsg)
	h[0], h[1], h[3], h[5], h[6], h[7] = family(r.Dst.Addr()), uint8(r.Dst.Bits()), r.TOS, r.Protocol, r.Scope, r.Type
	h[4] = unix.RT_TABLE_UNSPEC // RTA_TABLE holds it: the field has only 8 bits
	binary.NativeEndian.PutUint32(h[8:], r.Flags)
	m := nlmsg.Body(h).Uint32(unix.RTA_TABLE, r.Table).Uint32(unix.RTA_OIF, uint32(index))
	if r.Dst.Bits() > 0 {
		m.Put(unix.RTA_DST, r.Dst.Masked().Addr().AsSlice())
	}
	if r.Gateway.IsValid() {
		m.Put(unix.RTA_GATEWAY, r.Gateway.AsSlice())
	}
	if r.Src.IsValid() {
		m.Put(unix.RTA_PREFSRC, r.Src.AsSlice())
	}
	if r.Priority != 0 {
		m.Uint32(unix.RTA_PRIORITY, r.Priority)
	}
	if r.MTU != 0 || r.AdvMSS != 0 {
		m.Nest(unix.RTA_METRICS, func(m *nlmsg.Builder) {
			if r.MTU != 0 {
				m.Uint32(unix.RTAX_MTU, r.MTU)
			}
			if r.AdvMSS != 0 {
				m.Uint32(unix.RTAX_ADVMSS, r.AdvMSS)
			}
		})
	}
	return m.Bytes()
}

// replayNexthop is replay for a route through a nexthop object that has been made again: it has its gateway and its
// netdev from there, and the kernel takes no others beside it (net/ipv4/fib_semantics.c, net/ipv6/route.c).
func replayNexthop(raw []byte) ([]byte, bool) {
	object := false
	m := nlmsg.Body(raw[:sizeofRtMsg])
	binary.NativeEndian.PutUint32(m.Bytes()[8:], 0)
	for a := range nlmsg.Attrs(raw[sizeofRtMsg:]) {
		switch a.Type {
		case unix.RTA_CACHEINFO, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_MULTIPATH, unix.RTA_PREF:
		case unix.RTA_METRICS:
			m.Put(a.Type|unix.NLA_F_NESTED, a.Value)
		default:
			object = object || a.Type == rtaNexthop
			m.Put(a.Type, a.Value)
		}
	}
	return m.Bytes(), object
}

// replay turns a recorded RTM_NEWROUTE payload into a request for the netdev's index of today. What only the kernel may
// say (cache information, flags such as LINKDOWN) is left out, and the nexthop object, which may have died when the
// netdev left: the message has its gateway as well. seconds is how long the route has from now, 0 for ever.
func replay(index int, raw []byte, seconds uint32) []byte {
	h := append([]byte(nil), raw[:sizeofRtMsg]...)
	binary.NativeEndian.PutUint32(h[8:], binary.NativeEndian.Uint32(h[8:])&unix.RTNH_F_ONLINK)
	m := nlmsg.Body(h)
	for a := range nlmsg.Attrs(raw[sizeofRtMsg:]) {
		switch a.Type {
		case unix.RTA_CACHEINFO, rtaNexthop:
		case unix.RTA_OIF:
			m.Uint32(unix.RTA_OIF, uint32(index))
		case unix.RTA_METRICS:
			m.Put(a.Type|unix.NLA_F_NESTED, a.Value)
		default:
			m.Put(a.Type, a.Value)
		}
	}
	if seconds != 0 {
		m.Uint32(unix.RTA_EXPIRES, seconds)
	}
	return m.Bytes()
}
