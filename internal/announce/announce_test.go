package announce

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// pair is a veth pair between the calling thread's network namespace, which is new, and another new one, the peer.
type pair struct {
	t        testing.TB
	ours     netlink.Link
	peer     *netlink.Handle
	theirs   netlink.Link
	obsolete net.HardwareAddr // what the peer believes at first
}

// newPair leaves the thread locked: it ends with the test's goroutine, and both namespaces with it.
func newPair(t testing.TB) *pair {
	t.Helper()
	runtime.LockOSThread()
	far := must(netns.New())(t)
	defer far.Close()
	near := must(netns.New())(t)
	defer near.Close()
	p := &pair{t: t, obsolete: net.HardwareAddr{2, 0, 0, 0, 0, 0x99}}
	p.peer = must(netlink.NewHandleAt(far))(t)
	t.Cleanup(p.peer.Close)
	ok(
		t,
		netlink.LinkAdd(
			&netlink.Veth{
				LinkAttrs:     netlink.LinkAttrs{Name: "ours"},
				PeerName:      "theirs",
				PeerNamespace: netlink.NsFd(far),
			},
		),
	)
	p.ours = must(netlink.LinkByName("ours"))(t)
	p.theirs = must(p.peer.LinkByName("theirs"))(t)
	// A namespace without any IPv4 address has no routing table, and then takes no ARP as gratuitous.
	ok(t, p.peer.AddrAdd(p.theirs, must(netlink.ParseAddr("10.9.0.254/24"))(t)))
	ok(t, netlink.LinkSetUp(p.ours))
	ok(t, p.peer.LinkSetUp(p.theirs))
	p.ready()
	return p
}

// ready waits until the kernel has seen the carrier on both sides: before that, which can take a second, frames are
// dropped (net/core/link_watch.c).
func (p *pair) ready() {
	p.t.Helper()
	sandbox.Until(p.t, "the veth pair has a carrier", func() bool {
		ours := must(netlink.LinkByName("ours"))(p.t)
		theirs := must(p.peer.LinkByName("theirs"))(p.t)
		return ours.Attrs().OperState == netlink.OperUp && theirs.Attrs().OperState == netlink.OperUp
	})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// have puts the addresses on our side, and stale entries for them on the peer's.
func (p *pair) have(addrs ...string) (out []netip.Prefix) {
	p.t.Helper()
	for _, s := range addrs {
		a := netip.MustParsePrefix(s)
		out = append(out, a)
		ok(p.t, netlink.AddrAdd(p.ours, &netlink.Addr{
			IPNet: &net.IPNet{
				IP:   a.Addr().AsSlice(),
				Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen()),
			},
			Flags: unix.IFA_F_NODAD,
		}))
		p.stale(a.Addr())
	}
	return out
}

func (p *pair) stale(a netip.Addr) {
	p.t.Helper()
	ok(p.t, p.peer.NeighSet(&netlink.Neigh{
		LinkIndex: p.theirs.Attrs().Index, IP: a.AsSlice(), HardwareAddr: p.obsolete, State: netlink.NUD_STALE,
	}))
}

func (p *pair) announce(addrs []netip.Prefix) error {
	return Announce(p.ours.Attrs().Index, unix.ARPHRD_ETHER, p.ours.Attrs().HardwareAddr, etherBcast, addrs)
}

// learned waits until the peer's entry for the address has the hardware address.
func (p *pair) learned(a netip.Addr, want net.HardwareAddr) {
	p.t.Helper()
	var got net.HardwareAddr
	if !sandbox.Soon(func() bool {
		for _, n := range must(p.peer.NeighList(p.theirs.Attrs().Index, netlink.FAMILY_ALL))(p.t) {
			if n.IP.Equal(a.AsSlice()) {
				got = n.HardwareAddr
			}
		}
		return slices.Equal(got, want)
	}) {
		p.t.Errorf("%s: the peer has %s, want %s", a, got, want)
	}
}

