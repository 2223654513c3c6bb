package announce

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	typeNS   = 135 // ICMPv6 type of a neighbour solicitation (RFC 4861, section 4.3)
	optNonce = 14  // RFC 3971, section 5.3.2
	lenIPv6  = 40  // of the header
	lenND    = 24  // of a solicitation or advertisement without its options
)

// solicited is the solicited-node multicast address (RFC 4291, section 2.7.1).
func solicited(a netip.Addr) netip.Addr {
	b, last := netip.MustParseAddr("ff02::1:ff00:0").As16(), a.As16()
	copy(b[13:], last[13:])
	return netip.AddrFrom16(b)
}

// groupLink is the link address of an IPv6 multicast group: RFC 2464, section 7, for Ethernet, and RFC 4391, section 4,
// for InfiniBand, where the broadcast address has scope and partition (include/net/if_inet6.h, ipv6_ib_mc_map).
func groupLink(arpType uint16, bcast net.HardwareAddr, group netip.Addr) net.HardwareAddr {
	b := group.As16()
	if arpType != unix.ARPHRD_INFINIBAND {
		return append(net.HardwareAddr{0x33, 0x33}, b[12:]...)
	}
	to := net.HardwareAddr{0, 0xff, 0xff, 0xff, 0xff, 0x10 | bcast[5]&0xf, 0x60, 0x1b, bcast[8], bcast[9]}
	return append(to, b[6:]...)
}

// solicitation encodes a neighbour solicitation for duplicate address detection with its IPv6 header: from ::, hence
// without a source link-layer address (RFC 4862, section 5.4.2).
func solicitation(target netip.Addr, nonce [6]byte) []byte {
	nd := make([]byte, lenND, lenND+8)
	nd[0] = typeNS
	copy(nd[8:], target.AsSlice())
	nd = append(nd, optNonce, 1)
	nd = append(nd, nonce[:]...)
	to := solicited(target).As16()
	b := make([]byte, lenIPv6, lenIPv6+len(nd))
	b[0] = 6 << 4
	binary.BigEndian.PutUint16(b[4:], uint16(len(nd)))
	b[6], b[7] = unix.IPPROTO_ICMPV6, 255 // receivers drop another hop limit (RFC 4861, section 7.1.1)
	copy(b[24:], to[:])
	binary.BigEndian.PutUint16(nd[2:], checksum(b[8:lenIPv6], nd))
	return append(b, nd...)
}

// checksum is that of ICMPv6: over the addresses, the length, the protocol and the message (RFC 8200, section 8.1).
func checksum(addrs, nd []byte) uint16 {
	sum := uint32(len(nd)) + unix.IPPROTO_ICMPV6
	for _, b := range [][]byte{addrs, nd} {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// judgeARP looks for one of the addresses as the sender of a foreign packet, or as what another interface probes (RFC
// 5227, section 2.1.1).
func (p *prober) judgeARP(b []byte) *ConflictError {
	hw := len(p.hw)
	if len(b) < 8+2*hw+8 || int(b[4]) != hw || b[5] != 4 || binary.BigEndian.Uint16(b[2:]) != unix.ETH_P_IP {
		return nil
	}
	by := net.HardwareAddr(b[8 : 8+hw])
	sender, _ := netip.AddrFromSlice(b[8+hw:][:4])
	target, _ := netip.AddrFromSlice(b[8+2*hw+4:][:4])
	if bytes.Equal(by, p.hw) {
		return nil
	}
	if sender.IsUnspecified() && binary.BigEndian.Uint16(b[6:]) == 1 {
		sender = target
	}
	if !slices.Contains(p.v4, sender) {
		return nil
	}
	return &ConflictError{Addr: sender, By: bytes.Clone(by)}
}

// judgeND looks for an advertisement of one of the addresses, or for foreign duplicate address detection for one (RFC
// 4862, section 5.4.3). by is the link address of the sender, if it is known.
func (p *prober) judgeND(b []byte, by net.HardwareAddr) *ConflictError {
	if len(b) < lenIPv6+lenND || b[0]>>4 != 6 || b[6] != unix.IPPROTO_ICMPV6 || b[7] != 255 {
		return nil
	}
	from, _ := netip.AddrFromSlice(b[8:24])
	nd := b[lenIPv6:]
	target, _ := netip.AddrFromSlice(nd[8:lenND])
	asks := nd[0] == typeNS && from.IsUnspecified()
	if nd[0] != typeNA && !asks || nd[1] != 0 || !slices.Contains(p.v6, target) {
		return nil
	}
	for o := nd[lenND:]; len(o) >= 8 && o[1] != 0 && len(o) >= 8*int(o[1]); o = o[8*int(o[1]):] {
		option := o[2 : 8*int(o[1])]
		switch {
		case o[0] == optNonce && bytes.Equal(option, p.nonce[:]):
			return nil // our own
		case o[0] == optTargetAddress && p.arpType == unix.ARPHRD_INFINIBAND && len(option) >= 22:
			by = option[2:22] // after two reserved bytes (RFC 4391, section 9.3)
		case o[0] == optTargetAddress && p.arpType != unix.ARPHRD_INFINIBAND:
			by = option[:6]
		}
	}
	if bytes.Equal(by, p.hw) {
		return nil
	}
	return &ConflictError{Addr: target, By: bytes.Clone(by)}
}
