package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
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
			allocated: r.allocated(fabric), capacity: spec(fabric, &n.settings).Capacity(n.prefix),
		})
	}
	return out
}

// allocated counts the addresses that host-local has given on this node: it keeps a file for each.
func (r *poolReconciler) allocated(fabric string) (n int) {
	entries, err := os.ReadDir(filepath.Join(r.ipamDir, fabric))
	if err != nil {
		return 0 // none yet
	}
	for _, e := range entries {
		if _, err := netip.ParseAddr(strings.ReplaceAll(e.Name(), "_", ":")); err == nil {
			n++
		}
	}
	return n
}

// whereabouts are the IPPools of the fabrics that have that IPAM plugin.
func (r *poolReconciler) whereabouts(ctx context.Context, fabrics []settings.Fabric) (out []poolUsage) {
	configs := map[string]*whereabouts.Config{}
	for i := range fabrics {
		if c, err := fabrics[i].Whereabouts(); err == nil && c != nil {
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
func poolsOf(fabric string, c *whereabouts.Config, list []cluster.Pool) (out []poolUsage) {
	for _, r := range c.Ranges {
		for _, p := range list {
			if c.Owns(r, p.Name, p.Range) {
				out = append(out, poolUsage{fabric, p.Name, p.Range, p.Allocated, c.Capacity(r, p.Range)})
			}
		}
	}
	return out
}
