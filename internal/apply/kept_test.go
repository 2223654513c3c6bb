package apply

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/program"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// mischief is what a pod does to its interface, which a move does not undo.
var mischief = map[string][]string{
	"link mode":   {"link set net1 mode dormant"},
	"flags":       {"link set net1 multicast off dynamic on trailers off"},
	"segment":     {"link set net1 gso_max_size 8000 gso_max_segs 7 gro_max_size 9000"},
	"above 64 Ki": {"link set net1 gso_max_size 150000 gro_max_size 150000"},
	"qdisc":       {"qdisc add dev net1 root tbf rate 1mbit burst 10kb latency 50ms", "qdisc add dev net1 clsact"},
	"neighbours":  {"neigh add 10.9.9.9 lladdr 02:00:00:00:00:09 dev net1 nud permanent", "nexthop add id 7 dev net1"},
}

func (b *bench) do(t *testing.T, n sandbox.Netns, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if strings.HasPrefix(c, "qdisc") || strings.HasPrefix(c, "filter") {
			sandbox.Run(t, "tc", append([]string{"-n", n.Name}, strings.Fields(c)...)...)
		} else {
			n.IP(t, strings.Fields(c)...)
		}
	}
}

// What a pod has set returns with the interface unless it is set back, while the pod lives and when it is half-way.
func TestReturnSetsBack(t *testing.T) {
	for name, commands := range mischief {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			b.take(t)
			b.do(t, b.pod, commands...)
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
			b.take(t) // the next pod
			b.do(t, b.pod, commands...)
			b.pod.IP(t, "link", "set", "net1", "netns", b.host.Name) // as the kernel does when the namespace dies
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
		})
	}
}

// ip of this machine may be too old to set these.
func TestReturnSetsBackIPv4(t *testing.T) {
	b := newBench(t)
	b.take(t)
	pod := b.runner.Pod
	for attr, v := range map[device.LinkAttr]uint32{device.GSOIPv4MaxSize: 7000, device.GROIPv4MaxSize: 6000} {
		if err := pod.Link.SetAttr(index(t, pod, "net1"), attr, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
	now := b.read(t, b.runner.Host, "v0").Kept.Attrs
	if diff := cmp.Diff(b.was.Kept.Attrs, now); diff != "" || len(now) != 6 {
		t.Errorf("-was +now:\n%s", diff)
	}
}

// index is the ifindex of a netdev.
func index(t *testing.T, s *Side, name string) int {
	t.Helper()
	n, err := s.Link.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return n.Index
}

// BPF programs stay on an interface wherever it goes, also those that a process of the pod holds.
func TestReturnDropsPrograms(t *testing.T) {
	sandbox.Root(t) // loads BPF programs
	for _, k := range program.All {
		for _, moved := range []bool{false, true} {
			name := string(k)
			if moved {
				name += ", home already"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, everything...)
				b.take(t)
				pod := b.runner.Pod
				at := index(t, pod, "net1")
				if err := pod.NS.Do(func() error { return program.Attach(t, k, at) }); err != nil {
					t.Fatal(err)
				}
				if moved {
					b.pod.IP(t, "link", "set", "net1", "netns", b.host.Name)
				}
				if err := b.goHome(t); err != nil {
					t.Error(err)
				}
				b.same(t)
				n := b.read(t, b.runner.Host, "v0")
				if len(n.Kept.Programs) > 0 {
					t.Errorf("on the host: %v", n.Kept.Programs)
				}
			})
		}
	}
}

// The programs are off before the interface leaves the pod: the host never sees one.
func TestReturnDropsProgramsFirst(t *testing.T) {
	sandbox.Root(t) // loads BPF programs
	b := newBench(t)
	b.take(t)
	pod := b.runner.Pod
	at := index(t, pod, "net1")
	for _, k := range []program.Kind{program.XDP, program.TCXIngress, program.TCXLink} {
		if err := pod.NS.Do(func() error { return program.Attach(t, k, at) }); err != nil {
			t.Fatal(err)
		}
	}
	j := b.runner.journey(b.home(), Events{})
	if err := j.look(); err != nil {
		t.Fatal(err)
	}
	way := plan.Return(j.where, j.home)
	if way.Stage != plan.StageRelease || strings.Count(plan.Print(way.Steps), "$DEV") != 3 {
		t.Fatalf("stage %d: %s", way.Stage, plan.Print(way.Steps))
	}
	if err := j.stage(t.Context(), way); err != nil {
		t.Fatal(err)
	}
	n, err := pod.Link.ByName("net1")
	if err == nil {
		err = pod.Programs(n)
	}
	if err != nil || len(n.Kept.Programs) > 0 {
		t.Errorf("in the pod still: %v, %v", n.Kept.Programs, err)
	}
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
	b.same(t)
}

// Offloads that the pod has switched are as they were.
func TestReturnFeatures(t *testing.T) {
	b := newBench(t)
	b.take(t)
	pod := b.runner.Pod
	n := b.read(t, pod, "net1")
	want := *n.Kept.Features
	want.Wanted = make([]uint32, len(want.Can)) // all off
	bits := want.Differing(n.Kept.Features)
	if len(bits) < 5 {
		t.Fatalf("a veth has the features %v", bits)
	}
	if err := setFeatures(pod, n, plan.SetFeatures{Want: want, Bits: bits}); err != nil {
		t.Fatal(err)
	}
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
	now := b.read(t, b.runner.Host, "v0")
	if left := b.was.Kept.Features.Differing(now.Kept.Features); len(left) > 0 {
		t.Errorf("%d features differ: %s ...", len(left), now.Kept.Features.Name(left[0]))
	}
	b.same(t)
}

