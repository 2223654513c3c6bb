package inventory

import (
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// memoryIn listens in a namespace.
func memoryIn(t testing.TB, n sandbox.Netns) *Memory {
	m := &Memory{}
	t.Cleanup(m.Close)
	if err := n.Open(t).Do(func() error { m.quiet(); return nil }); err != nil {
		t.Fatal(err)
	}
	return m
}

// remembering is a node of functions with a memory in which a look has been.
func remembering(t *testing.T) (r *Reader, m *Memory, look func() (same bool, found []any), do func(...string)) {
	t.Helper()
	const functions = 6
	r, at, n := fleet(t, functions, true)
	do = func(args ...string) { n.IP(t, args...) }
	m = memoryIn(t, n)
	look = func() (bool, []any) {
		once, same, err := r.Once(m)
		if err != nil {
			t.Fatal(err)
		}
		if !same {
			withHCAs(once, functions)
		}
		found, err := looks(once, at)
		if err != nil {
			t.Fatal(err)
		}
		return same, found
	}
	look()
	return r, m, look, do
}

// A look at a node on which nothing has changed reads nothing of sysfs, and finds the same.
func TestMemoryOfQuietNode(t *testing.T) {
	r, _, look, _ := remembering(t)
	sys := r.Sys
	r.Sys = os.DirFS(t.TempDir())
	same, got := look()
	if !same {
		t.Fatal("everything was read again")
	}
	d, ok := got[0].(*Device)
	if !ok {
		t.Fatalf("got %T", got[0])
	}
	d.HCA.Ports[0].Number, d.Netdev.Name = 7, "mine" // what a caller does with its devices is no other's affair
	_, got = look()
	r.Sys = sys
	for range wholeLook {
		if same, want := look(); !same {
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("-read again +remembered:\n%s", diff)
			}
			return
		}
	}
	t.Errorf("%d looks after the first one, sysfs has not been read again", wholeLook)
}

// Each change that a look may depend on is found by the next one, though nothing of it is read in sysfs.
func TestMemoryEndsWithAChange(t *testing.T) {
	r, m, _, do := remembering(t)
	idle := func() bool {
		_, same, err := r.Once(m)
		if err != nil {
			t.Fatal(err)
		}
		return same
	}
	for _, change := range [][]string{
		{"link", "set", "e1", "name", "other"},
		{"link", "set", "other", "name", "e1"},
		{"link", "set", "e1", "up"},
		{"link", "set", "e2", "up"},
		{"link", "property", "add", "dev", "e2", "altname", "second"},
		{"link", "add", "above", "link", "e2", "type", "macvlan"},
		{"link", "add", "p0", "type", "veth", "peer", "p1"},
		{"link", "set", "p0", "master", "e3"},
		{"addr", "add", "10.8.0.1/24", "dev", "e1"},
		{"addr", "add", "fd00::1/64", "dev", "e1", "nodad"},
		{"route", "add", "default", "via", "10.8.0.2"},
		{"route", "add", "default", "via", "fd00::2"},
		{"rule", "add", "from", "10.8.0.1", "table", "200"},
		{"-6", "rule", "add", "from", "fd00::1", "table", "200"},
		{"nexthop", "add", "id", "3", "via", "10.8.0.2", "dev", "e1"},
		{"link", "set", "e1", "down"},
		{"link", "del", "above"},
	} {
		do(change...)
		if idle() {
			t.Errorf("ip %v: the next look does not see it", change)
		}
		for i := 0; ; i++ { // what follows by itself, as link-local addresses do
			if idle() {
				break
			} else if i == 1000 {
				t.Fatalf("ip %v: no look is idle after it", change)
			}
		}
	}
	m.hcas = append(m.hcas, device.HCA{Index: 1, Name: "mlx5_1"}) // as if one had left
	if idle() {
		t.Error("an RDMA device has left: the next look does not see it")
	}
}
