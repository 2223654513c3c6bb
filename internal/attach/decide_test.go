package attach

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// shown is a decision as text: what is against it, what is unusual, what is reclaimed, and what would be done.
func shown(d *Decision) string {
	var b strings.Builder
	for _, r := range d.Refusals {
		passing := ""
		if r.Passing {
			passing = " (passing)"
		}
		fmt.Fprintf(&b, "refused: %s%s: %s\n  hint: %s\n", r.Reason, passing, r.Message, r.Hint)
	}
	for _, w := range d.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	for _, o := range d.Reclaims {
		fmt.Fprintf(&b, "reclaim: %s of %s\n", o.IfName, o.ContainerID)
	}
	if d.Attachment == nil {
		return b.String()
	}
	fmt.Fprintf(&b, "moves the RDMA device: %v\nwaits for the port: %v\n", d.MoveRDMA, d.AwaitPort)
	ips := &plan.Addressing{
		Addrs:    []netip.Prefix{netip.MustParsePrefix("192.168.10.7/24"), netip.MustParsePrefix("2001:db8::7/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("192.168.10.1"), {}},
	}
	b.WriteString(plan.Print(d.Steps(ips, false)))
	return b.String()
}

func TestDecide(t *testing.T) {
	for _, d := range decisions {
		t.Run(d.kind, func(t *testing.T) {
			var got strings.Builder // as a txtar archive
			for _, name := range slices.Sorted(maps.Keys(d.cases)) {
				f := d.usual()
				d.cases[name](f)
				fmt.Fprintf(&got, "-- %s --\n%s", name, shown(Decide(f)))
			}
			golden.Check(t, "testdata/"+d.kind+".txtar", got.String())
		})
	}
}

// The same facts give the same decision, and are not changed by it.
func TestDecideIsPure(t *testing.T) {
	for _, d := range decisions {
		for name, edit := range d.cases {
			f := d.usual()
			edit(f)
			first := shown(Decide(f))
			if diff := cmp.Diff(first, shown(Decide(f))); diff != "" {
				t.Errorf("%s: %s: -first +second:\n%s", d.kind, name, diff)
			}
		}
	}
}

// A DEL after the ADD undoes everything, as it would print it.
func TestReturn(t *testing.T) {
	f := deviceFacts()
	d := Decide(f)
	steps := d.Steps(nil, false)
	home := plan.Home{HCA: d.HCA(), Netdev: d.Netdev()}
	got := plan.Print(d.Return(steps, home))
	for _, want := range []string{
		"rdma dev set mlx5_0 netns 1", "altname rail0", "ip link set $DEV mtu 4092", "ip addr add 10.8.0.1/24",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	f = childFacts()
	d = Decide(f)
	got = plan.Print(d.Return(d.Steps(nil, false), plan.Home{Child: true}))
	if !strings.Contains(got, "ip link del") {
		t.Errorf("the child stays: %s", got)
	}
}

// Without a pod, what depends on one is not judged.
func TestWithoutPod(t *testing.T) {
	f := chainFacts()
	f.Pod, f.Device.Side = false, plan.Host
	if d := Decide(f); len(d.Refusals) > 0 {
		t.Errorf("refused: %+v", d.Refusals[0])
	}
	f = deviceFacts()
	f.Pod, f.Unselected, f.Device = false, true, nil
	if d := Decide(f); len(d.Refusals) > 0 {
		t.Errorf("refused: %+v", d.Refusals[0])
	}
}
