package fabric_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// keepsHost is a configuration with the addresses of the host.
func keepsHost(fields ...string) string {
	return confOf("1.1.0", append([]string{`"device":"v0","hostAddresses":true`}, fields...)...)
}

// contains asserts that a text has each of these.
func contains(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%s: want %q in\n%s", what, w, text)
		}
	}
}

// Everything that a host configures of addresses, routes and rules is in the pod as it was on the host, but for its
// default route and what is of another interface. CHECK compares it, and DEL leaves nothing of it in the pod.
func TestHostAddresses(t *testing.T) {
	t.Parallel()
	n := newNode(t,
		"addr add 10.1.0.1/24 brd + dev v0", "addr add 10.1.0.2/24 dev v0", "addr add 10.7.0.1/32 dev v0 noprefixroute",
		"addr add 2001:db8:1::1/64 dev v0 nodad", "addr add 2001:db8:1::2/64 dev v0 nodad preferred_lft 0",
		"route add 10.9.0.0/16 via 10.1.0.9 src 10.1.0.2 mtu 1400", "-6 route add 2001:db8:9::/48 via fe80::9 dev v0",
		"route add default via 10.1.0.9 table 200", "route add 10.1.0.0/24 dev v0 table 200",
		"rule add from 10.1.0.1 lookup 200 pref 300", "rule add from 10.1.0.1 fwmark 7 lookup 200 pref 301",
		"rule add from 10.8.0.1 lookup 200 pref 302", "rule add from 10.1.0.2 lookup 201 pref 303",
		"-6 rule add from 2001:db8:1::/64 lookup 200 pref 304")
	podBefore := n.pod.State(t)
	c := n.call("ADD", keepsHost())
	plan, err := n.plan(c)
	if err != nil {
		t.Fatalf("%v\n%s", err, plan)
	}
	contains(t, "plan", plan, "ip addr add 10.1.0.1/24", "ip route add default via 10.1.0.9 table 200",
		"ip rule add from 10.1.0.1/32 lookup 200 pref 300", "accept_ra_defrtr=0")
	result := n.must(t, c).stdout
	contains(t, "result", result, `"address": "10.1.0.1/24"`, `"address": "2001:db8:1::1/64"`, `"dst": "10.9.0.0/16"`)
	addrs := n.pod.IP(t, "addr", "show", "dev", "net1")
	contains(t, "addresses", addrs, "10.1.0.1/24 brd 10.1.0.255", "10.1.0.2/24", "secondary", "10.7.0.1/32",
		"2001:db8:1::1/64", "2001:db8:1::2/64 scope global nodad deprecated")
	if strings.Index(addrs, "10.1.0.1/24") > strings.Index(addrs, "10.1.0.2/24") {
		t.Errorf("another address is the primary one:\n%s", addrs)
	}
	contains(t, "routes", n.pod.IP(t, "route", "show", "table", "all"),
		"10.9.0.0/16 via 10.1.0.9 dev net1 src 10.1.0.2 mtu 1400", "default via 10.1.0.9 dev net1 table 200",
		"10.1.0.0/24 dev net1 table 200 scope link")
	contains(t, "routes", n.pod.IP(t, "-6", "route"), "2001:db8:9::/48 via fe80::9")
	rules := n.pod.IP(t, "rule")
	contains(t, "rules", rules, "300:\tfrom 10.1.0.1 lookup 200")
	for _, other := range []string{"301:", "302:", "303:"} {
		if strings.Contains(rules, other) {
			t.Errorf("rule %s is in the pod:\n%s", other, rules)
		}
	}
	if six := n.pod.IP(t, "-6", "rule"); strings.Contains(six, "304:") {
		t.Errorf("a rule to a table without routes of its family:\n%s", six)
	}
	c.command, c.conf = "CHECK", with(t, c.conf, result)
	n.must(t, c)
	n.pod.IP(t, "addr", "del", "10.7.0.1/32", "dev", "net1")
	if a := n.run(t, c); a.ok || !strings.Contains(a.Msg, "10.7.0.1/32") {
		t.Errorf("CHECK without an address: %+v", a)
	}
	c.command = "DEL"
	n.must(t, c)
	n.same(t, "after DEL")
	if after := n.pod.State(t); after != podBefore {
		t.Errorf("the pod (-before +after):\n%s", cmp.Diff(podBefore, after))
	}
}

