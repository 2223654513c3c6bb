package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// rangeReconciler knows the node's own ranges: what the spec of its FabricNode has, and while the API server is away,
// what it had.
type rangeReconciler struct {
	link  *cluster.Link // nil: there is no API server
	saved *savedState
	log   *slog.Logger
}

func (r *rangeReconciler) reconcile(v *view) {
	if r.link != nil && r.link.Synced() {
		var now []v1alpha1.AssignedRange
		if own := r.link.Own(); own != nil {
			now = own.Spec.Ranges
		}
		if !slices.Equal(now, r.saved.Ranges) {
			r.log.Info("the node's ranges are others", "ranges", fmt.Sprint(now))
			r.saved.Ranges = now
			if err := r.saved.save(); err != nil {
				r.log.Error(err.Error())
			}
		}
	}
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if f.NodeRanges == nil || !network.Configurable(f, v.assigned[f.Name]) {
			continue
		}
		if _, err := r.own(f); err != nil {
			v.conditions.Fail(condition.NodeRangeAllocated, condition.Fabric(f.Name), "fabric %s: %v", f.Name, err)
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
