package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// callTimeout bounds one call of the API server.
const callTimeout = 10 * time.Second

// view is what one look at the node has found. The sub-reconcilers work from it, and add their findings.
type view struct {
	fabrics    []fabrics.Fabric             // in force
	assigned   map[string][]survey.Device   // by fabric, the devices of this node
	given      map[string]int64             // by fabric, addresses of the node's own range that interfaces have
	generation int64                        // of the FabricNode's spec that the node works with; 0: it has none
	withheld   map[string]map[string]string // by fabric and unit id: why no new pod can be served with it
	kept       map[string]string            // by RDMA device: why the node policy keeps it on the host
	findings   *condition.Set
}

// reconciler brings kubelet, Multus and the cluster in line with the Fabrics and the node. Each part of the work is a
// sub-reconciler in a file of its own; this one has their order.
type reconciler struct {
	survey   func() ([]survey.Device, error)
	stateDir string
	log      *slog.Logger
	metrics  *metrics.Metrics
	reporter *condition.Reporter
	saved    *savedState

	addresses addressReconciler
	fabrics   fabricsReconciler
	ranges    *rangeReconciler
	limits    limitReconciler
	networks  networkReconciler
	health    healthReconciler
	offer     offerReconciler
	devices   deviceReconciler
	claims    claimReconciler
	readiness readiness
	confined  confinedReconciler
	status    statusReconciler

	now               func() time.Time
	surveyed, counted outcome

	known      map[string]survey.Device // by id, with the rate and prefix that were last seen
	discovered map[string]string        // device id -> the discovered fabric it was in at the last look
}

// reconcile looks at the node once. What fails is logged or becomes a condition, and is tried again with the next
// look.
func (r *reconciler) reconcile(ctx context.Context) {
	r.addresses.reconcile(ctx) // before the survey, which asks the policy
	devices, err := r.survey()
	r.surveyed.note(r.log, r.now(), err)
	r.whileMoving(devices)
	discovered := network.Discover(devices, r.discovered)
	r.discovered = map[string]string{}
	for _, d := range devices {
		r.discovered[d.ID()] = d.Fabric
	}
	if link := r.ranges.link; link != nil && link.Synced() {
		r.saved.hear(link.Own())
	}
	findings := &condition.Set{}
	inForce := r.fabrics.reconcile(findings)
	v := &view{
		fabrics: inForce, assigned: network.Assign(inForce, devices, r.saved.Devices), findings: findings,
		kept: map[string]string{},
	}
	for i := range devices {
		if d := &devices[i]; d.Refused != nil {
			node.Keep(v.kept, d.HCA.Name, d.Refused)
		}
	}
	r.addresses.give(ctx, v) // before kubelet hands them out

	reportUnused(discovered, v)
	reportUnmatched(devices, v)
	r.ranges.reconcile(v)
	if !r.limits.reconcile(ctx) {
		v.generation = 0
	}
	r.networks.reconcile(v) // before kubelet hands out devices for them
	r.health.reconcile(v)
	r.offer.reconcile(ctx, v)
	r.devices.reconcile(ctx, v)
	r.claims.reconcile(v)
	r.counted.note(r.log, r.now(), r.metrics.CountCalls(r.stateDir))
	r.readiness.reconcile(v)
	r.confined.reconcile(ctx, v.findings)
	r.reporter.Report(v.findings)
	r.status.reconcile(ctx, v)
}

// whileMoving gives devices that are on their way the rate and the prefix that they had: one that is in neither
// namespace when it is looked for can't be read.
func (r *reconciler) whileMoving(devices []survey.Device) {
	known := map[string]survey.Device{}
	for i := range devices {
		d := &devices[i]
		if was, ok := r.known[d.ID()]; ok && d.Moving() && d.RateGb == 0 {
			d.Prefix, d.RateGb = was.Prefix, was.RateGb
		}
		known[d.ID()] = *d
	}
	r.known = known
}
