package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// rangeReconciler knows the node's own ranges: what the spec of its FabricNode has, and while the API server is away,
// what it had.
type rangeReconciler struct {
	link    *cluster.Link // nil: there is no API server
	saved   *savedState
	ipamDir string // where host-local keeps the addresses that it has given of them
	metrics *metrics.Metrics
	log     *slog.Logger
}

func (r *rangeReconciler) reconcile(v *view) {
	if r.link != nil && r.link.Synced() {
		var now []v1alpha1.AssignedRange
		if own := r.link.Own(); own != nil {
			now, v.generation = own.Spec.Ranges, own.Generation
		}
		if !slices.Equal(now, r.saved.Ranges) {
			r.log.Info("the controller has given the node other ranges", "ranges", fmt.Sprint(now))
			r.saved.Ranges = now
			if err := r.saved.save(); err != nil {
				r.log.Error(err.Error())
			}
		}
	}
	r.metrics.ResetPools()
	v.given = map[string]int64{}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if f.NodeRanges == nil || !network.Configurable(f, v.assigned[f.Name]) {
			continue
		}
		own, err := r.own(f)
		if err != nil {
			v.findings.Add(condition.NoRange, condition.Fabric(f.Name), "fabric %s: %v", f.Name, err)
			continue
		}
		// With two ranges each interface has an address of both.
		addresses, err := hostlocal.Given(filepath.Join(r.ipamDir, f.Name))
		if err != nil {
			r.log.Error("cannot count addresses", "fabric", f.Name, "error", err)
		}
		given := len(addresses) / len(own)
		v.given[f.Name] = int64(given)
		for j, p := range own {
			r.metrics.SetPool(f.Name, p.String(), given, f.NodeRanges.Ranges[j].Capacity(p))
		}
	}
}

// own returns the node's ranges of a fabric, one for each of the fabric's.
func (r *rangeReconciler) own(f *fabrics.Fabric) (out []netip.Prefix, err error) {
	for _, of := range f.NodeRanges.Ranges {
		i := slices.IndexFunc(r.saved.Ranges, func(a v1alpha1.AssignedRange) bool {
			p, err := netip.ParsePrefix(a.Range)
			return a.Fabric == f.Name && a.Subnet == of.Prefix.String() && err == nil && p.Bits() == of.Bits
		})
		if i < 0 {
			return nil, errNoRange
		}
		p, err := netip.ParsePrefix(r.saved.Ranges[i].Range)
		if err != nil {
			return nil, fmt.Errorf("range %q: %w", r.saved.Ranges[i].Range, err)
		}
		out = append(out, p)
	}
	return out, nil
}