func TestPeerLearns(t *testing.T) {
	for name, addrs := range map[string][]string{
		"IPv4":              {"10.9.0.1/24"},
		"host address":      {"10.9.0.1/32"},
		"several prefixes":  {"10.9.0.1/24", "10.9.1.1/24"},
		"secondary":         {"10.9.0.1/24", "10.9.0.2/24"},
		"prefix in another": {"10.0.0.1/8", "10.9.0.2/24"},
		"IPv6":              {"fd00:9::1/64", "fd00:9::2/64"},
		"dual stack":        {"10.9.0.1/24", "fd00:9::1/64"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			have := p.have(addrs...)
			// An entry the announcement says nothing about has to stay as it is, or this test proves nothing.
			bystander := netip.MustParseAddr("10.9.0.77")
			p.stale(bystander)
			if err := p.announce(have); err != nil {
				t.Fatal(err)
			}
			for _, a := range have {
				p.learned(a.Addr(), p.ours.Attrs().HardwareAddr)
			}
			p.learned(bystander, p.obsolete)
		})
	}
}

// routing.sourceBased sets arp_announce to 2, which makes the kernel choose the sender of an ARP request itself.
func TestPeerLearnsWithARPAnnounce(t *testing.T) {
	p := newPair(t)
	ok(t, os.WriteFile("/proc/sys/net/ipv4/conf/ours/arp_announce", []byte("2"), 0))
	have := p.have("10.9.0.1/24", "10.9.0.2/24")
	if err := p.announce(have); err != nil {
		t.Fatal(err)
	}
	for _, a := range have {
		p.learned(a.Addr(), p.ours.Attrs().HardwareAddr)
	}
}

// The kernel repeats the announcement of an IPv4 address, so a link that gets its carrier later is no loss.
func TestPeerLearnsAfterTheCarrier(t *testing.T) {
	p := newPair(t)
	a := netip.MustParsePrefix("10.9.0.1/24")
	for range 5 {
		ok(t, p.peer.LinkSetDown(p.theirs))
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}
		ok(t, netlink.AddrReplace(p.ours, addr))
		begun := time.Now()
		if err := p.announce([]netip.Prefix{a}); err != nil {
			t.Fatal(err)
		}
		ok(t, p.peer.LinkSetUp(p.theirs))
		p.stale(a.Addr())
		if time.Since(begun) < time.Second { // else the repetitions may have been before: once more
			break
		}
	}
	p.learned(a.Addr(), p.ours.Attrs().HardwareAddr)
}

func TestNoSuchInterface(t *testing.T) {
	p := newPair(t)
	err := Announce(
		12345,
		unix.ARPHRD_ETHER,
		p.ours.Attrs().HardwareAddr,
		etherBcast,
		[]netip.Prefix{
			netip.MustParsePrefix("10.9.0.1/24"),
			netip.MustParsePrefix("10.9.0.2/24"),
			netip.MustParsePrefix("fd00:9::1/64"),
		},
	)
	if !errors.Is(err, unix.ENODEV) || !errors.Is(err, unix.ENXIO) {
		t.Errorf("error %v, want one that joins ENODEV and ENXIO", err)
	}
	if joined, is := err.(interface{ Unwrap() []error }); !is || len(joined.Unwrap()) != 3 {
		t.Errorf("error %v, want one part for each address", err)
	}
}

// One address that can't be announced does not keep the others from it.
func TestTentativeAddress(t *testing.T) {
	p := newPair(t)
	have := p.have("fd00:9::1/64")
	tentative := netip.MustParsePrefix("fd00:9::2/64")
	ok(
		t,
		netlink.AddrAdd(
			p.ours,
			&netlink.Addr{IPNet: &net.IPNet{IP: tentative.Addr().AsSlice(), Mask: net.CIDRMask(64, 128)}},
		),
	)
	err := p.announce([]netip.Prefix{tentative, have[0]})
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("error %v, want EINVAL", err)
	}
	p.learned(have[0].Addr(), p.ours.Attrs().HardwareAddr)
}

// The IPv4 address of each run is the same: only the way it is announced differs.
func BenchmarkAnnounce(b *testing.B) {
	p := newPair(b)
	index, hw := p.ours.Attrs().Index, p.ours.Attrs().HardwareAddr
	v4, v6 := []netip.Addr{p.have("10.9.0.1/24")[0].Addr()}, []netip.Addr{p.have("fd00:9::1/64")[0].Addr()}
	for name, announce := range map[string]func() error{
		"kernel":       func() error { return ask(index, v4) },
		"packetSocket": func() error { return sendARP(index, unix.ARPHRD_ETHER, hw, etherBcast, v4) },
		"IPv6":         func() error { return sendNA(index, unix.ARPHRD_ETHER, hw, v6) },
	} {
		for range b.N {
			start := time.Now()
			if err := announce(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(start).Microseconds()), name+"-us/op")
		}
	}
}
