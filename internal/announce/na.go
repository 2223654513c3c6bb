package announce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	typeNA           = 136  // ICMPv6 type of a neighbour advertisement (RFC 4861, section 4.4)
	flagOverride     = 0x20 // in its first byte of flags: replace what is cached
	optTargetAddress = 2    // target link-layer address option (RFC 4861, section 4.6.1)
)

// NeighbourAdvertisement encodes an unsolicited neighbour advertisement for target with the Override flag (RFC 4861,
// section 7.2.6), from the ICMPv6 header on. The checksum is zero: the kernel fills it in on ICMPv6 sockets (RFC 3542,
// section 3.1).
//
// Its target link-layer address option has a length in units of 8 bytes: 1 for the 6 bytes of Ethernet (RFC 2464,
// section 6), 3 for the 20 of InfiniBand, which follow two reserved bytes (RFC 4391, section 9.3; ndisc_addr_option_pad
// in include/net/ndisc.h).
func NeighbourAdvertisement(arpType uint16, hw net.HardwareAddr, target netip.Addr) []byte {
	pad := 0
	if arpType == unix.ARPHRD_INFINIBAND {
		pad = 2
	}
	units := (2 + pad + len(hw) + 7) / 8
	b := make([]byte, 24+8*units)
	b[0] = typeNA
	b[4] = flagOverride
	copy(b[8:24], target.AsSlice())
	b[24] = optTargetAddress
	b[25] = byte(units)
	copy(b[26+pad:], hw)
	return b
}

// sendNA sends one advertisement per address to all nodes of the link.
func sendNA(ifindex int, arpType uint16, hw net.HardwareAddr, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return fmt.Errorf("announce %v: open ICMPv6 socket: %w", addrs, err)
	}
	defer unix.Close(fd)
	// Receivers drop one that may have crossed a router: another hop limit than 255 (RFC 4861, section 7.1.2).
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return fmt.Errorf("announce %v: set hop limit: %w", addrs, err)
	}
	// Our own kernel would take one for an address of ours as a sign of a duplicate (net/ipv6/ndisc.c, ndisc_recv_na).
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0); err != nil {
		return fmt.Errorf("announce %v: disable multicast loop: %w", addrs, err)
	}
	var errs []error
	to := &unix.SockaddrInet6{Addr: netip.IPv6LinkLocalAllNodes().As16(), ZoneId: uint32(ifindex)}
	for _, a := range addrs {
		// The address itself is the source; refused with EINVAL while it is tentative.
		from := unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16(), Ifindex: uint32(ifindex)})
		if err := sendmsg(fd, NeighbourAdvertisement(arpType, hw, a), from, to); err != nil {
			errs = append(errs, fmt.Errorf("announce %s: send neighbour advertisement: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

func sendmsg(fd int, b, oob []byte, to unix.Sockaddr) error {
	for {
		if err := unix.Sendmsg(fd, b, oob, to, 0); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
