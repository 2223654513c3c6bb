package apply

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

var returnTests = map[string]struct {
	host []string // set up there before
	pod  []string // done to net1 there
}{
	"plain":                 {nil, nil},
	"everything":            {everything, nil},
	"down":                  {[]string{"link set v0 down", "addr add 10.1.0.1/24 dev v0"}, nil},
	"down, pod's is down":   {[]string{"link set v0 down"}, []string{"link set net1 down"}},
	"down with IPv6":        {[]string{"link set v0 down", "addr add 2001:db8::1/64 dev v0"}, nil},
	"renamed in the pod":    {everything, []string{"link set net1 down", "link set net1 name other"}},
	"named home in the pod": {everything, []string{"link set net1 down", "link set net1 name v0"}},
	"altnames taken away": {
		everything,
		[]string{"link property del dev net1 altname enp59s0", "link property del dev net1 altname rail0"},
	},
	"altnames of the pod": {
		everything,
		[]string{"link property add dev net1 altname v0 altname mine altname other"},
	},
	"altname of another": {
		append(slices.Clone(everything), "link add eth9 type bridge"),
		[]string{"link property add dev net1 altname eth9"},
	},
	"name of another": {
		append(slices.Clone(everything), "link add eth9 type bridge"),
		[]string{"link set net1 down", "link set net1 name eth9"},
	},
	"settings of the pod": {
		everything,
		[]string{
			"link set net1 mtu 1500 alias mine txqueuelen 5 group 9 promisc off allmulticast on arp off " +
				"addrgenmode random",
		},
	},
	"below the MTU of IPv6": {everything, []string{"link set net1 mtu 1000"}},
	"below it on the host": {
		[]string{"link set v0 mtu 1000", "addr add 10.1.0.1/24 dev v0"},
		[]string{"link set net1 mtu 1500"},
	},
	"addresses of the pod": {
		everything,
		[]string{
			"addr add 10.77.0.1/24 dev net1",
			"addr add 2001:db8:77::1/64 dev net1",
			"route add 10.78.0.0/16 dev net1",
		},
	},
	"IPv6 source": {
		[]string{
			"addr add 2001:db8::1/64 dev v0",
			"-6 route add 2001:db8:8::/48 via 2001:db8::9 src 2001:db8::1 dev v0",
		},
		nil,
	},
	"deprecated": {
		[]string{"addr add 10.1.0.1/24 preferred_lft 0 dev v0", "addr add 2001:db8::1/64 preferred_lft 0 dev v0"},
		nil,
	},
	"peer and label": {
		[]string{"addr add 10.1.0.1 peer 10.9.0.2/32 dev v0", "addr add 10.2.0.1/24 label v0:x dev v0"},
		nil,
	},
	"gateway behind a gateway": {
		[]string{
			"addr add 10.1.0.1/24 dev v0",
			"route add 10.3.0.0/16 dev v0",
			"route add 10.9.0.0/16 via 10.3.0.1 dev v0",
		},
		nil,
	},
}

// Whatever was set up on the host, and whatever the pod does to the device: it returns to the host as it was.
func TestReturn(t *testing.T) {
	for name, tt := range returnTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.host...)
			b.take(t)
			for _, c := range tt.pod {
				b.pod.IP(t, strings.Fields(c)...)
			}
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
			if err := b.goHome(t); err != nil { // a second time there is nothing to do
				t.Error(err)
			}
			b.same(t)
		})
	}
}