// With routing by source the rail's own table has the routes of the main table, and the default route that a router has
// advertised.
func TestHostAddressesOfRail(t *testing.T) {
	t.Parallel()
	n := newNode(t, "addr add 2001:db8:1::1/64 dev v0 nodad", "-6 route add 2001:db8:9::/48 via fe80::9 dev v0",
		"-6 route add default via fe80::9 dev v0 proto ra")
	n.policy(t, strings.TrimSuffix(sandbox.AllowVirtual, "}")+`,"allowDefaultRoute":["v0"]}`)
	c := n.call("ADD", keepsHost(`"routing":{"sourceBased":true}`))
	result := n.must(t, c).stdout
	routes := n.pod.IP(t, "-6", "route", "show", "table", "all")
	contains(t, "routes", routes, "default via fe80::9 dev net1 table 20",
		"2001:db8:9::/48 via fe80::9 dev net1 table 20",
		"2001:db8:9::/48 via fe80::9 dev net1 metric")
	if main := n.pod.IP(t, "-6", "route"); strings.Contains(main, "default") {
		t.Errorf("the pod has a default route by the rail:\n%s", main)
	}
	c.command, c.conf = "CHECK", with(t, c.conf, result)
	n.must(t, c)
	c.command = "DEL"
	n.must(t, c)
	n.host.IP(t, "-6", "route", "add", "default", "via", "fe80::9", "dev", "v0", "proto", "ra") // the router would
	n.same(t, "after DEL")
}

// What can't go along is refused with a reason, before anything changes.
func TestHostAddressesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		host []string
		conf []string
		code uint
		want string
	}{
		"none":       {nil, nil, 11, "no address on the host but those of its link"},
		"temporary":  {[]string{"addr add 2001:db8:1::1/64 dev v0 nodad mngtmpaddr"}, nil, 0, ""},
		"DHCP lease": {[]string{"addr add 10.1.0.1/24 dev v0 valid_lft 600 preferred_lft 600"}, nil, 7, "is a lease"},
		"kept lease": {[]string{"addr add 10.1.0.1/24 dev v0 valid_lft 600 preferred_lft 600"},
			[]string{`"keepLeases":true`}, 0, ""},
		"DHCPv6": {[]string{"addr add 2001:db8::7/128 dev v0 valid_lft 600 preferred_lft 600"}, nil, 7,
			"2001:db8::7/128"},
		"unpublished": {[]string{"addr add 10.1.0.1/24 dev v0"}, []string{`"ignoreRADefaultRoute":true`}, 104,
			"published no configuration"},
		"other addresses": {nil, []string{`"runtimeConfig":{"ips":["10.1.0.7/24"]}`}, 7,
			"without addresses of the pod's own"},
		"IPAM":       {nil, []string{`"ipam":{"type":"static"}`}, 7, `without "ipam"`},
		"IPoIB":      {nil, []string{`"mode":"ipoib","master":"v0"`}, 7, `in mode "device" only`},
		"two values": {nil, []string{`"hostAddresses":"yes"`}, 6, "is there twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.host...)
			c := n.call("ADD", keepsHost(tt.conf...))
			a := n.run(t, c)
			if a.ok != (tt.code == 0) || a.Code != tt.code || !strings.Contains(a.Msg, tt.want) {
				t.Errorf("%+v; want code %d and %q", a, tt.code, tt.want)
			}
			c.command = "DEL"
			n.must(t, c)
			n.same(t, "after DEL")
		})
	}
}

