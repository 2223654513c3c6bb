package link_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// routes shows all routes of both families as ip does, but for those that the kernel makes for an address.
func routes(t *testing.T, n sandbox.Netns) string {
	t.Helper()
	var out []string
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(n.IP(t, family, "-d", "route", "show", "table", "all")) {
			if !strings.Contains(line, " proto kernel ") {
				out = append(
					out,
					family+" "+strings.ReplaceAll(strings.TrimSpace(line), " table main", ""),
				) // not always shown
			}
		}
	}
	return strings.Join(out, "\n")
}

// comingBack are routes as ip takes them.
var comingBack = map[string][]string{
	"gateway":     {"10.8.0.0/16 via 10.1.0.9"},
	"link":        {"10.8.0.0/16"},
	"default":     {"default via 10.1.0.9 metric 900"},
	"source":      {"10.8.0.0/16 via 10.1.0.9 src 10.1.0.2"},
	"on-link":     {"10.8.0.0/16 via 192.0.2.1 onlink"},
	"metrics":     {"10.8.0.0/16 mtu 1400 advmss 1300 window 9000 initcwnd 20 quickack 1 rto_min 5ms"},
	"locked mtu":  {"10.8.0.0/16 mtu lock 1400"},
	"congestion":  {"10.8.0.0/16 congctl cubic"},
	"features":    {"10.8.0.0/16 features ecn"},
	"table":       {"10.8.0.0/16 via 10.1.0.9 table 100"},
	"large table": {"10.8.0.0/16 table 4000000000", "default via 10.1.0.9 table 20003"},
	"tos":         {"10.8.0.0/16 tos 0x10"},
	"metric":      {"10.8.0.0/16 metric 5", "10.8.0.0/16 via 10.1.0.9 metric 6"},
	"protocol": {
		"10.8.0.0/16 proto static",
		"10.9.0.0/16 proto bgp via 10.1.0.9",
		"10.7.0.0/16 proto dhcp",
	},
	"scope":            {"10.8.0.0/16 scope link", "10.9.0.1/32 scope host"},
	"gateway of IPv6":  {"10.8.0.0/16 via inet6 fe80::9"},
	"encapsulated":     {"10.8.0.0/16 encap ip id 7 dst 10.1.0.9 ttl 3"},
	"local":            {"local 10.8.0.0/16"},
	"IPv6 gateway":     {"-6 2001:db8:8::/48 via 2001:db8::9"},
	"IPv6 link-local":  {"-6 2001:db8:8::/48 via fe80::9"},
	"IPv6 link":        {"-6 2001:db8:8::/48"},
	"IPv6 default":     {"-6 default via 2001:db8::9 metric 900"},
	"IPv6 source":      {"-6 2001:db8:8::/48 src 2001:db8::1"},
	"IPv6 on-link":     {"-6 2001:db8:8::/48 via 2001:db8:9::1 onlink"},
	"IPv6 metrics":     {"-6 2001:db8:8::/48 mtu 1400 advmss 1300 hoplimit 9"},
	"IPv6 table":       {"-6 2001:db8:8::/48 via 2001:db8::9 table 4000000000"},
	"IPv6 metric":      {"-6 2001:db8:8::/48 metric 5", "-6 2001:db8:8::/48 via 2001:db8::9 metric 6"},
	"IPv6 preference":  {"-6 2001:db8:8::/48 via fe80::9 pref high", "-6 2001:db8:7::/48 via fe80::9 pref low"},
	"IPv6 protocol":    {"-6 2001:db8:8::/48 proto static"},
	"IPv6 from":        {"-6 2001:db8:8::/48 from 2001:db8:1::/48 via 2001:db8::9"},
	"IPv6 host":        {"-6 2001:db8:8::1/128"},
	"via a link route": {"10.8.0.0/16", "10.9.0.0/16 via 10.8.0.1"},
	"both":             {"10.8.0.0/16 via 10.1.0.9", "-6 2001:db8:8::/48 via 2001:db8::9"},
	"several gateways": {
		"-6 2001:db8:8::/48 metric 7 via 2001:db8::9",
		"-6 2001:db8:8::/48 metric 8 via 2001:db8::8",
	},
	"IPv6 encapsulated": {"-6 2001:db8:8::/48 encap ip6 id 7 dst 2001:db8::9"},
}

