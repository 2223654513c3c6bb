package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// linkAttrs says which attribute of RTM_NEWLINK has a row of the table in pkg/device.
var linkAttrs = map[device.LinkAttr]struct {
	typ  uint16
	bits int
}{
	device.LinkMode:       {unix.IFLA_LINKMODE, 8},
	device.GSOMaxSize:     {unix.IFLA_GSO_MAX_SIZE, 32},
	device.GSOMaxSegs:     {unix.IFLA_GSO_MAX_SEGS, 32},
	device.GROMaxSize:     {unix.IFLA_GRO_MAX_SIZE, 32},      // since 5.19
	device.GSOIPv4MaxSize: {unix.IFLA_GSO_IPV4_MAX_SIZE, 32}, // since 6.3
	device.GROIPv4MaxSize: {unix.IFLA_GRO_IPV4_MAX_SIZE, 32}, // since 6.3
}

// decodeKept reads what a move keeps, out of an attribute of RTM_NEWLINK.
func decodeKept(k *device.Kept, a nlmsg.Attr) {
	if a.Type == unix.IFLA_XDP {
		decodeXDP(k, a.Value)
		return
	}
	for name, c := range linkAttrs {
		if c.typ != a.Type {
			continue
		}
		if k.Attrs == nil {
			k.Attrs = make(map[device.LinkAttr]uint32, len(linkAttrs))
		}
		if c.bits == 8 {
			k.Attrs[name] = uint32(a.Uint8())
		} else {
			k.Attrs[name] = a.Uint32()
		}
	}
}

// xdpHooks are the ways in which a netdev has an XDP program: the attribute in IFLA_XDP, and the flag for it.
var xdpHooks = []struct {
	hook device.Hook
	id   uint16
	flag uint32
}{
	{device.XDPDriver, unix.IFLA_XDP_DRV_PROG_ID, unix.XDP_FLAGS_DRV_MODE},
	{device.XDPGeneric, unix.IFLA_XDP_SKB_PROG_ID, unix.XDP_FLAGS_SKB_MODE},
	{device.XDPOffload, unix.IFLA_XDP_HW_PROG_ID, unix.XDP_FLAGS_HW_MODE},
}

func decodeXDP(k *device.Kept, b []byte) {
	for a := range nlmsg.Attrs(b) {
		for _, h := range xdpHooks {
			if h.id == a.Type && a.Uint32() != 0 {
				k.Programs = append(k.Programs, device.Program{Hook: h.hook, ID: a.Uint32()})
			}
		}
	}
}

// SetAttr sets one attribute that a move keeps.
func (c *Conn) SetAttr(index int, attr device.LinkAttr, to uint32) error {
	m := nlmsg.Body(ifinfomsg(index, 0, 0))
	if a := linkAttrs[attr]; a.bits == 8 {
		m.Uint8(a.typ, uint8(to))
	} else {
		m.Uint32(a.typ, to)
	}
	if _, err := c.nl.Do(unix.RTM_NEWLINK, 0, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("set %s of netdev with index %d: %w", attr.Text(to), index, err))
	}
	return nil
}

// DelXDP removes the XDP program of a hook. It fails with unix.EBUSY when a BPF link holds it there.
func (c *Conn) DelXDP(index int, hook device.Hook) error {
	var flags uint32
	for _, h := range xdpHooks {
		if h.hook == hook {
			flags = h.flag
		}
	}
	m := nlmsg.Body(ifinfomsg(index, 0, 0)).Nest(unix.IFLA_XDP, func(m *nlmsg.Builder) {
		m.Uint32(unix.IFLA_XDP_FD, ^uint32(0)).Uint32(unix.IFLA_XDP_FLAGS, flags)
	})
	if _, err := c.nl.Do(unix.RTM_NEWLINK, 0, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("remove the %s program of netdev with index %d: %w", hook, index, err))
	}
	return nil
}

// Headers of include/uapi/linux/{neighbour,nexthop,rtnetlink}.h.
const (
	sizeofNdMsg = 12
	sizeofNhMsg = 8
	sizeofTcMsg = 20

	nudPermanent = 0x80
	ntfProxy     = 0x08
)

// Neighbours returns the configured entries of a netdev: permanent ones, and those that are answered for.
func (c *Conn) Neighbours(index int) ([]device.Neighbour, error) {
	var out []device.Neighbour
	for _, flags := range []uint8{0, ntfProxy} {
		h := make([]byte, sizeofNdMsg)
		h[10] = flags
		msgs, err := c.nl.Dump(unix.RTM_GETNEIGH, nlmsg.Body(h).Uint32(unix.NDA_IFINDEX, uint32(index)).Bytes())
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for _, b := range msgs {
			if n, ok := decodeNeighbour(b, index); ok && n.Proxy == (flags != 0) {
				out = append(out, n)
			}
		}
	}
	return out, nil
}

