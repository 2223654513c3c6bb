package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
)

// poolReconciler shows how many addresses the pools of the fabrics have left: IPPools of whereabouts, and this node's
// own ranges.
type poolReconciler struct {
	cluster *cluster.Client // nil: no IPPools
	ipamDir string          // where host-local keeps the addresses of this node's ranges
	ranges  *rangeReconciler
	metrics *metrics.Metrics
	log     *slog.Logger
}

// poolUsage is how full one pool of a fabric is.
type poolUsage struct {
	fabric, name string
	prefix       netip.Prefix
	allocated    int
	capacity     int
}

func (r *poolReconciler) reconcile(ctx context.Context, v *view) {
	r.metrics.ResetPools()
	for _, p := range append(r.whereabouts(ctx, v.fabrics), r.nodeRanges()...) {
		r.metrics.SetPool(p.fabric, p.name, p.prefix.String(), p.allocated, p.capacity)
		if amount, full := amounts[pool.LevelOf(p.allocated, p.capacity)]; full {
			v.conditions.Fail(condition.PoolAvailable, condition.Pool(p.name, p.prefix.String()),
				"fabric %s: %s the %d addresses of %s are given (pool %s); choose a wider range before pods have to "+
					"wait", p.fabric, amount, p.capacity, p.prefix, p.name)
		}
	}
}

// amounts are how much of a pool is given, in words.
var amounts = map[pool.Level]string{pool.Full: "all", pool.NearlyFull: "over 90 % of"}

// nodeRanges are this node's own ranges.
func (r *poolReconciler) nodeRanges() (out []poolUsage) {
	for fabric, n := range r.ranges.ranges {
		if n.lost {
			continue
		}
		out = append(out, poolUsage{
			fabric: fabric, name: "of this node", prefix: n.prefix,
			allocated: hostlocal.Given(filepath.Join(r.ipamDir, fabric)),
			capacity:  spec(fabric, &n.settings).Capacity(n.prefix),
		})
	}
	return out
}

// whereabouts are the IPPools of the fabrics that have that IPAM plugin.
func (r *poolReconciler) whereabouts(ctx context.Context, fabrics []settings.Fabric) (out []poolUsage) {
	configs := map[string]*ranges.Section{}
	for i := range fabrics {
		if c, err := fabrics[i].IPAM(); err == nil && c.HasPools() {
			configs[fabrics[i].Name] = c
		}
	}
	if r.cluster == nil || len(configs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := r.cluster.Pools(ctx)
	if err != nil {
		r.log.Error("cannot read how full the address pools are", "error", err)
		return nil
	}
	for fabric, c := range configs {
		out = append(out, poolsOf(fabric, c, list)...)
	}
	return out
}

// poolsOf are the IPPools that belong to one fabric.
func poolsOf(fabric string, c *ranges.Section, list []cluster.Pool) (out []poolUsage) {
	for _, p := range list {
		if capacity, ok := c.PoolCapacity(p.Name, p.Range); ok {
			out = append(out, poolUsage{fabric, p.Name, p.Range, p.Allocated, capacity})
		}
	}
	return out
}
