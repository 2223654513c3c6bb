package link_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const forever = ^uint32(0)

// addrs shows a netdev's addresses as ip does, without the kernel's link-local one and with finite lifetimes rounded.
func addrs(t *testing.T, n sandbox.Netns, dev string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(n.IP(t, "-d", "addr", "show", "dev", dev)) {
		w := strings.Fields(line)
		if strings.HasPrefix(w[0], "inet") {
			out = append(
				out,
				strings.ReplaceAll(strings.Join(w, " "), " tentative", ""),
			) // for a moment, even without DAD
		}
		if strings.HasPrefix(w[0], "valid_lft") {
			for i, s := range w {
				if strings.HasSuffix(s, "sec") && s != "0sec" {
					w[i] = s[:1] + "...sec" // it runs
				}
			}
			out = append(out, strings.Join(w, " "))
		}
	}
	return strings.Join(out, "\n")
}

// Every address that ip can make is read and made again, such that ip shows no difference.
func TestAddrsComeBack(t *testing.T) {
	tests := map[string][]string{
		"IPv4":               {"10.1.0.1/24"},
		"host":               {"10.1.0.1/32"},
		"broadcast":          {"10.1.0.1/24 broadcast +"},
		"other broadcast":    {"10.1.0.1/24 broadcast 10.1.0.99"},
		"label":              {"10.1.0.1/24 label v0:rail"},
		"peer":               {"10.1.0.1 peer 10.9.0.2/32"},
		"peer network":       {"10.1.0.1 peer 10.9.0.2/24"},
		"scope":              {"10.1.0.1/24 scope link", "10.2.0.1/24 scope host"},
		"no prefix route":    {"10.1.0.1/24 noprefixroute"},
		"metric":             {"10.1.0.1/24 metric 77"},
		"secondaries":        {"10.1.0.1/24", "10.1.0.2/24", "10.1.0.3/24", "10.2.0.1/24"},
		"lifetime":           {"10.1.0.1/24 valid_lft 9500 preferred_lft 5500"},
		"deprecated":         {"10.1.0.1/24 preferred_lft 0"},
		"IPv6":               {"2001:db8::1/64"},
		"IPv6 host":          {"2001:db8::1/128"},
		"IPv6 peer":          {"2001:db8::1 peer 2001:db8::2/128"},
		"IPv6 lifetime":      {"2001:db8::1/64 valid_lft 9500 preferred_lft 5500"},
		"IPv6 deprecated":    {"2001:db8::1/64 preferred_lft 0"},
		"IPv6 no DAD":        {"2001:db8::1/64 nodad"},
		"IPv6 flags":         {"2001:db8::1/64 home", "2001:db8:1::1/64 noprefixroute", "2001:db8:2::1/64 mngtmpaddr"},
		"IPv6 metric":        {"2001:db8::1/64 metric 77"},
		"IPv6 link-local":    {"fe80::77/64 scope link"},
		"IPv4 mapped":        {"::ffff:10.1.0.1/128"},
		"both families":      {"10.1.0.1/24", "2001:db8::1/64"},
		"several IPv6":       {"2001:db8::1/64", "2001:db8::2/64", "2001:db8:1::1/64"},
		"IPv6 link multiple": {"fe80::77/64 scope link", "fe80::78/64 scope link"},
	}
	for name, list := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, peer := sandbox.New(t), sandbox.New(t)
			n.Veth(t, "v0", peer, "v1")
			for _, a := range list {
				n.IP(t, append(append([]string{"addr", "add"}, strings.Fields(a)...), "dev", "v0")...)
			}
			c := n.Link(t)
			index := byName(t, c, "v0").Index
			before := addrs(t, n, "v0")
			saved, err := c.Addrs(index)
			if err != nil {
				t.Fatal(err)
			}
			n.IP(t, "link", "set", "v0", "addrgenmode", "none") // link-local is not to come by itself
			n.IP(t, "addr", "flush", "dev", "v0")
			slices.Reverse(
				saved[slices.IndexFunc(saved, func(a device.Addr) bool { return a.Prefix.Addr().Is6() }):],
			) // oldest first
			for _, a := range saved {
				if err := c.AddAddr(index, a); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(before, addrs(t, n, "v0")); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

func TestAddr(t *testing.T) {
	t.Parallel()
	n := sandbox.New(t)
	n.Veth(t, "v0", n, "v1")
	c := n.Link(t)
	index := byName(t, c, "v0").Index
	for _, s := range []string{"10.1.0.1/24", "2001:db8::1/64"} {
		a := device.Addr{Prefix: netip.MustParsePrefix(s), Valid: forever, Preferred: forever}
		if err := c.AddAddr(index, a); err != nil {
			t.Fatal(err)
		}
		if shown := addrs(t, n, "v0"); !strings.Contains(shown, s) {
			t.Errorf("%s is not in\n%s", s, shown)
		}
		if err := c.AddAddr(index, a); !errors.Is(err, unix.EEXIST) || !strings.Contains(err.Error(), s) {
			t.Errorf("second time: %v", err)
		}
		if err := c.DelAddr(index, a); err != nil {
			t.Error(err)
		}
		if err := c.DelAddr(index, a); !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Errorf("removed twice: %v", err)
		}
	}
	marked := device.Addr{
		Prefix:    netip.MustParsePrefix("10.3.0.1/24"),
		Valid:     forever,
		Preferred: forever,
		Proto:     99,
		Metric:    5,
	}
	if err := c.AddAddr(index, marked); err != nil { // ip 6.1 does not show the protocol yet
		t.Fatal(err)
	}
	// Only the netdev's own.
	n.IP(t, "addr", "add", "10.9.0.1/24", "dev", "v1")
	got, err := c.Addrs(index)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range got {
		if a.Prefix == marked.Prefix && (a.Proto != 99 || a.Metric != 5) {
			t.Errorf("protocol or metric lost: %+v", a)
		}
		if !a.Prefix.Addr().IsLinkLocalUnicast() && a.Prefix != marked.Prefix {
			t.Errorf("%s is another netdev's", a.Prefix)
		}
	}
}