func decodeNeighbour(b []byte, index int) (device.Neighbour, bool) {
	if len(b) < sizeofNdMsg || int(binary.NativeEndian.Uint32(b[4:])) != index ||
		b[0] != unix.AF_INET && b[0] != unix.AF_INET6 {
		return device.Neighbour{}, false
	}
	n := device.Neighbour{Proxy: b[10]&ntfProxy != 0, Raw: slices.Clone(b)}
	for a := range nlmsg.Attrs(b[sizeofNdMsg:]) {
		switch a.Type {
		case unix.NDA_DST:
			n.Dst = addrOf(a.Value)
		case unix.NDA_LLADDR:
			n.LLAddr = hwaddr(a.Value)
		}
	}
	return n, n.Dst.IsValid() && (n.Proxy || binary.NativeEndian.Uint16(b[8:])&nudPermanent != 0)
}

// AddNeighbour makes an entry again.
func (c *Conn) AddNeighbour(index int, n device.Neighbour) error {
	if len(n.Raw) < sizeofNdMsg {
		return fmt.Errorf("add neighbour %s: %w", n, unix.EBADMSG)
	}
	h := slices.Clone(n.Raw[:sizeofNdMsg])
	binary.NativeEndian.PutUint32(h[4:], uint32(index))
	body := copyAttrs(h, n.Raw, unix.NDA_CACHEINFO, unix.NDA_PROBES)
	if _, err := c.nl.Do(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body.Bytes()); err != nil {
		return fmt.Errorf("add neighbour %s: %w", n, err)
	}
	return nil
}

// Nexthops returns the nexthop objects through a netdev, without groups. A kernel before 5.3 has none.
func (c *Conn) Nexthops(index int) ([]device.Nexthop, error) {
	m := nlmsg.Body(make([]byte, sizeofNhMsg)).Uint32(unix.NHA_OIF, uint32(index))
	msgs, err := c.nl.Dump(unix.RTM_GETNEXTHOP, m.Bytes())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list nexthops: %w", err)
	}
	var out []device.Nexthop
	for _, b := range msgs {
		if n, ok := decodeNexthop(b, index); ok {
			out = append(out, n)
		}
	}
	return out, nil
}

func decodeNexthop(b []byte, index int) (n device.Nexthop, ok bool) {
	if len(b) < sizeofNhMsg {
		return n, false
	}
	n.Raw = slices.Clone(b)
	for a := range nlmsg.Attrs(b[sizeofNhMsg:]) {
		switch a.Type {
		case unix.NHA_ID:
			n.ID = a.Uint32()
		case unix.NHA_OIF:
			ok = int(a.Uint32()) == index
		case unix.NHA_GATEWAY:
			n.Via = addrOf(a.Value)
		}
	}
	return n, ok && n.ID != 0
}

// AddNexthop makes a nexthop object again.
func (c *Conn) AddNexthop(index int, n device.Nexthop) error {
	if len(n.Raw) < sizeofNhMsg {
		return fmt.Errorf("add nexthop %s: %w", n, unix.EBADMSG)
	}
	h := slices.Clone(n.Raw[:sizeofNhMsg])
	h[1] = 0 // the scope is the kernel's to find
	binary.NativeEndian.PutUint32(h[4:], binary.NativeEndian.Uint32(h[4:])&unix.RTNH_F_ONLINK)
	body := copyAttrs(h, n.Raw, unix.NHA_OIF).Uint32(unix.NHA_OIF, uint32(index))
	if _, err := c.nl.Do(unix.RTM_NEWNEXTHOP, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body.Bytes()); err != nil {
		return fmt.Errorf("add nexthop %s: %w", n, err)
	}
	return nil
}

