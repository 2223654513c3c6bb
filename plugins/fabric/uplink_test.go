package fabric_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// elsewhere is an interface beside v0 that has the way to the other networks.
var elsewhere = []string{
	"link add w0 type veth peer name w1", "link set w1 up", "link set w0 up", "addr add 10.2.0.1/24 dev w0",
	"addr add 2001:db8:2::1/64 dev w0 nodad",
}

// uplinks are the ways in which a host may reach others over v0, or over what sits on it.
var uplinks = map[string]struct {
	host   []string
	compat bool     // nexthop objects are shown as they are: net.ipv4.nexthop_compat_mode=0
	policy string   // beside allowVirtual
	found  string   // addresses that the agent has found
	want   []string // none: it may be moved
}{
	"RA":       {host: []string{"-6 route add default via fe80::9 dev v0 proto ra"}, want: []string{"default route"}},
	"redirect": {host: []string{"route add default via 10.1.0.9 proto redirect"}, want: []string{"default route"}},
	"halves": {
		host: []string{"route add 0.0.0.0/1 via 10.1.0.9", "route add 128.0.0.0/1 via 10.1.0.9"},
		want: []string{"a part of"},
	},
	"IPv6 half":  {host: []string{"-6 route add 8000::/1 via fe80::9 dev v0"}, want: []string{"a part of", "8000::/1"}},
	"IPv6 world": {host: []string{"-6 route add 2000::/3 via fe80::9 dev v0"}, want: []string{"a part of", "2000::/3"}},
	"nexthop object": {
		host:   []string{"nexthop add id 7 via 10.1.0.9 dev v0", "route add default nhid 7"},
		compat: true, want: []string{"default route"},
	},
	"IPv6 nexthop object": {
		host:   []string{"-6 nexthop add id 7 via fe80::9 dev v0", "-6 route add default nhid 7"},
		compat: true, want: []string{"default route"},
	},
	"nexthop group": {
		host: append([]string{
			"nexthop add id 7 via 10.1.0.9 dev v0", "nexthop add id 8 via 10.2.0.9 dev w0",
			"nexthop add id 9 group 7/8", "route add default nhid 9"}, elsewhere...),
		compat: true, want: []string{"default route"},
	},
	"another's nexthop object": {
		host:   append([]string{"nexthop add id 8 via 10.2.0.9 dev w0", "route add default nhid 8"}, elsewhere...),
		compat: true,
	},
	"another's IPv6 nexthop object": {
		host:   append([]string{"-6 nexthop add id 8 via fe80::9 dev w0", "-6 route add default nhid 8"}, elsewhere...),
		compat: true,
	},
	"IPv6 multipath": {
		host: append([]string{"-6 route add default nexthop via fe80::9 dev w0 nexthop via fe80::9 dev v0"},
			elsewhere...),
		want: []string{"default route"},
	},
	"table for all": {
		host: []string{"route add default via 10.1.0.9 table 200", "rule add pref 100 lookup 200"},
		want: []string{"default route", "table 200"},
	},
	"IPv6 table for all": {
		host: []string{"-6 route add default via fe80::9 dev v0 table 200", "-6 rule add pref 100 lookup 200"},
		want: []string{"default route", "table 200"},
	},
	"table for the host's packets": {
		host: []string{"route add default via 10.1.0.9 table 200", "rule add pref 100 iif lo lookup 200"},
		want: []string{"table 200"},
	},
	"table of all but a mark": {
		host: []string{"route add default via 10.1.0.9 table 200", "rule add pref 100 not fwmark 7 lookup 200"},
		want: []string{"table 200"},
	},
	"table from the node": {
		host:   []string{"route add default via 10.1.0.9 table 200", "rule add pref 100 from 10.2.0.1 lookup 200"},
		policy: `,"nodeAddresses":["10.2.0.1"]`, want: []string{"table 200"},
	},
	"table of a rail": {
		host: []string{"route add default via 10.1.0.9 table 200", "rule add pref 100 from 10.1.0.1 lookup 200",
			"rule add pref 101 fwmark 7 lookup 200", "rule add pref 102 oif v0 lookup 200",
			"rule add pref 103 to 10.9.0.0/16 lookup 200", "rule add pref 104 iif w0 lookup 200",
			"rule add pref 105 uidrange 1000-2000 lookup 200"},
	},
	"table without a rule": {host: []string{"route add default via 10.1.0.9 table 200"}},
	"on a macvlan": {
		host: []string{"link add link v0 mv0 type macvlan", "link set mv0 up", "addr add 10.3.0.1/24 dev mv0",
			"route add default via 10.3.0.9"},
		want: []string{"v0 carries", "default route", "on mv0"},
	},
	"on a macvlan in a bridge": {
		host: []string{"link add link v0 mv0 type macvlan", "link add b0 type bridge", "link set mv0 master b0 up",
			"link set b0 up", "addr add 10.3.0.1/24 dev b0", "route add default via 10.3.0.9"},
		want: []string{"v0 carries", "default route", "on b0"},
	},
	"on the bridge": {
		host: []string{"link add b0 type bridge", "link set v0 master b0", "link set b0 up",
			"addr add 10.3.0.1/24 dev b0", "route add default via 10.3.0.9"},
		policy: `,"allowEnslaved":["v0"]`, want: []string{"v0 carries", "default route", "on b0"},
	},
	"node's address": {found: `"10.1.0.1"`, want: []string{"node's address 10.1.0.1"}},
	"IPv6 address":   {found: `"10.9.9.9","2001:db8::1"`, want: []string{"node's address 2001:db8::1"}},
	"address on a macvlan": {
		host:  []string{"link add link v0 mv0 type macvlan", "addr add 2001:db8:3::1/64 dev mv0 nodad"},
		found: `"2001:db8:3::1"`, want: []string{"v0 carries", "2001:db8:3::1 on mv0"},
	},
	"source of the default route": {
		host: append([]string{"route add default via 10.2.0.9 src 10.1.0.1"}, elsewhere...),
		want: []string{"address 10.1.0.1", "by default"},
	},
	"source of the IPv6 default route": {
		host: append([]string{"-6 route add default via fe80::9 dev w0 src 2001:db8::1"}, elsewhere...),
		want: []string{"address 2001:db8::1", "by default"},
	},
	"default route elsewhere": {
		host: append([]string{"route add default via 10.2.0.9", "-6 route add default via fe80::9 dev w0"},
			elsewhere...),
	},
	"addresses damaged": {found: `"10.`, want: []string{policy.NodeAddressesFile}},
}

