package doctor

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// A soft RDMA device counts as no RDMA device, and is found on an interface that pods may want.
func TestHostSoft(t *testing.T) {
	for _, c := range []struct {
		machine, on string
		devices     Status
		found       bool
	}{
		{"roce", "xgbe2", OK, true},
		{"roce", "veth7", OK, false}, // in nobody's way
		{"roce", "", OK, false},      // in a pod
		{"plain", "veth7", Fail, false},
	} {
		m := machines.Named(c.machine)
		m.Soft("rxe0", c.on)
		m.Done()
		n, err := node.Open(m.FS, journal.Store{})
		if err != nil {
			t.Fatal(err)
		}
		got := CheckHost(CollectHost(m.FS, n))
		at := func(id string) int { return slices.IndexFunc(got, func(f Finding) bool { return f.ID == id }) }
		if i := at("host-devices"); i < 0 || got[i].Status != c.devices {
			t.Errorf("%+v: %+v", c, got)
		}
		i := at("host-soft-rdma")
		if (i >= 0) != c.found || c.found && (got[i].Status != Warn || got[i].Cure != "rdma link delete rxe0") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