// Qdiscs returns the configured queueing disciplines of a netdev, with whether they have filters and classes. What the
// kernel puts there by itself has no handle. A dump has those of all netdevs, and is asked for only if one is
// configured at the root: below one of the kernel's there can be no other.
func (c *Conn) Qdiscs(index int) ([]device.Qdisc, error) {
	var out []device.Qdisc
	var msgs [][]byte
	for _, parent := range []uint32{qdiscRoot, qdiscIngress} {
		at, err := c.nl.Do(unix.RTM_GETQDISC, unix.NLM_F_ECHO, tcmsg(index, 0, parent)) // kernel fact 34
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, notFound(fmt.Errorf("get the qdisc of netdev with index %d: %w", index, err))
		}
		for _, b := range at {
			q, ok := decodeQdisc(b, index)
			if !ok {
				continue
			}
			if parent == qdiscRoot {
				if at, err = c.nl.Dump(unix.RTM_GETQDISC, tcmsg(index, 0, 0)); err != nil {
					return nil, fmt.Errorf("list qdiscs: %w", err)
				}
				msgs = at
				break
			}
			if len(msgs) == 0 { // else the dump has it
				out = append(out, q)
			}
		}
	}
	for _, b := range msgs {
		if q, ok := decodeQdisc(b, index); ok {
			out = append(out, q)
		}
	}
	for i := range out {
		if err := c.belowQdisc(index, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Where a qdisc is, and where clsact has its filters (include/uapi/linux/pkt_sched.h: TC_H_ROOT, TC_H_INGRESS and, with
// TC_H_MIN_INGRESS and TC_H_MIN_EGRESS, TC_H_CLSACT).
const (
	qdiscRoot    = 0xffffffff
	qdiscIngress = 0xfffffff1
)

// clsact has its filters below two parents of its own (TC_H_MIN_INGRESS, TC_H_MIN_EGRESS).
const (
	clsactIngress = 0xfffffff2
	clsactEgress  = 0xfffffff3
)

// classful are the qdiscs whose classes are made by hand; those of others come with them.
var classful = []string{"cbq", "drr", "hfsc", "htb", "qfq"}

// belowQdisc reads whether a qdisc has what is not put back with it.
func (c *Conn) belowQdisc(index int, q *device.Qdisc) error {
	parents := []uint32{q.Handle}
	if q.Kind == "clsact" {
		parents = []uint32{clsactIngress, clsactEgress}
	}
	for _, parent := range parents {
		msgs, err := c.nl.Dump(unix.RTM_GETTFILTER, tcmsg(index, 0, parent))
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("list filters of %s: %w", q, err)
		}
		for _, b := range msgs { // a classifier without a rule has no handle
			if len(b) >= sizeofTcMsg && binary.NativeEndian.Uint32(b[8:]) != 0 {
				q.Filters = true
			}
		}
	}
	if !slices.Contains(classful, q.Kind) {
		return nil
	}
	msgs, err := c.nl.Dump(unix.RTM_GETTCLASS, tcmsg(index, 0, 0))
	if err != nil {
		return fmt.Errorf("list classes of %s: %w", q, err)
	}
	for _, b := range msgs {
		if len(b) >= sizeofTcMsg && binary.NativeEndian.Uint32(b[8:])>>16 == q.Handle>>16 && q.Handle>>16 != 0 {
			q.Classes = true
		}
	}
	return nil
}

func tcmsg(index int, handle, parent uint32) []byte {
	h := make([]byte, sizeofTcMsg)
	binary.NativeEndian.PutUint32(h[4:], uint32(index))
	binary.NativeEndian.PutUint32(h[8:], handle)
	binary.NativeEndian.PutUint32(h[12:], parent)
	return h
}

func decodeQdisc(b []byte, index int) (q device.Qdisc, ok bool) {
	if len(b) < sizeofTcMsg || int(binary.NativeEndian.Uint32(b[4:])) != index {
		return q, false
	}
	q.Handle, q.Parent = binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	m := nlmsg.Body(b[:sizeofTcMsg])
	for a := range nlmsg.Attrs(b[sizeofTcMsg:]) {
		switch a.Type {
		case unix.TCA_KIND:
			q.Kind = a.String()
			m.Put(a.Type, a.Value)
		case unix.TCA_OPTIONS, unix.TCA_INGRESS_BLOCK, unix.TCA_EGRESS_BLOCK: // the rest is statistics
			m.Put(a.Type, a.Value)
		}
	}
	q.Raw = m.Bytes()
	return q, q.Handle>>16 != 0 && q.Kind != ""
}

// AddQdisc puts a queueing discipline back.
func (c *Conn) AddQdisc(index int, q device.Qdisc) error {
	if len(q.Raw) < sizeofTcMsg {
		return fmt.Errorf("add qdisc %s: %w", q, unix.EBADMSG)
	}
	h := tcmsg(index, q.Handle, q.Parent)
	body := copyAttrs(h, q.Raw)
	if _, err := c.nl.Do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, body.Bytes()); err != nil {
		return fmt.Errorf("add qdisc %s: %w", q, err)
	}
	return nil
}

// copyAttrs appends the attributes that follow a header of the same size in raw, without those that are named.
func copyAttrs(header, raw []byte, without ...uint16) *nlmsg.Builder {
	m := nlmsg.Body(header)
	for a := range nlmsg.Attrs(raw[len(header):]) {
		if !slices.Contains(without, a.Type) {
			m.Put(a.Type, a.Value)
		}
	}
	return m
}

func addrOf(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}
