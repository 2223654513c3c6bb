package plan

import (
	"net/netip"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// addr is an address that is valid for ever, or for so many seconds.
func addr(prefix string, valid, flags uint32) device.Addr {
	return device.Addr{Prefix: netip.MustParsePrefix(prefix), Valid: valid, Preferred: valid, Flags: flags}
}

// Interface identifiers: one that all advertised addresses have is kept, several can't be. What the kernel makes, what
// only looks like an address yet, and what nothing renews does not go along.
func TestHostAddressing(t *testing.T) {
	n := &device.Netdev{Carrier: true, Addrs: []device.Addr{
		addr("2001:db8:2::7/64", 600, 0), addr("2001:db8:1::7/64", 600, 0),
		addr("2001:db8:1::f/64", 600, addrTemporary),
		addr("2001:db8:1::e/64", forever, addrDADFailed), addr("fe80::7/64", forever, addrPermanent),
		addr("10.0.0.1/24", forever, addrPermanent), addr("10.0.0.2/24", 600, 0),
	}}
	h := HostAddressing(&netconf.Config{}, n, nil, nil)
	if len(h.Addrs) != 3 || h.Addrs[0].String() != "10.0.0.1/24" || h.Addrs[1].String() != "2001:db8:1::7/64" {
		t.Errorf("addresses %v", h.Addrs)
	}
	if h.Token.String() != "::7" || len(h.Advertised) != 2 || h.Waits {
		t.Errorf("token %s of %v", h.Token, h.Advertised)
	}
	if len(h.Leases) != 1 || h.Leases[0].Prefix.String() != "10.0.0.2/24" {
		t.Errorf("leases %v", h.Leases)
	}
	h = HostAddressing(&netconf.Config{KeepLeases: true}, n, nil, nil)
	if len(h.Leases) != 0 || len(h.Full) != 4 || h.Full[1].Valid != forever {
		t.Errorf("kept leases %v: %v", h.Leases, h.Full)
	}
	n.Addrs = append(n.Addrs, addr("2001:db8:3::8/64", 600, 0), addr("2001:db8:4::9/64", forever, addrTentative))
	if h = HostAddressing(&netconf.Config{}, n, nil, nil); h.Token.IsValid() || !h.Waits {
		t.Errorf("token %s of %v, waits: %v", h.Token, h.Advertised, h.Waits)
	}
	n.Carrier = false // no check for duplicates ends
	if down := HostAddressing(&netconf.Config{}, n, nil, nil); down.Waits || len(down.Addrs) != len(h.Addrs)+1 {
		t.Errorf("without a carrier: %v, waits: %v", down.Addrs, down.Waits)
	}
}

// An address whose prefix is not on the link has no route to it in the rail's table either.
func TestHostAddressingOffLink(t *testing.T) {
	n := &device.Netdev{Addrs: []device.Addr{
		addr("2001:db8:1::7/64", forever, addrPermanent), addr("2001:db8:2::7/64", forever, addrPermanent),
	}}
	n.Addrs[0].NoRoute = true
	h := HostAddressing(&netconf.Config{SourceBased: true}, n, nil, nil)
	routes := RailRoutes(&h.Addressing, 20007)
	if len(routes) != 1 || routes[0].Dst.String() != "2001:db8:2::/64" {
		t.Errorf("routes of the rail: %v", routes)
	}
	if h.Full[1].Flags&addrNoPrefixRoute == 0 || h.Full[0].Flags&addrNoPrefixRoute != 0 {
		t.Errorf("addresses %+v", h.Full)
	}
}

// Routes that lead to networks which the interface has no address in the family of, or that are another interface's as
// well, or that have a source which stays, are not for the pod.
func TestHostAddressingRoutes(t *testing.T) {
	route := func(dst, via string, table uint32) device.Route {
		r := device.Route{Dst: netip.MustParsePrefix(dst), Table: table}
		if via != "" {
			r.Gateway = netip.MustParseAddr(via)
		}
		return r
	}
	lost := route("10.3.0.0/16", "10.0.0.9", tableMain)
	lost.Src = netip.MustParseAddr("10.0.0.99")
	shared := route("10.4.0.0/16", "", tableMain)
	shared.Multipath = true
	n := &device.Netdev{
		Addrs: []device.Addr{addr("10.0.0.1/24", forever, addrPermanent)},
		Routes: []device.Route{
			route("10.2.0.0/16", "10.0.0.9", tableMain), route("10.0.1.0/24", "", tableMain), lost, shared,
			route("2001:db8::/48", "fe80::9", tableMain), route("0.0.0.0/0", "10.0.0.9", tableMain),
			route("0.0.0.0/1", "10.0.0.9", tableMain), route("0.0.0.0/0", "10.0.0.9", 200),
		},
	}
	for sourceBased, want := range map[bool]string{
		false: "10.0.1.0/24;10.2.0.0/16 via 10.0.0.9;default via 10.0.0.9 table 200;",
		true:  "10.0.1.0/24;10.2.0.0/16 via 10.0.0.9;default via 10.0.0.9;default via 10.0.0.9 table 200;",
	} {
		got := ""
		for _, r := range HostAddressing(&netconf.Config{SourceBased: sourceBased}, n, nil, n.Routes).Routes {
			got += r.String() + ";"
		}
		if got != want {
			t.Errorf("source-based %v: %s\nwant %s", sourceBased, got, want)
		}
	}
}
