package announce

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (p *pair) probe(addrs ...string) error {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	hw := p.ours.Attrs().HardwareAddr
	return Probe(p.t.Context(), p.ours.Attrs().Index, unix.ARPHRD_ETHER, hw, etherBcast, list)
}

func (p *pair) peerHas(addr string) {
	a := must(netlink.ParseAddr(addr))(p.t)
	a.Flags = unix.IFA_F_NODAD
	ok(p.t, p.peer.AddrAdd(p.theirs, a))
	for tentative := true; tentative; { // for a moment, even so: it does not answer then
		tentative = false
		for _, a := range must(p.peer.AddrList(p.theirs, netlink.FAMILY_V6))(p.t) {
			tentative = tentative || a.Flags&unix.IFA_F_TENTATIVE != 0
		}
	}
}

func TestProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		theirs string
		probed []string
		found  string
	}{
		"IPv4":                {"10.9.0.1/24", []string{"10.9.0.1"}, "10.9.0.1"},
		"IPv6":                {"fd00:9::1/64", []string{"fd00:9::1"}, "fd00:9::1"},
		"one of many":         {"10.9.0.3/24", []string{"10.9.0.1", "10.9.0.2", "10.9.0.3", "fd00:9::3"}, "10.9.0.3"},
		"the IPv6 of both":    {"fd00:9::3/64", []string{"10.9.0.3", "fd00:9::3"}, "fd00:9::3"},
		"free":                {"10.9.0.2/24", []string{"10.9.0.1", "fd00:9::1"}, ""},
		"the same last bytes": {"fd00:8::1/64", []string{"fd00:9::1"}, ""}, // and so the same group
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.peerHas(tt.theirs)
			began := time.Now()
			err := p.probe(tt.probed...)
			took := time.Since(began)
			var c *ConflictError
			switch {
			case tt.found == "" && (err != nil || took < 3*probeEvery):
				t.Errorf("after %v: %v", took, err)
			case tt.found != "" && (!errors.As(err, &c) || c.Addr.String() != tt.found ||
				!slices.Equal(c.By, p.theirs.Attrs().HardwareAddr)):
				t.Errorf("after %v: %v, want %s by %s", took, err, tt.found, p.theirs.Attrs().HardwareAddr)
			}
		})
	}
}

// Two hosts that probe one address at the same time both see that. Nothing is learnt from a probe.
func TestProbeOfTwo(t *testing.T) {
	for _, addr := range []string{"10.9.0.1", "fd00:9::1"} {
		p := newPair(t)
		a := netip.MustParseAddr(addr)
		us := &prober{arpType: unix.ARPHRD_ETHER, hw: p.ours.Attrs().HardwareAddr, v4: []netip.Addr{a}}
		sent := arpRequest(unix.ARPHRD_ETHER, etherHW, netip.IPv4Unspecified(), a)
		if a.Is6() {
			us.v4, us.v6, sent = nil, us.v4, solicitation(a, [6]byte{1})
		}
		judge := us.judgeARP
		if a.Is6() {
			judge = func(b []byte) *ConflictError { return us.judgeND(b, etherHW) }
		}
		if c := judge(sent); c == nil || c.Addr != a || !slices.Equal(c.By, etherHW) {
			t.Errorf("%s: %v", addr, c)
		}
		if err := p.probe(addr); err != nil { // our own probes are none of another host
			t.Errorf("%s: %v", addr, err)
		}
		for _, n := range must(p.peer.NeighList(p.theirs.Attrs().Index, netlink.FAMILY_ALL))(t) {
			if n.IP.Equal(a.AsSlice()) {
				t.Errorf("the peer has learnt %v", n)
			}
		}
	}
}

// Nothing that arrives does harm, and of what is no such packet nothing is concluded.
func FuzzProbeReceives(f *testing.F) {
	addr4, addr6 := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("fd00:9::1")
	f.Add(ARPAnnouncement(unix.ARPHRD_ETHER, etherHW, addr4), true)
	f.Add(ARPAnnouncement(unix.ARPHRD_INFINIBAND, ipoibHW, addr4), false)
	f.Add(solicitation(addr6, [6]byte{1}), true)
	f.Add(append(solicitation(addr6, [6]byte{1})[:lenIPv6], NeighbourAdvertisement(1, etherHW, addr6)...), true)
	f.Add(append(solicitation(addr6, [6]byte{1})[:lenIPv6], NeighbourAdvertisement(32, ipoibHW, addr6)...), false)
	f.Fuzz(func(t *testing.T, b []byte, ethernet bool) {
		p := &prober{arpType: unix.ARPHRD_INFINIBAND, hw: make(net.HardwareAddr, 20)}
		if ethernet {
			p.arpType, p.hw = unix.ARPHRD_ETHER, make(net.HardwareAddr, 6)
		}
		p.v4, p.v6 = []netip.Addr{addr4}, []netip.Addr{addr6}
		for _, c := range []*ConflictError{p.judgeARP(b), p.judgeND(b, nil)} {
			if c != nil && c.Addr != addr4 && c.Addr != addr6 {
				t.Errorf("%x: %v", b, c)
			}
		}
	})
}

func TestProbePackets(t *testing.T) {
	a := netip.MustParseAddr("fd00:1::12:3456")
	check(t, arpRequest(32, ipoibHW, netip.IPv4Unspecified(), netip.MustParseAddr("10.1.2.3")), `
		0020 0800 14 04 0001
		80000208fe800000000000000002c90300fa0010 00000000
		0000000000000000000000000000000000000000 0a010203`)
	check(t, solicitation(a, [6]byte{1, 2, 3, 4, 5, 6}), `
		60000000 0020 3a ff 00000000000000000000000000000000 ff0200000000000000000001ff123456
		87 00 fdc0 00000000 fd000001000000000000000000123456 0e01010203040506`)
	check(t, groupLink(1, etherBcast, solicited(a)), "3333ff123456")
	check(t, groupLink(32, ipoibBcast, solicited(a)), "00ffffffff12601bffff000000000001ff123456")
	na := append(solicitation(a, [6]byte{})[:lenIPv6], NeighbourAdvertisement(32, ipoibHW, a)...)
	p := &prober{arpType: 32, hw: make(net.HardwareAddr, 20), v6: []netip.Addr{a}}
	if c := p.judgeND(na, nil); c == nil || !slices.Equal(c.By, ipoibHW) {
		t.Errorf("%v", c)
	}
}

func TestProbeEnds(t *testing.T) {
	p := newPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Probe(ctx, p.ours.Attrs().Index, unix.ARPHRD_ETHER, p.ours.Attrs().HardwareAddr, etherBcast,
		[]netip.Addr{netip.MustParseAddr("10.9.0.1")})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := Probe(t.Context(), 1, unix.ARPHRD_LOOPBACK, nil, nil, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
