package announce

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// RFC 5227 waits seven seconds for an answer, in which a pod does not start: it has links with bridges in mind that
// forget their stations. On a link that has its carrier an answer takes less than a millisecond.
const (
	probes     = 3
	probeEvery = 300 * time.Millisecond
)

// ConflictError is the error for an address that another interface has, or is about to take.
type ConflictError struct {
	Addr netip.Addr
	By   net.HardwareAddr // empty: it did not say
}

func (c *ConflictError) Error() string {
	by := c.By.String()
	if by == "" {
		by = "another host that is about to take it"
	}
	return fmt.Sprintf("address %s is in use on this network by %s", c.Addr, by)
}

// Probe asks who has the addresses, which no interface here may have yet, and fails with a *ConflictError if another
// one answers, or probes them too. The interface with that index, in the calling thread's network namespace, has to be
// up; the other arguments are those of Announce. It takes probes times probeEvery, for any number of addresses.
//
// An IPv4 address is probed with ARP requests from 0.0.0.0 (RFC 5227, section 2.1.1), an IPv6 address with neighbour
// solicitations from :: (RFC 4862, section 5.4.2). Neither makes its receivers learn anything.
func Probe(ctx context.Context, ifindex int, arpType uint16, hw, bcast net.HardwareAddr, addrs []netip.Addr) error {
	if err := checkLink(arpType, hw, bcast); err != nil {
		return fmt.Errorf("probe addresses: %w", err)
	}
	p := &prober{ifindex: ifindex, arpType: arpType, hw: hw, bcast: bcast}
	defer p.close()
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); a.Is4() {
			p.v4 = append(p.v4, a)
		} else {
			p.v6 = append(p.v6, a)
		}
	}
	if err := p.open(); err != nil {
		return fmt.Errorf("probe addresses: %w", err)
	}
	for range probes {
		if err := p.send(); err != nil {
			return fmt.Errorf("probe addresses: %w", err)
		}
		if err := p.listen(ctx, time.Now().Add(probeEvery)); err != nil {
			return err
		}
	}
	return nil
}

// prober is one Probe.
type prober struct {
	ifindex   int
	arpType   uint16
	hw, bcast net.HardwareAddr
	v4, v6    []netip.Addr
	nonce     [6]byte // of our solicitations (RFC 7527): some links bring back what was sent
	fds       []unix.PollFd
	protocols []uint16 // of fds
	groups    int      // socket that has joined the solicited-node groups, 0 for none
}

func (p *prober) close() {
	for _, fd := range p.fds {
		unix.Close(int(fd.Fd))
	}
	if p.groups != 0 {
		unix.Close(p.groups)
	}
}

// open makes a socket for each protocol, which receives what arrives from now on.
func (p *prober) open() error {
	if _, err := rand.Read(p.nonce[:]); err != nil {
		return err
	}
	for protocol, addrs := range map[uint16][]netip.Addr{unix.ETH_P_ARP: p.v4, unix.ETH_P_IPV6: p.v6} {
		if len(addrs) == 0 {
			continue
		}
		// Protocol 0 until it is bound to the interface: nothing of others is received.
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open packet socket: %w", err)
		}
		p.fds = append(p.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		p.protocols = append(p.protocols, protocol)
		at := &unix.SockaddrLinklayer{Protocol: protocol>>8 | protocol<<8, Ifindex: p.ifindex}
		if err := unix.Bind(fd, at); err != nil {
			return fmt.Errorf("bind packet socket: %w", err)
		}
	}
	return p.join()
}

// join has the interface receive the solicitations of others for the same addresses. Answers to ours go to all nodes.
func (p *prober) join() (err error) {
	if len(p.v6) == 0 {
		return nil
	}
	if p.groups, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		p.groups = 0
		return fmt.Errorf("open IPv6 socket: %w", err)
	}
	for _, a := range p.v6 {
		group := &unix.IPv6Mreq{Multiaddr: solicited(a).As16(), Interface: uint32(p.ifindex)}
		err := unix.SetsockoptIPv6Mreq(p.groups, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, group)
		if err != nil && !errors.Is(err, unix.EADDRINUSE) { // two addresses may have one group
			return fmt.Errorf("join %s: %w", solicited(a), err)
		}
	}
	return nil
}

// send sends one probe for each address.
func (p *prober) send() error {
	for i, fd := range p.fds {
		if p.protocols[i] == unix.ETH_P_ARP {
			to := linkAddress(p.ifindex, unix.ETH_P_ARP, p.arpType, p.bcast)
			for _, a := range p.v4 {
				probe := arpRequest(p.arpType, p.hw, netip.IPv4Unspecified(), a)
				if err := sendto(int(fd.Fd), probe, to); err != nil {
					return fmt.Errorf("send ARP request for %s: %w", a, err)
				}
			}
			continue
		}
		for _, a := range p.v6 {
			to := linkAddress(p.ifindex, unix.ETH_P_IPV6, p.arpType, groupLink(p.arpType, p.bcast, solicited(a)))
			if err := sendto(int(fd.Fd), solicitation(a, p.nonce), to); err != nil {
				return fmt.Errorf("send neighbour solicitation for %s: %w", a, err)
			}
		}
	}
	return nil
}

// listen judges what arrives until then.
func (p *prober) listen(ctx context.Context, until time.Time) error {
	for {
		left := time.Until(until)
		if left <= 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("probe addresses: %w", err)
		}
		if _, err := unix.Poll(p.fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("probe addresses: %w", err)
		}
		for i, fd := range p.fds {
			if fd.Revents == 0 {
				continue
			}
			if c, err := p.receive(int(fd.Fd), p.protocols[i]); err != nil {
				return fmt.Errorf("probe addresses: %w", err)
			} else if c != nil {
				return c
			}
		}
	}
}

// receive reads one packet, and tells which conflict it shows; nil for none.
func (p *prober) receive(fd int, protocol uint16) (*ConflictError, error) {
	var b [2048]byte // the packets looked for are shorter
	n, from, err := unix.Recvfrom(fd, b[:], 0)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("receive: %w", err)
	}
	if protocol == unix.ETH_P_ARP {
		return p.judgeARP(b[:n]), nil
	}
	var by net.HardwareAddr
	if ll, ok := from.(*unix.SockaddrLinklayer); ok && int(ll.Halen) <= len(ll.Addr) {
		by = bytes.Clone(ll.Addr[:ll.Halen])
	}
	return p.judgeND(b[:n], by), nil
}