// advertise sends router advertisements (RFC 4861, section 4.2) on a link until the test ends: one each second, with a
// default route, and with a prefix that is valid for so many seconds.
func advertise(t *testing.T, in sandbox.Netns, link string, prefix netip.Prefix, valid byte) {
	t.Helper()
	var fd, index int
	err := in.Open(t).Do(func() (err error) {
		i, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		index = i.Index
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
		return err
	})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255)
	}
	if err != nil {
		t.Fatal(err)
	}
	packet := []byte{134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0,
		3, 4, byte(prefix.Bits()), 0xc0, 0, 0, 0, valid, 0, 0, 0, valid - 1, 0, 0, 0, 0}
	packet = append(packet, prefix.Addr().AsSlice()...)
	to := &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(index)}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			_ = unix.Sendto(fd, packet, 0, to) // without a carrier it fails
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended; unix.Close(fd) })
}

// publish makes a configuration one of the agent's.
func (n *node) publish(t *testing.T, conf string) {
	t.Helper()
	dir := filepath.Join(n.state, policy.PublishedDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, policy.Published("rail")), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Router advertisements go on in the pod: the address, by any rule its identifier was made, is there for three
// lifetimes, and the pod takes no default route. A Fabric may say that the host's is not needed.
func TestHostAddressesAdvertised(t *testing.T) {
	const lifetime = 8 // seconds
	prefix := netip.MustParsePrefix("2001:db8:ad::/64")
	for name, tt := range map[string]struct{ host []string }{
		"kernel": {nil},
		"program": {[]string{"addr add 2001:db8:ad::77:1/64 dev v0 noprefixroute valid_lft 16 preferred_lft 15",
			"-6 route add default via fe80::9 dev v0 proto ra"}},
		"token":          {[]string{"token set ::99:1 dev v0"}},
		"off in the pod": {nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			address := ""
			if name == "off in the pod" {
				n.pod.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
			}
			if name == "program" {
				n.host.Sysctl(t, "net/ipv6/conf/v0/accept_ra", "0")
			}
			for _, c := range tt.host {
				n.host.IP(t, strings.Fields(c)...)
			}
			advertise(t, n.far, "v1", prefix, lifetime)
			sandbox.Until(t, "the host has the address", func() bool {
				out := n.host.IP(t, "-6", "addr", "show", "dev", "v0", "scope", "global", "-tentative")
				for _, f := range strings.Fields(out) {
					if strings.HasPrefix(f, "2001:db8:ad:") {
						address = f
					}
				}
				return address != ""
			})
			if want := map[string]string{"program": "::77:1", "token": "::99:1"}[name]; want != "" &&
				address != "2001:db8:ad:"+strings.TrimPrefix(want, ":")+"/64" {
				t.Fatalf("the host has %s", address)
			}
			before := remaining.ReplaceAllString(n.host.State(t), "$1 SOME")
			if a := n.run(t, n.call("ADD", keepsHost())); a.Code != 104 || !strings.Contains(a.Msg, "default route") {
				t.Errorf("ADD with a default route: %+v", a)
			}
			ours := keepsHost(`"ignoreRADefaultRoute":true`)
			n.publish(t, ours)
			c := n.call("ADD", ours)
			n.must(t, c)
			for end := time.Now().Add(3 * lifetime * time.Second); time.Now().Before(end); {
				got := n.pod.IP(t, "-6", "addr", "show", "dev", "net1", "scope", "global")
				if !strings.Contains(got, address) || strings.Count(got, "inet6") != 1 {
					t.Fatalf("want %s alone in the pod:\n%s", address, got)
				}
				if routes := n.pod.IP(t, "-6", "route"); strings.Contains(routes, "default") {
					t.Fatalf("a default route in the pod:\n%s", routes)
				}
				select {
				case <-t.Context().Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
			contains(t, "routes", n.pod.IP(t, "-6", "route"), prefix.String()+" dev net1 proto kernel")
			c.command = "DEL"
			n.must(t, c)
			if name == "program" { // which is not there to see to it
				return
			}
			var diff string
			if !sandbox.Soon(func() bool {
				diff = cmp.Diff(before, remaining.ReplaceAllString(n.host.State(t), "$1 SOME"))
				return diff == ""
			}) {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}
