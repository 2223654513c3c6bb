package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

const (
	// reapply is how often something is written to the cluster again although it has not changed here: somebody may
	// have changed or deleted it there.
	reapply = 5 * time.Minute
	// slowEvery is the number of looks at the node for one run of slowChecks.
	slowEvery = 30
	// callTimeout bounds one call of the API server, allocateTimeout the several calls that a range may need.
	callTimeout     = 10 * time.Second
	allocateTimeout = 30 * time.Second
)

// view is what one look at the node has found. The sub-reconcilers work from it, and add their conditions.
type view struct {
	fabrics    []settings.Fabric          // in force
	assigned   map[string][]survey.Device // by fabric, the devices of this node
	conditions *condition.Set
}

// reconciler brings kubelet, Multus and the cluster in line with the settings and the node. Each part of the work is a
// sub-reconciler in a file of its own; this one has their order.
type reconciler struct {
	survey   func() ([]survey.Device, error)
	stateDir string
	log      *slog.Logger
	metrics  *metrics.Metrics
	reporter *condition.Reporter
	saved    *savedState

	addresses addressReconciler
	settings  settingsReconciler
	ranges    *rangeReconciler
	networks  networkReconciler
	devices   deviceReconciler
	slow      slowChecks
	readiness readiness
	inventory inventoryReconciler

	discovered map[string]string // device id -> the discovered fabric it was in at the last look
}

// reconcile looks at the node once. What fails is logged or becomes a condition, and is tried again with the next
// look.
func (r *reconciler) reconcile(ctx context.Context) {
	r.addresses.reconcile(ctx) // before the survey, which asks the policy
	devices, err := r.survey()
	if err != nil {
		r.log.Error("cannot read all devices", "error", err)
	}
	discovered := network.Discover(devices, r.discovered)
	r.discovered = map[string]string{}
	for _, d := range devices {
		r.discovered[d.ID] = d.Fabric
	}
	conditions := &condition.Set{}
	fabrics, changed := r.settings.reconcile(ctx, devices, conditions)
	if changed {
		r.slow.next = time.Time{}
	}
	v := &view{fabrics, network.Assign(fabrics, devices, r.saved.Devices), conditions}

	reportUnused(discovered, v)
	reportUnmatched(devices, v)
	r.ranges.reconcile(ctx, v)
	r.networks.reconcile(ctx, v) // before kubelet hands out devices for them
	r.devices.reconcile(ctx, v)
	if err := r.metrics.CountCalls(r.stateDir); err != nil {
		r.log.Error("cannot count the plugin's calls", "error", err)
	}
	r.slow.reconcile(ctx, v)
	r.readiness.reconcile(v)
	r.reporter.Report(v.conditions)
	r.inventory.reconcile(ctx)
}

// slowChecks are those that ask the API server for objects of the whole cluster. They run once in slowEvery looks;
// their conditions stand until the next run.
type slowChecks struct {
	capacity *capacityChecker
	pools    poolReconciler
	prune    pruner
	now      func() time.Time
	every    time.Duration

	next       time.Time
	conditions condition.Set // of the last run
}

func (s *slowChecks) reconcile(ctx context.Context, v *view) {
	if !s.now().Before(s.next) {
		s.next = s.now().Add(s.every)
		s.conditions = condition.Set{}
		slow := &view{v.fabrics, v.assigned, &s.conditions}
		s.prune.reconcile(ctx)
		s.capacity.reconcile(ctx, slow)
		s.pools.reconcile(ctx, slow)
	}
	v.conditions.Merge(&s.conditions)
}