// hostHas is what a move takes from an interface.
var hostHas = map[string][]string{
	"qdisc": {
		"qdisc add dev v0 root handle 5: tbf rate 1gbit burst 100kb latency 50ms",
		"qdisc add dev v0 clsact",
	},
	"neighbours": {
		"neigh add 10.1.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent",
		"-6 neigh add fe80::9 lladdr 02:00:00:00:00:19 dev v0 nud permanent",
		"neigh add proxy 10.1.0.77 dev v0",
		"-6 neigh add proxy fe80::77 dev v0",
	},
	"nexthops": {
		"addr add 10.1.0.1/24 dev v0", "nexthop add id 7 via 10.1.0.9 dev v0", "nexthop add id 8 dev v0",
		"route add 10.8.0.0/16 nhid 7",
	},
	"link": {"link set v0 multicast off dynamic on gso_max_size 9000 gso_max_segs 99 gro_max_size 8000"},
}

// What the host had comes back.
func TestReturnHostsOwn(t *testing.T) {
	for name, commands := range hostHas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.do(t, b.host, commands...)
			b.was, b.before = b.read(t, b.runner.Host, "v0"), b.state(t)
			for range 2 {
				b.take(t)
				if err := b.goHome(t); err != nil {
					t.Error(err)
				}
				b.same(t)
			}
		})
	}
}

// Filters and classes are not made again: it is said once.
func TestReturnFilters(t *testing.T) {
	b := newBench(t)
	b.do(t, b.host, "qdisc add dev v0 clsact",
		"filter add dev v0 ingress protocol ip u32 match ip dst 10.9.9.9/32 flowid 1:1")
	b.was = b.read(t, b.runner.Host, "v0")
	b.take(t)
	err := b.goHome(t)
	var partly *RestoreError
	if !errors.As(err, &partly) || !strings.Contains(err.Error(), "clsact is back without its filters") {
		t.Errorf("got %v", err)
	}
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
}

// IPv6 addresses of a secret, which a move forgets and without which the mode can't be set.
func TestReturnStableSecret(t *testing.T) {
	for _, mode := range []string{"stable_secret", "random"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if mode == "stable_secret" {
				b.host.Sysctl(t, "net/ipv6/conf/v0/stable_secret", "2001:db8::1234")
			}
			b.do(t, b.host, "link set v0 down", "link set v0 addrgenmode "+mode, "link set v0 up")
			b.host.AwaitLinkLocal(t, "v0")
			b.host.Settled(t)
			b.was, b.before = b.read(t, b.runner.Host, "v0"), b.state(t)
			secret := b.host.ReadSysctl(t, "net/ipv6/conf/v0/stable_secret")
			b.take(t)
			if err := b.goHome(t); err != nil {
				t.Error(err)
			}
			b.same(t)
			if now := b.host.ReadSysctl(t, "net/ipv6/conf/v0/stable_secret"); now != secret {
				t.Errorf("the secret is %s, was %s", now, secret)
			}
		})
	}
}

// A mode that can't be set back is said, without the secret, and the rest is restored.
func TestReturnWithoutSecret(t *testing.T) {
	b := newBench(t)
	b.was.AddrGenMode = device.StablePrivacy
	b.take(t)
	b.do(t, b.pod, "link set net1 alias mine multicast off mode dormant")
	err := b.goHome(t)
	var partly *RestoreError
	if !errors.As(err, &partly) || !strings.Contains(err.Error(), "addrgenmode 2") {
		t.Errorf("got %v", err)
	}
	b.same(t)
}

// The sysctls of the neighbour tables.
func TestReturnNeighbourConf(t *testing.T) {
	b := newBench(t)
	conf := map[string]string{
		"net/ipv4/neigh/v0/gc_stale_time": "77", "net/ipv6/neigh/v0/ucast_solicit": "9",
		"net/ipv4/neigh/v0/base_reachable_time_ms": "12340", "net/ipv6/neigh/v0/retrans_time_ms": "1240",
		"net/ipv6/conf/v0/max_addresses": "3", "net/ipv6/conf/v0/mldv1_unsolicited_report_interval": "3320",
		"net/ipv6/conf/v0/router_solicitation_interval": "7",
	}
	for f, v := range conf {
		b.host.Sysctl(t, f, v)
	}
	b.was = b.read(t, b.runner.Host, "v0")
	b.take(t)
	b.pod.Sysctl(t, "net/ipv4/neigh/net1/mcast_solicit", "88")
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
	for f, want := range conf {
		if got := b.host.ReadSysctl(t, f); got != want {
			t.Errorf("%s is %s, was %s", f, got, want)
		}
	}
	if got := b.host.ReadSysctl(t, "net/ipv4/neigh/v0/mcast_solicit"); got != "3" {
		t.Errorf("mcast_solicit is %s", got)
	}
}

// BenchmarkSnapshot is what ADD reads of an interface; BenchmarkAddressing is the part that it read before.
func BenchmarkSnapshot(b *testing.B) {
	host := sandbox.New(b)
	host.Veth(b, "v0", sandbox.New(b), "v1")
	ns := host.Open(b)
	s := &Side{NS: ns}
	s.Link = host.Link(b)
	n, err := s.Link.ByName("v0")
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func(*device.Netdev) error{"addressing": s.Addressing, "kept": s.Kept} {
		b.Run(name, func(b *testing.B) {
			err := ns.DoWithSys(func(sys fs.FS) error { // as the plugin: on a thread of the host, with its sysfs
				s.Sys = sys
				for b.Loop() {
					if err := f(n); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
