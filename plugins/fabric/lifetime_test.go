package fabric_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// remaining is how long an address or route has, which goes down.
var remaining = regexp.MustCompile(`(valid_lft|preferred_lft|expires) \d+sec`)

// Addresses with a lifetime, as DHCP, router advertisements and NetworkManager leave them, return with the prefix
// routes that they had, and no others.
func TestDelRestoresLifetimes(t *testing.T) {
	for name, commands := range map[string][]string{
		"IPv4": {"addr add 10.1.0.1/24 dev v0 valid_lft 3600 preferred_lft 1800"},
		"IPv4 without prefix route": {
			"addr add 10.1.0.1/24 dev v0 valid_lft 3600 preferred_lft 1800 noprefixroute",
			"route add 10.1.0.0/24 dev v0 proto kernel scope link src 10.1.0.1 metric 100",
		},
		"IPv4 metric":           {"addr add 10.1.0.1/24 dev v0 valid_lft 3600 preferred_lft 1800 metric 77"},
		"IPv6":                  {"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800"},
		"IPv6 metric":           {"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800 metric 77"},
		"IPv6 temporary prefix": {"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800 mngtmpaddr"},
		"IPv6 without prefix route": {
			"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800 noprefixroute",
		},
		"IPv6 NetworkManager": {
			"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800 noprefixroute",
			"-6 route add 2001:db8::/64 dev v0 proto kernel metric 100",
		},
		"IPv6 expiring route": {
			"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800 noprefixroute",
			"-6 route add 2001:db8::/64 dev v0 proto static metric 100 expires 3000",
		},
		"IPv6 host": {"addr add 2001:db8::1/128 dev v0 valid_lft 3600 preferred_lft 1800 noprefixroute"},
		"IPv6 one of two": {
			"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800", "addr add 2001:db8::2/64 dev v0",
		},
		"IPv6 prefix route removed": {
			"addr add 2001:db8::1/64 dev v0 valid_lft 3600 preferred_lft 1800",
			"-6 route del 2001:db8::/64 dev v0",
		},
		"IPv4 prefix route removed": {
			"addr add 10.1.0.1/24 dev v0 valid_lft 3600 preferred_lft 1800", "route del 10.1.0.0/24 dev v0",
		},
		"IPv4 two prefix route removed": {
			"addr add 10.1.0.1/24 dev v0", "addr add 10.1.0.2/24 dev v0", "route del 10.1.0.0/24 dev v0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, commands...)
			state := func() string { return remaining.ReplaceAllString(n.host.State(t), "$1 SOME") }
			before := state()
			n.must(t, n.call("ADD", conf()))
			n.must(t, n.call("DEL", conf()))
			var diff string
			// The carrier and duplicate address detection take a moment.
			if !sandbox.Soon(func() bool { diff = cmp.Diff(before, state()); return diff == "" }) {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}
