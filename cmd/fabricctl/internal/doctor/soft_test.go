package doctor

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// What the host uses is named; an RDMA device in a pod is not the host's.
func TestHostUse(t *testing.T) {
	m := machines.Named("roce")
	m.Live.Users = map[string][]string{"mlx5_2": {"kernel module nvme_rdma", "process 7 (rping)"}}
	m.Done()
	n, err := node.Open(m.FS, journal.Store{})
	if err != nil {
		t.Fatal(err)
	}
	found := func() (evidence []string) {
		for _, f := range CheckHost(CollectHost(m.FS, n)) {
			if f.ID == "host-use" {
				evidence = append(evidence, f.Evidence)
			}
		}
		return evidence
	}
	if got := found(); !slices.Equal(got, []string{"mlx5_2 is in use by kernel module nvme_rdma, process 7 (rping)"}) {
		t.Errorf("%q", got)
	}
	for i := range n.HCAs {
		n.HCAs[i].InPod = "ml/train"
	}
	if got := found(); len(got) > 0 {
		t.Errorf("in pods: %q", got)
	}
}

// A soft RDMA device counts as no RDMA device, and is found on an interface that pods may want.
func TestHostSoft(t *testing.T) {
	for _, c := range []struct {
		machine, on string
		devices     Status
		found       bool
	}{
		{"roce", "xgbe2", OK, true},
		{"roce", "veth7", OK, false}, // in no pod's way
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
