package apply

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

var everything = []string{
	"link set v0 mtu 4092 alias rail txqueuelen 77 group 5 promisc on",
	"link property add dev v0 altname enp59s0 altname rail0",
	"addr add 10.1.0.1/24 broadcast + dev v0",
	"addr add 10.1.0.2/24 dev v0 label v0:two",
	"addr add 2001:db8::1/64 dev v0",
	"addr add 2001:db8::2/64 dev v0",
	"addr add 10.3.0.1/24 dev v0 noprefixroute",
	"route add 10.3.0.0/24 dev v0 proto kernel scope link src 10.3.0.1 metric 100",
	"route add 10.8.0.0/16 via 10.1.0.9 dev v0 src 10.1.0.2 mtu 1400",
	"route add 10.9.0.0/16 dev v0 table 100",
	"-6 route add 2001:db8:8::/48 via 2001:db8::9 dev v0",
	"-6 route add 2001:db8:9::/48 via fe80::9 dev v0 pref high table 100",
	"link set v0 addrgenmode none",
}

// Each step is refused once, by the kernel, for a reason it has on any machine: the undo leaves the host as it was.
func TestEachStepFails(t *testing.T) {
	bad := func(s plan.Step) func(*bench) []plan.Step { return func(*bench) []plan.Step { return []plan.Step{s} } }
	src := netip.MustParsePrefix("10.5.0.1/24")
	tests := map[string]struct {
		pod  []string // set up there before
		step func(*bench) []plan.Step
		want error
	}{
		"set-link": {nil, bad(plan.SetLink{In: plan.Pod, Attrs: plan.Attrs{MTU: 1 << 20}}), unix.EINVAL},
		"altnames": {nil, bad(plan.AltNames{In: plan.Pod, Add: []string{strings.Repeat("x", 200)}}), unix.ERANGE},
		"add-address": {
			nil,
			bad(
				plan.AddAddr{
					In: plan.Pod,
					Addr: device.Addr{
						Prefix:    netip.MustParsePrefix("ff02::1/64"),
						Valid:     ^uint32(0),
						Preferred: ^uint32(0),
					},
				},
			),
			unix.EADDRNOTAVAIL,
		},
		"add-route": {
			nil,
			bad(
				plan.AddRoute{
					In: plan.Pod,
					Route: device.Route{
						Dst:     netip.MustParsePrefix("10.0.0.0/8"),
						Gateway: netip.MustParseAddr("192.0.2.1"),
						Table:   254,
						Type:    1,
					},
				},
			),
			unix.ENETUNREACH,
		},
		"add-rule": {nil, bad(plan.AddRule{Rule: device.Rule{Src: netip.Prefix{}, Table: 5}}), unix.EINVAL},
		"create-child": {nil, func(b *bench) []plan.Step {
			return []plan.Step{plan.CreateChild{Master: *b.was, Name: "child", PKey: 0x8001}}
		}, unix.EOPNOTSUPP},
		"on the other side": {nil, bad(plan.AddAddr{In: plan.Host, Addr: plan.NewAddr(src)}), unix.ENODEV},
		"unknown":           {nil, bad(nothing{}), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			podBefore := b.pod.State(t)
			b.take(t)
			if err := b.runner.Run(t.Context(), []plan.Step{
				plan.AddAddr{In: plan.Pod, Addr: plan.NewAddr(src)},
				plan.AddRule{Rule: device.Rule{Src: src, Table: 20002, Priority: 20000}},
			}); err != nil {
				t.Fatal(err)
			}
			b.runner.Undo.Push("attachment", func() error { return nil })
			step := tt.step(b)
			err := b.runner.Run(t.Context(), step)
			var which *StepError
			if !errors.As(err, &which) || which.Step.Kind() != step[0].Kind() ||
				tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v at %s", err, tt.want, step[0].Kind())
			}
			b.back(t)
			b.same(t)
			if got := b.pod.State(t); got != podBefore {
				t.Errorf("the pod is not what it was:\n%s\n%s", podBefore, got)
			}
		})
	}
}

type nothing struct{}

func (nothing) String() string { return "nothing" }
func (nothing) Kind() string   { return "nothing" }

// back undoes as an ADD that failed does.
func (b *bench) back(t *testing.T) {
	t.Helper()
	if err := b.runner.Undo.Run(); err != nil {
		t.Error(err)
	}
	if err := b.goHome(t); err != nil {
		t.Error(err)
	}
}

// The move is refused, before or after the kernel has carried it out, and what stood in the way is untouched.
func TestMoveFails(t *testing.T) {
	tests := map[string][]string{ // what the pod has
		"name taken":                {"link add net1 type bridge"},
		"both names taken":          {"link add net1 type bridge", "link add v0 type bridge"},
		"name taken by an altname":  {"link add x type bridge", "link property add dev x altname net1"},
		"name and an altname taken": {"link add net1 type bridge", "link add enp59s0 type bridge"},
		"everything of it is taken": {
			"link add net1 type bridge",
			"link add v0 type bridge",
			"link add enp59s0 type bridge",
		},
	}
	for name, setup := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, everything...)
			for _, c := range setup {
				b.pod.IP(t, strings.Fields(c)...)
			}
			podBefore := b.pod.State(t)
			err := b.runner.Run(t.Context(), plan.Attach(&netconf.Config{}, "net1", nil, b.was))
			if !errors.Is(err, ErrNameTaken) {
				t.Errorf("got %v, want %v", err, ErrNameTaken)
			}
			b.back(t)
			b.same(t)
			if got := b.pod.State(t); got != podBefore {
				t.Errorf("the pod is not what it was:\n%s\n%s", podBefore, got)
			}
		})
	}
}

// An altname that the pod has is no reason to refuse: the device does without it there, and gets it back at home.
func TestAltNameTakenInPod(t *testing.T) {
	t.Parallel()
	b := newBench(t, everything...)
	b.pod.IP(t, "link", "add", "rail0", "type", "bridge")
	b.take(t)
	have, err := b.runner.Current()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.runner.Run(t.Context(), plan.Configure(&netconf.Config{}, b.was, have, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if n := b.read(t, b.runner.Pod, "net1"); n.Named("rail0") || !n.Named("enp59s0") || !n.Named("v0") {
		t.Errorf("altnames %v", n.AltNames)
	}
	b.back(t)
	b.same(t)
}

func TestRunStopsWhenTimeIsUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.runner.Run(ctx, plan.Attach(&netconf.Config{}, "net1", nil, b.was))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "move-netdev") {
		t.Errorf("got %v", err)
	}
	b.same(t)
}

// Steps that find their work done already are no errors: the call before was killed in between.
func TestStepsTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.take(t)
	p := netip.MustParsePrefix("10.5.0.1/24")
	route := device.Route{Dst: netip.MustParsePrefix("10.6.0.0/16"), Table: 20002, Scope: 253, Protocol: 3, Type: 1}
	rule := device.Rule{Src: p.Masked(), Table: 20002, Priority: 20000}
	steps := []plan.Step{
		plan.AltNames{In: plan.Pod, Add: []string{"one", "two"}}, plan.AddAddr{In: plan.Pod, Addr: plan.NewAddr(p)},
		plan.AddRoute{In: plan.Pod, Route: route}, plan.AddRule{Rule: rule},
	}
	undo := []plan.Step{plan.DelRule{Rule: rule}, plan.DelAddr{In: plan.Pod, Addr: plan.NewAddr(p)}}
	for range 2 {
		if err := b.runner.Run(t.Context(), steps); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := b.runner.Run(t.Context(), undo); err != nil {
			t.Error(err)
		}
	}
	b.back(t)
	b.same(t)
}