// The sysctls of the netdev return to the host too: a move gives it the defaults of the namespace it goes to.
func TestReturnConf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conf := map[string]string{
		"net/ipv4/conf/v0/arp_ignore":                   "2",
		"net/ipv4/conf/v0/rp_filter":                    "2",
		"net/ipv4/conf/v0/accept_local":                 "1",
		"net/ipv4/conf/v0/forwarding":                   "1",
		"net/ipv6/conf/v0/accept_ra":                    "0",
		"net/ipv6/conf/v0/hop_limit":                    "77",
		"net/ipv6/conf/v0/forwarding":                   "1",
		"net/ipv6/conf/v0/keep_addr_on_down":            "1",
		"net/ipv6/conf/v0/autoconf":                     "0",
		"net/ipv6/conf/v0/use_tempaddr":                 "2",
		"net/ipv6/conf/v0/accept_ra_defrtr":             "0",
		"net/ipv6/conf/v0/proxy_ndp":                    "1",
		"net/ipv6/conf/v0/accept_dad":                   "2",
		"net/ipv6/conf/v0/force_tllao":                  "1",
		"net/ipv6/conf/v0/ndisc_notify":                 "1",
		"net/ipv6/conf/v0/accept_ra_pinfo":              "0",
		"net/ipv6/conf/v0/accept_ra_mtu":                "0",
		"net/ipv6/conf/v0/drop_unicast_in_l2_multicast": "1",
		"net/ipv6/conf/v0/ignore_routes_with_linkdown":  "1",
		"net/ipv6/conf/v0/suppress_frag_ndisc":          "0",
		"net/ipv6/conf/v0/router_solicitations":         "7",
		"net/ipv6/conf/v0/dad_transmits":                "3",
		"net/ipv6/conf/v0/accept_redirects":             "0",
		"net/ipv6/conf/v0/accept_source_route":          "1",
	}
	for file, value := range conf {
		b.host.Sysctl(t, file, value)
	}
	b.was = b.read(t, b.runner.Host, "v0")
	b.take(t)
	if err := b.goHome(t); err != nil {
		t.Fatal(err)
	}
	for file, want := range conf {
		if got := b.host.ReadSysctl(t, file); got != want {
			t.Errorf("%s is %s, was %s", file, got, want)
		}
	}
}

func TestReturnIPv6Disabled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.host.Sysctl(t, "net/ipv6/conf/v0/disable_ipv6", "1")
	b.was, b.before = b.read(t, b.runner.Host, "v0"), b.state(t)
	b.take(t)
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
	b.same(t)
}

// With duplicate address detection an address that has come back is tentative for a second or two, and until then no
// route can name it as its source.
func TestReturnWaitsForSource(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.host.Sysctl(t, "net/ipv6/conf/v0/accept_dad", "1")
	b.host.IP(t, "addr", "add", "2001:db8::1/64", "dev", "v0")
	b.host.Settled(t)
	b.host.IP(t, "-6", "route", "add", "2001:db8:8::/48", "via", "fe80::9", "src", "2001:db8::1", "dev", "v0")
	b.was, b.before = b.read(t, b.runner.Host, "v0"), b.state(t)
	b.take(t)
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
	b.same(t)
}

// While the device was away an administrator has given its name to another one: it returns all the same, with all but
// the name, and the error says which one has it.
func TestReturnNameTaken(t *testing.T) {
	for name, setup := range map[string][]string{
		"name":             {"link add v0 type bridge"},
		"name and pod's":   {"link add v0 type bridge", "link add net1 type bridge"},
		"as an altname":    {"link add x type bridge", "link property add dev x altname v0"},
		"name and altname": {"link add v0 type bridge", "link add rail0 type bridge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			b.take(t)
			for _, c := range setup {
				b.host.IP(t, strings.Fields(c)...)
			}
			err := b.goHome(t)
			var partly *RestoreError
			if !errors.As(err, &partly) || !errors.Is(err, ErrNameTaken) {
				t.Fatalf("got %v", err)
			}
			n, err := b.runner.Host.Netdev(b.was)
			if err != nil {
				t.Fatal(err)
			}
			n = b.read(t, b.runner.Host, n.Name)
			if n.MTU != b.was.MTU || len(n.Addrs) != len(b.was.Addrs) || len(n.Routes) != len(b.was.Routes) ||
				n.Up() != b.was.Up() ||
				n.Alias != b.was.Alias {
				t.Errorf("home as %+v", n)
			}
			for _, c := range setup { // and when the name is free again, the next try gets it
				if f := strings.Fields(c); f[1] == "add" {
					b.host.IP(t, "link", "delete", f[2])
				}
			}
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
		})
	}
}

// Netdevs without a bus address are distinguished by what they have: one on the host that looks like the device is not
// it.
func TestReturnDoubles(t *testing.T) {
	for name, tt := range map[string]struct {
		double  []string // commands
		allowed error    // what the return may answer
	}{
		"same name": {[]string{"link add v0 type veth peer name x"}, ErrNameTaken},
		"same name, alt": {
			[]string{"link add y type veth peer name x", "link property add dev y altname v0"}, ErrNameTaken,
		},
		"same hardware address": {[]string{"link add y address HW type veth peer name x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			b.take(t)
			have, err := b.runner.Current()
			if err != nil {
				t.Fatal(err)
			}
			if err := b.runner.Run(t.Context(), plan.Configure(&netconf.Config{}, b.was, have, nil, nil)); err != nil {
				t.Fatal(err)
			}
			for _, c := range tt.double {
				b.host.IP(t, strings.Fields(strings.Replace(c, "HW", b.was.HWAddr.String(), 1))...)
			}
			before := b.host.IP(t, "-d", "link", "show", "dev", "x") // names its peer
			err = b.goHome(t)
			if err != nil && !errors.Is(err, tt.allowed) {
				t.Errorf("got %v", err)
			}
			if _, err := b.runner.Pod.Link.ByName("net1"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the device is in the pod still: %v", err)
			}
			if diff := cmp.Diff(before, b.host.IP(t, "-d", "link", "show", "dev", "x")); diff != "" {
				t.Errorf("the double: -before +after:\n%s", diff)
			}
			b.host.IP(t, "link", "delete", "x")
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
		})
	}
}