// What the node reaches others by stays, however it is configured: docs/policy.md has the list. Rails with a default
// route of their own are moved, and get it back.
func TestUplinkStays(t *testing.T) {
	for name, tt := range uplinks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "addr add 10.1.0.1/24 dev v0", "addr add 2001:db8::1/64 dev v0 nodad")
			if tt.compat {
				n.host.Sysctl(t, "net/ipv4/nexthop_compat_mode", "0")
			}
			// interfaces come first
			for _, links := range []bool{true, false} {
				for _, c := range tt.host {
					if beforeRoutes(c) == links {
						n.host.IP(t, strings.Fields(c)...)
					}
				}
			}
			n.host.Settled(t)
			n.before = n.host.State(t)
			n.policy(t, `{"allowVirtual":true`+tt.policy+`}`)
			if tt.found != "" {
				file := filepath.Join(n.state, policy.NodeAddressesFile)
				if err := os.WriteFile(file, []byte(`{"addresses":[`+tt.found+`]}`), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { os.Remove(file) })
			}
			a := n.run(t, n.call("ADD", conf()))
			if len(tt.want) == 0 {
				if !a.ok {
					t.Fatalf("%+v", a)
				}
			} else if a.ok || a.Code != 104 {
				t.Errorf("answer %+v, want 104", a)
			}
			for _, w := range tt.want {
				if !strings.Contains(a.Msg, w) {
					t.Errorf("%q, want %q in it", a.Msg, w)
				}
			}
			n.must(t, n.call("DEL", conf()))
			os.Remove(filepath.Join(n.state, policy.NodeAddressesFile))
			n.same(t, "after DEL")
		})
	}
}

func beforeRoutes(command string) bool {
	return strings.HasPrefix(command, "link ") || strings.HasPrefix(command, "addr ")
}
