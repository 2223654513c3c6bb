package apply

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/inventory"
	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

func TestMain(m *testing.M) { sandbox.Main(m, nil) }

// bench is a host with a device (one end of a veth pair, v0, whose other end is far away) and a pod.
type bench struct {
	host, pod, far sandbox.Netns
	runner         *Runner
	was            *device.Netdev // the device with addresses and routes, as ADD records it
	before         string
}

// newBench sets the device up with ip commands, without "ip" and the namespace.
func newBench(t *testing.T, setup ...string) *bench {
	t.Helper()
	b := &bench{host: sandbox.New(t), pod: sandbox.New(t), far: sandbox.New(t)}
	b.host.Veth(t, "v0", b.far, "v1")
	for _, c := range setup {
		if strings.HasPrefix(c, "-6 route") { // its source may not be tentative
			b.host.Settled(t)
		}
		b.host.IP(t, strings.Fields(c)...)
	}
	b.runner = newRunner(t, b.host, b.pod)
	b.was = b.read(t, b.runner.Host, "v0")
	b.runner.Track(nil, b.was)
	b.before = b.state(t)
	return b
}

// newRunner has connections of its own, as every call has: they are not safe for concurrent use.
func newRunner(t *testing.T, host, pod sandbox.Netns) *Runner {
	t.Helper()
	side := func(n sandbox.Netns) *Side {
		ns := n.Open(t)
		return &Side{NS: ns, Reader: inventory.Reader{Sys: os.DirFS("/sys/none"), Link: n.Link(t), NS: ns}}
	}
	return &Runner{Host: side(host), Pod: side(pod)}
}

func (b *bench) read(t *testing.T, s *Side, name string) *device.Netdev {
	t.Helper()
	n, err := s.Link.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(n); err != nil {
		t.Fatal(err)
	}
	return n
}

// state leaves out the queueing discipline of a netdev that is down (one that has never been up has none), and whether
// duplicate address detection is under way.
func (b *bench) state(t *testing.T) string {
	t.Helper()
	return strings.NewReplacer(" qdisc noop ", " qdisc noqueue ", " tentative", "").Replace(b.host.State(t))
}

// same compares the host with what it was. Duplicate address detection and the like may take a moment.
func (b *bench) same(t *testing.T) {
	t.Helper()
	var diff string
	if !sandbox.Soon(func() bool { diff = cmp.Diff(b.before, b.state(t)); return diff == "" }) {
		t.Errorf("the host is not what it was (-before +after):\n%s", diff)
	}
}

// take moves the device into the pod as net1.
func (b *bench) take(t *testing.T) {
	t.Helper()
	if err := b.runner.Run(t.Context(), plan.Attach(&netconf.Config{}, "net1", nil, b.was)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) home() plan.Home { return plan.Home{Netdev: b.was, Side: plan.Host} }

// goHome returns the device.
func (b *bench) goHome(t *testing.T) error {
	t.Helper()
	return b.runner.Return(t.Context(), b.home(), Events{})
}