// A route that can't be made again is reported, and stops nothing else.
func TestReturnPartly(t *testing.T) {
	t.Parallel()
	b := newBench(
		t,
		"addr add 10.1.0.1/24 dev v0",
		"route add 10.8.0.0/16 via 10.1.0.9 dev v0",
		"route add 10.9.0.0/16 dev v0",
	)
	b.take(t)
	h := b.home()
	lost := *h.Netdev
	lost.Addrs = nil // its lifetime has run out
	h.Netdev = &lost
	err := b.runner.Return(t.Context(), h, Events{})
	var partly *RestoreError
	if !errors.As(err, &partly) || !strings.Contains(err.Error(), "10.8.0.0/16 via 10.1.0.9") {
		t.Errorf("got %v", err)
	}
	n := b.read(t, b.runner.Host, "v0")
	if !n.Up() || len(n.Routes) != 1 || n.Routes[0].Dst.String() != "10.9.0.0/16" {
		t.Errorf("home as %+v", n)
	}
}

// A device that went up and was half restored before the call was killed.
func TestReturnFromHalfway(t *testing.T) {
	for name, commands := range map[string][]string{
		"other name, up": {
			"link set v0 down", "link set v0 name fabric9", "link set fabric9 up",
			"addr add 2001:db8::1/64 dev fabric9",
		},
		"down": {"link set v0 down"},
		"primary lost": {"addr del 10.1.0.1/24 dev v0", "addr del 10.3.0.1/24 dev v0", "addr add 10.1.0.2/24 " +
			"dev v0 label v0:two"},
		"addresses lost": {"addr flush dev v0"},
		"route lost":     {"route del 10.8.0.0/16", "-6 route del 2001:db8:8::/48"},
		"altname added":  {"link property add dev v0 altname extra"},
		"its own name is alt": {
			"link set v0 down", "link set v0 name x", "link property add dev x altname v0", "link set x up",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			for _, c := range commands {
				b.host.IP(t, strings.Fields(c)...)
			}
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
		})
	}
}

// A veth dies with its namespace: what can't come back is said after the time that was given.
func TestReturnLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.take(t)
	b.pod.IP(t, "link", "delete", "net1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := b.runner.Return(ctx, b.home(), Events{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "netdev v0 has not come back") {
		t.Errorf("got %v", err)
	}
	h := b.home()
	gone := Events{Gone: func() bool { return true }}
	if err := b.runner.Return(t.Context(), h, gone); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	b.runner.Pod = nil
	h.Side = plan.Pod // it was for another plugin, in a pod that is gone
	if err := b.runner.Return(t.Context(), h, gone); err != nil {
		t.Error(err)
	}
}

// Two devices that have each other's name go home at once, as recreated IPoIB netdevs do.
func TestReturnSwapped(t *testing.T) {
	defer func(was time.Duration) { renameWait = was }(renameWait)
	renameWait = time.Minute // on a busy machine one may begin much later than the other
	b := newBench(t, everything...)
	b.host.Veth(t, "w0", sandbox.New(t), "w1")
	second := newRunner(t, b.host, b.pod)
	w := b.read(t, second.Host, "w0")
	v := *b.was
	v.Name, v.AltNames, w.Name = "w0", nil, "v0" // as if they had always been named so
	b.host.IP(t, "link", "property", "del", "dev", "v0", "altname", "enp59s0", "altname", "rail0")
	done := make(chan error, 2)
	go func() { done <- b.runner.Return(context.Background(), plan.Home{Netdev: &v}, Events{}) }()
	go func() { done <- second.Return(context.Background(), plan.Home{Netdev: w}, Events{}) }()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, want := range []*device.Netdev{&v, w} {
		if n := b.read(t, b.runner.Host, want.Name); n.HWAddr.String() != want.HWAddr.String() {
			t.Errorf("%s is another device", want.Name)
		}
	}
}
