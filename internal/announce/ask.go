package announce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// ask has the kernel resolve our own addresses on the interface: as `ip neigh replace ADDR dev DEV use`. It broadcasts
// an ARP request for the address in whose sender fields it puts the primary address of that prefix, which is the same:
// an ARP announcement (RFC 5227, section 2.3), framed by the driver for its link type. There is no answer, so the
// kernel repeats it (net.ipv4.neigh.DEV.mcast_solicit, 3 in all, a second apart), and leaves a neighbour entry in state
// FAILED that nothing uses, since a local address is not looked up on a link.
//
// This is preferred to a packet socket because closing one waits for an RCU grace period (net/packet/af_packet.c,
// packet_release): 12 ms where this takes 0.01 (BenchmarkAnnounce, kernel 6.18, idle); and because the repetition,
// which RFC 5227 wants too, outlives this process. A frame sent before the kernel has seen the carrier is lost, and on
// IPoIB the carrier comes only with the broadcast group, which the subnet manager has to grant.
func ask(ifindex int, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	c, err := nlmsg.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("announce %v: %w", addrs, err)
	}
	defer c.Close()
	var errs []error
	for _, a := range addrs {
		if _, err := c.Do(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, neighUse(ifindex, a)); err != nil {
			errs = append(errs, fmt.Errorf("announce %s: resolve it: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// neighUse encodes struct ndmsg and its destination (include/uapi/linux/neighbour.h).
func neighUse(ifindex int, a netip.Addr) []byte {
	var h [unix.SizeofNdMsg]byte
	h[0] = unix.AF_INET
	binary.NativeEndian.PutUint32(h[4:], uint32(ifindex))
	h[10] = unix.NTF_USE
	return nlmsg.Body(h[:]).Put(unix.NDA_DST, a.AsSlice()).Bytes()
}