// Every route that ip can make is read and made again, such that ip shows no difference.
func TestRoutesComeBack(t *testing.T) {
	for name, list := range comingBack {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, peer := sandbox.New(t), sandbox.New(t)
			n.Veth(t, "v0", peer, "v1")
			n.IP(t, "addr", "add", "10.1.0.1/24", "dev", "v0")
			n.IP(t, "addr", "add", "10.1.0.2/24", "dev", "v0")
			n.IP(t, "addr", "add", "2001:db8::1/64", "nodad", "dev", "v0")
			for _, r := range list {
				r, v6 := strings.CutPrefix(r, "-6 ")
				family := map[bool]string{false: "-4", true: "-6"}[v6]
				n.IP(t, append(append([]string{family, "route", "add"}, strings.Fields(r)...), "dev", "v0")...)
			}
			c := n.Link(t)
			index := byName(t, c, "v0").Index
			before := routes(t, n)
			saved := ownRoutes(t, n)
			if len(saved) != len(list) {
				t.Errorf("%d routes read, want %d", len(saved), len(list))
			}
			for _, r := range saved {
				if err := c.DelRoute(index, r); err != nil {
					t.Fatal(err)
				}
			}
			if s := routes(t, n); s != "" {
				t.Fatalf("not removed:\n%s", s)
			}
			for _, r := range saved {
				if err := c.AddRoute(index, r); err != nil {
					t.Fatal(err)
				}
				if err := c.AddRoute(index, r); !errors.Is(err, unix.EEXIST) {
					t.Errorf("second time: %v", err)
				}
			}
			if diff := cmp.Diff(before, routes(t, n)); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

// ownRoutes are those that did not come with an address.
func ownRoutes(t *testing.T, n sandbox.Netns) []device.Route {
	t.Helper()
	c := n.Link(t)
	all, err := c.Routes(byName(t, c, "v0").Index)
	if err != nil {
		t.Fatal(err)
	}
	var out []device.Route
	for _, r := range all {
		if r.Protocol != unix.RTPROT_KERNEL {
			out = append(out, r)
		}
	}
	return out
}

// A route over a nexthop object comes back as a plain one: the object dies with the netdev's move.
func TestNexthopObject(t *testing.T) {
	t.Parallel()
	n, peer := sandbox.New(t), sandbox.New(t)
	n.Veth(t, "v0", peer, "v1")
	n.IP(t, "addr", "add", "10.1.0.1/24", "dev", "v0")
	n.IP(t, "nexthop", "add", "id", "7", "via", "10.1.0.9", "dev", "v0")
	n.IP(t, "route", "add", "10.8.0.0/16", "nhid", "7", "proto", "bgp")
	saved := ownRoutes(t, n)
	n.IP(t, "nexthop", "flush")
	c := n.Link(t)
	for _, r := range saved {
		if err := c.AddRoute(byName(t, c, "v0").Index, r); err != nil {
			t.Error(err)
		}
	}
	if got, want := routes(t, n), "-4 unicast 10.8.0.0/16 via 10.1.0.9 dev v0 proto bgp scope global"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A route over several netdevs is reported, so that the default route of a node is seen, but not made again.
func TestMultipath(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	n.IP(t, "addr", "add", "10.1.0.1/24", "dev", "v0")
	n.IP(t, "addr", "add", "10.2.0.1/24", "dev", "v1")
	n.IP(t, "route", "add", "default", "nexthop", "via", "10.1.0.9", "nexthop", "via", "10.2.0.9")
	n.IP(
		t,
		"-6",
		"route",
		"add",
		"default",
		"nexthop",
		"via",
		"fe80::9",
		"dev",
		"v1",
		"nexthop",
		"via",
		"fe80::9",
		"dev",
		"v0",
	)
	got := ownRoutes(t, n)
	if len(got) != 2 {
		t.Fatalf("%d routes, want 2: %v", len(got), got)
	}
	for i, dst := range []string{"0.0.0.0/0", "::/0"} {
		if r := got[i]; r.Dst != prefix(dst) || !r.Multipath || r.Raw != nil {
			t.Errorf("%s: %+v", dst, r)
		}
	}
}

// What we make up ourselves, without a recorded message.
func TestAddRoute(t *testing.T) {
	tests := map[string]struct {
		route device.Route
		want  string
	}{
		"link": {
			device.Route{Dst: prefix("10.8.0.0/16"), Scope: unix.RT_SCOPE_LINK},
			"-4 unicast 10.8.0.0/16 dev v0 proto boot scope link",
		},
		"gateway": {
			device.Route{Dst: prefix("10.8.0.0/16"), Gateway: addr("10.1.0.9")},
			"-4 unicast 10.8.0.0/16 via 10.1.0.9 dev v0 proto boot scope global",
		},
		"host bits in destination": {
			device.Route{
				Dst:     prefix("10.8.1.2/16"),
				Gateway: addr("10.1.0.9"),
			},
			"-4 unicast 10.8.0.0/16 via 10.1.0.9 dev v0 proto boot scope global",
		},
		"default": {
			device.Route{
				Dst:      prefix("0.0.0.0/0"),
				Gateway:  addr("10.1.0.9"),
				Table:    20002,
				Priority: 3,
				Src:      addr("10.1.0.1"),
			},
			"-4 unicast default via 10.1.0.9 dev v0 table 20002 proto boot scope global src 10.1.0.1 metric 3",
		},
		"metrics": {
			device.Route{Dst: prefix("10.8.0.0/16"), Gateway: addr("10.1.0.9"), MTU: 1400, AdvMSS: 1300},
			"-4 unicast 10.8.0.0/16 via 10.1.0.9 dev v0 proto boot scope global mtu 1400 advmss 1300",
		},
		"on-link": {
			device.Route{Dst: prefix("10.8.0.0/16"), Gateway: addr("192.0.2.1"), Flags: unix.RTNH_F_ONLINK},
			"-4 unicast 10.8.0.0/16 via 192.0.2.1 dev v0 proto boot scope global onlink",
		},
		"IPv6": {
			device.Route{Dst: prefix("2001:db8:8::/48"), Gateway: addr("2001:db8::9"), Table: 20002},
			"-6 unicast 2001:db8:8::/48 via 2001:db8::9 dev v0 table 20002 proto boot scope global metric 1024 pref " +
				"medium",
		},
		"IPv6 default": {
			device.Route{Dst: prefix("::/0"), Gateway: addr("fe80::9"), Priority: 5, MTU: 1400},
			"-6 unicast default via fe80::9 dev v0 proto boot scope global metric 5 mtu 1400 pref medium",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, peer := sandbox.New(t), sandbox.New(t)
			n.Veth(t, "v0", peer, "v1")
			n.IP(t, "addr", "add", "10.1.0.1/24", "dev", "v0")
			n.IP(t, "addr", "add", "2001:db8::1/64", "nodad", "dev", "v0")
			c := n.Link(t)
			tt.route.Type, tt.route.Protocol = unix.RTN_UNICAST, unix.RTPROT_BOOT
			if tt.route.Table == 0 {
				tt.route.Table = unix.RT_TABLE_MAIN
			}
			if err := c.AddRoute(byName(t, c, "v0").Index, tt.route); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, routes(t, n)); diff != "" {
				t.Errorf("-want +ip:\n%s", diff)
			}
		})
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func TestRouteRefused(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	c := n.Link(t)
	r := device.Route{
		Dst:     prefix("10.8.0.0/16"),
		Gateway: addr("10.1.0.9"),
		Table:   unix.RT_TABLE_MAIN,
		Type:    unix.RTN_UNICAST,
	}
	err := c.AddRoute(byName(t, c, "v0").Index, r)
	if !errors.Is(err, unix.ENETUNREACH) || !strings.Contains(err.Error(), "10.8.0.0/16 via 10.1.0.9") {
		t.Errorf("unreachable gateway: %v", err)
	}
	r.Raw = []byte{2, 16} // from a damaged journal
	if err := c.AddRoute(byName(t, c, "v0").Index, r); err == nil {
		t.Error("a route of two bytes was added")
	}
}
