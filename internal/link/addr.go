package link

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// sizeofIfAddrmsg and the others are the fixed headers of include/uapi/linux/{if_addr,rtnetlink,fib_rules}.h.
const (
	sizeofIfAddrmsg = unix.SizeofIfAddrmsg
	sizeofRtMsg     = unix.SizeofRtMsg
	sizeofRuleHdr   = 12

	ifaProto   = 11 // IFA_PROTO, since 5.18
	rtaNexthop = 30 // RTA_NH_ID
)

// Addrs returns the addresses of one netdev, IPv4 and IPv6, in the order the kernel prefers them: of IPv4 the oldest is
// first, of IPv6 the youngest (net/ipv6/addrconf.c, ipv6_link_dev_addr).
func (c *Conn) Addrs(index int) ([]device.Addr, error) {
	h := make([]byte, sizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(h[4:], uint32(index)) // the kernel filters, with NETLINK_GET_STRICT_CHK
	msgs, err := c.nl.Dump(unix.RTM_GETADDR, h)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []device.Addr
	for _, b := range msgs {
		if len(b) < sizeofIfAddrmsg || int(binary.NativeEndian.Uint32(b[4:])) != index {
			continue
		}
		if a, ok := decodeAddr(b); ok {
			out = append(out, a)
		}
	}
	return out, nil
}

// AllAddrs returns the addresses of all netdevs, by ifindex.
func (c *Conn) AllAddrs() (map[int][]device.Addr, error) {
	msgs, err := c.nl.Dump(unix.RTM_GETADDR, make([]byte, sizeofIfAddrmsg))
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[int][]device.Addr{}
	for _, b := range msgs {
		if len(b) < sizeofIfAddrmsg {
			continue
		}
		if a, ok := decodeAddr(b); ok {
			index := int(binary.NativeEndian.Uint32(b[4:]))
			out[index] = append(out[index], a)
		}
	}
	return out, nil
}

func decodeAddr(b []byte) (device.Addr, bool) {
	a := device.Addr{Flags: uint32(b[2]), Scope: b[3], Valid: ^uint32(0), Preferred: ^uint32(0)}
	var address, local netip.Addr
	for at := range nlmsg.Attrs(b[sizeofIfAddrmsg:]) {
		switch at.Type {
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_BROADCAST:
			a.Broadcast, _ = netip.AddrFromSlice(at.Value)
		case unix.IFA_LABEL:
			a.Label = at.String()
		case unix.IFA_FLAGS:
			a.Flags = at.Uint32()
		case unix.IFA_RT_PRIORITY:
			a.Metric = at.Uint32()
		case ifaProto:
			a.Proto = at.Uint8()
		case unix.IFA_CACHEINFO:
			if w := at.Uint32s(); len(w) >= 2 {
				a.Preferred, a.Valid = w[0], w[1]
			}
		}
	}
	if !local.IsValid() {
		local = address
	} else if address.IsValid() && address != local {
		a.Peer = address
	}
	if a.Flags&unix.IFA_F_DEPRECATED != 0 {
		a.Preferred = 0 // IPv4 says "for ever" of one that is valid for ever (net/ipv4/devinet.c, inet_fill_ifaddr)
	}
	a.Prefix = netip.PrefixFrom(local, int(b[1]))
	return a, a.Prefix.IsValid()
}

// AddAddr adds an address. It fails with unix.EEXIST when the netdev has it.
func (c *Conn) AddAddr(index int, a device.Addr) error {
	if err := c.addr(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, a); err != nil {
		return fmt.Errorf("add address %s: %w", a.Prefix, err)
	}
	return nil
}

// DelAddr removes an address. It fails with unix.EADDRNOTAVAIL when the netdev does not have it.
func (c *Conn) DelAddr(index int, a device.Addr) error {
	a.Label = "" // the kernel would insist on it, and a rename of the netdev changes it
	if err := c.addr(unix.RTM_DELADDR, 0, index, a); err != nil {
		return fmt.Errorf("remove address %s: %w", a.Prefix, err)
	}
	return nil
}

func (c *Conn) addr(typ, flags uint16, index int, a device.Addr) error {
	h := make([]byte, sizeofIfAddrmsg)
	h[0] = family(a.Prefix.Addr())
	h[1] = uint8(a.Prefix.Bits())
	h[3] = a.Scope
	binary.NativeEndian.PutUint32(h[4:], uint32(index))
	m := nlmsg.Body(h).Put(unix.IFA_LOCAL, a.Prefix.Addr().AsSlice())
	if a.Peer.IsValid() {
		m.Put(unix.IFA_ADDRESS, a.Peer.AsSlice())
	} else {
		m.Put(unix.IFA_ADDRESS, a.Prefix.Addr().AsSlice())
	}
	if a.Broadcast.IsValid() {
		m.Put(unix.IFA_BROADCAST, a.Broadcast.AsSlice())
	}
	if a.Label != "" {
		m.String(unix.IFA_LABEL, a.Label)
	}
	// TENTATIVE and DADFAILED are findings of the kernel, PERMANENT follows from the lifetime.
	m.Uint32(
		unix.IFA_FLAGS,
		a.Flags&^(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED|unix.IFA_F_PERMANENT|unix.IFA_F_SECONDARY),
	)
	if a.Metric != 0 {
		m.Uint32(unix.IFA_RT_PRIORITY, a.Metric)
	}
	if a.Proto != 0 {
		m.Uint8(ifaProto, a.Proto)
	}
	if a.Valid != ^uint32(0) || a.Preferred != ^uint32(0) { // a deprecated address may well be valid for ever
		ci := make([]byte, 16)
		binary.NativeEndian.PutUint32(ci[0:], a.Preferred)
		binary.NativeEndian.PutUint32(ci[4:], a.Valid)
		m.Put(unix.IFA_CACHEINFO, ci)
	}
	_, err := c.nl.Do(typ, flags, m.Bytes())
	return err
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// InterfaceAddrs reads an interface by its name: its hardware address, and its addresses, link-local ones apart.
func (c *Conn) InterfaceAddrs(name string) (hwAddr string, addresses []netip.Prefix, err error) {
	n, err := c.ByName(name)
	if err != nil {
		return "", nil, err
	}
	addrs, err := c.Addrs(n.Index)
	for i := range addrs {
		if p := addrs[i].Prefix; !p.Addr().IsLinkLocalUnicast() {
			addresses = append(addresses, p)
		}
	}
	return n.HWAddr.String(), addresses, err
}
