package announce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ARPAnnouncement encodes an ARP request for the sender's own address (RFC 5227, section 2.3), without link header: hw
// is the sender's hardware address, of 6 bytes for Ethernet (RFC 826), of 20 for InfiniBand, whose hardware type is 32
// and hardware address length 20 (RFC 4391, section 9.1). The target hardware address is zero.
//
// A request rather than a reply: RFC 5227, section 3, prefers it, because some stacks take only requests as
// announcements, and the kernel's own arp_notify sends requests. Linux accepts both (net/ipv4/arp.c, arp_is_garp).
func ARPAnnouncement(arpType uint16, hw net.HardwareAddr, ip netip.Addr) []byte {
	return arpRequest(arpType, hw, ip, ip)
}

// arpRequest asks for target in the name of sender.
func arpRequest(arpType uint16, hw net.HardwareAddr, sender, target netip.Addr) []byte {
	b := make([]byte, 0, 8+2*len(hw)+2*4)
	b = binary.BigEndian.AppendUint16(b, arpType)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, byte(len(hw)), 4)
	b = binary.BigEndian.AppendUint16(b, 1) // ARPOP_REQUEST
	b = append(b, hw...)
	b = append(b, sender.AsSlice()...)
	b = append(b, make([]byte, len(hw))...)
	return append(b, target.AsSlice()...)
}

// linkAddress encodes struct sockaddr_ll (include/uapi/linux/if_packet.h) with a link address as destination.
// The structure has room for 8 bytes, but the kernel takes a longer one: it wants msg_namelen to cover sll_halen bytes
// and the device's address length (net/packet/af_packet.c, packet_snd), and hands them to the driver's link header.
func linkAddress(ifindex int, protocol, arpType uint16, to net.HardwareAddr) []byte {
	b := make([]byte, 12, 12+max(8, len(to)))
	binary.NativeEndian.PutUint16(b[0:], unix.AF_PACKET)
	binary.BigEndian.PutUint16(b[2:], protocol)
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	binary.NativeEndian.PutUint16(b[8:], arpType)
	b[10] = unix.PACKET_BROADCAST
	b[11] = byte(len(to))
	b = append(b, to...)
	return b[:cap(b)]
}

// sendARP broadcasts one announcement per address through a packet socket.
func sendARP(ifindex int, arpType uint16, hw, bcast net.HardwareAddr, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	// SOCK_DGRAM: the kernel builds the link header. Protocol 0: nothing is received.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("announce %v: open packet socket: %w", addrs, err)
	}
	defer unix.Close(fd)
	to := linkAddress(ifindex, unix.ETH_P_ARP, arpType, bcast)
	var errs []error
	for _, a := range addrs {
		if err := sendto(fd, ARPAnnouncement(arpType, hw, a), to); err != nil {
			errs = append(errs, fmt.Errorf("announce %s: send ARP request: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// sendto exists because unix.SockaddrLinklayer has room for 8 bytes of hardware address.
func sendto(fd int, b, to []byte) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd),
			uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
			uintptr(unsafe.Pointer(&to[0])), uintptr(len(to)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
