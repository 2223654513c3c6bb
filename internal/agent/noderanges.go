package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/noderange"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
)

// rangeReconciler allocates this node's own range of each fabric that has nodeRanges.
type rangeReconciler struct {
	cluster   *cluster.Client // nil: no range can be allocated
	namespace string          // of the ConfigMaps with the ranges of all nodes
	log       *slog.Logger
	now       func() time.Time

	ranges map[string]nodeRange // by fabric
}

// nodeRange is what is known of this node's range of a fabric.
type nodeRange struct {
	settings settings.NodeRanges // those it was allocated for
	prefix   netip.Prefix
	verified time.Time // when the cluster last confirmed it
	lost     bool      // the node has no range; the one it may have had is another node's
}

// bounds are the first and last address that this node may give.
func (n *nodeRange) bounds() (first, last netip.Addr) {
	return spec("", &n.settings).Bounds(n.prefix)
}

func spec(fabric string, r *settings.NodeRanges) noderange.Spec {
	return noderange.Spec{
		Fabric: fabric, Prefix: r.Prefix, Bits: r.Bits, Without: r.Without, Reclaim: r.Reclaim.Duration,
	}
}

// reconcile allocates the ranges of the fabrics that have devices on this node, and confirms them every few minutes.
func (r *rangeReconciler) reconcile(ctx context.Context, v *view) {
	for i := range v.fabrics {
		f := &v.fabrics[i]
		if f.NodeRanges != nil && network.Configurable(f, v.assigned[f.Name]) {
			r.allocate(ctx, f, v.conditions)
		}
	}
}

// allocate asks the cluster for the node's range, if it is unknown or due to be confirmed. A range that cannot be
// confirmed, because the API server is away, stays in use.
func (r *rangeReconciler) allocate(ctx context.Context, f *settings.Fabric, conditions *condition.Set) {
	if n, ok := r.get(f); r.cluster == nil || ok && r.now().Sub(n.verified) < reapply {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	prefix, err := r.cluster.NodeRange(ctx, r.namespace, spec(f.Name, f.NodeRanges), r.now)
	switch {
	case errors.Is(err, noderange.ErrExhausted):
		r.ranges[f.Name] = nodeRange{lost: true}
		conditions.Fail(condition.NodeRangeAllocated, condition.Fabric(f.Name), "%v", err)
	case err != nil:
		r.log.Error("cannot allocate or confirm this node's range", "fabric", f.Name, "error", err)
	default:
		if r.ranges[f.Name].prefix != prefix {
			r.log.Info("allocated this node's range", "fabric", f.Name, "range", prefix.String())
		}
		r.ranges[f.Name] = nodeRange{settings: *f.NodeRanges, prefix: prefix, verified: r.now()}
	}
}

// get returns the node's range of a fabric; false: it has none that fits the fabric's settings.
func (r *rangeReconciler) get(f *settings.Fabric) (nodeRange, bool) {
	n, ok := r.ranges[f.Name]
	return n, ok && !n.lost && f.NodeRanges != nil && reflect.DeepEqual(n.settings, *f.NodeRanges)
}
