// Package announce sends neighbours the hardware address that an interface's IP addresses have now: a gratuitous ARP
// request for IPv4, an unsolicited neighbour advertisement for IPv6. Without it, hosts that talked to the previous
// owner of an address go on sending to its hardware address until their neighbour entry is found unreachable. On IPoIB
// that concerns also an address that stays with its device, whose queue pair number, and with it the hardware address,
// changes whenever the RDMA device moves.
package announce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Announce announces addrs on the interface with that index in the calling thread's network namespace. The addresses
// have to be on the interface, past duplicate address detection, in the order in which they were added. arpType is
// ARPHRD_ETHER (1) or ARPHRD_INFINIBAND (32), hw and bcast are the interface's addresses, of 6 or 20 bytes.
//
// An IPv4 address is announced by the kernel, at once and twice more a second apart, which also reaches the neighbours
// of a link that gets its carrier only then (see ask). An IPv4 address inside the prefix of an earlier one, and an IPv6
// address, are announced once. All addresses are tried, and the errors joined: the interface works in spite of them.
// For a link type without such announcements, the error matches errors.ErrUnsupported.
func Announce(ifindex int, arpType uint16, hw, bcast net.HardwareAddr, addrs []netip.Prefix) error {
	if err := checkLink(arpType, hw, bcast); err != nil {
		return fmt.Errorf("announce addresses: %w", err)
	}
	asked, sent, v6 := split(addrs)
	return errors.Join(
		ask(ifindex, asked),
		sendARP(ifindex, arpType, hw, bcast, sent),
		sendNA(ifindex, arpType, hw, v6),
	)
}

// checkLink makes sure that the addresses have the length of the link type.
func checkLink(arpType uint16, hw, bcast net.HardwareAddr) error {
	want, err := hwLen(arpType)
	if err != nil {
		return err
	}
	if len(hw) != want || len(bcast) != want {
		const msg = "hardware address %q, broadcast address %q: want %d bytes for link type %d"
		return fmt.Errorf(msg, hw, bcast, want, arpType)
	}
	return nil
}

// hwLen is the length of a hardware address of the link type.
func hwLen(arpType uint16) (int, error) {
	switch arpType {
	case unix.ARPHRD_ETHER:
		return 6, nil
	case unix.ARPHRD_INFINIBAND:
		return 20, nil
	}
	return 0, fmt.Errorf("link type %d (ARPHRD_*): %w", arpType, errors.ErrUnsupported)
}

// split sorts the addresses by the way they are announced: IPv4 by the kernel, IPv4 by ourselves, IPv6. Asked about an
// address, the kernel names as sender the first primary address in whose prefix it is (net/ipv4/devinet.c,
// inet_select_addr), so an address inside the prefix of an earlier one would announce that one.
func split(addrs []netip.Prefix) (asked, sent, v6 []netip.Addr) {
	for i, p := range addrs {
		a := p.Addr().Unmap().WithZone("")
		switch {
		case !a.Is4():
			v6 = append(v6, a)
		case inside(a, addrs[:i]):
			sent = append(sent, a)
		default:
			asked = append(asked, a)
		}
	}
	return asked, sent, v6
}

func inside(a netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
