package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/server"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
)

// reportTime bounds how long a node that has uninstalled everything tries to say so in its FabricNode.
const reportTime = 15 * time.Second

// stay uninstalls everything from this node, tries again while pods have devices, and then does nothing until ctx ends.
// It is what the pods of the agent do while fabric-cni is removed from a cluster: they have the node's directories, and
// are ready once nothing is left. It takes the flags of run.
func (o *Options) stay(ctx context.Context, version string, log *slog.Logger) error {
	reporter := &condition.Reporter{Log: log}
	ready := server.Health(func() bool { return len(reporter.NotReady()) == 0 })
	health, err := newPort("probes", o.Health, ready, reporter, log)
	if err != nil {
		return err
	}
	var link *cluster.Link
	if !o.NoCluster && o.Node != "" {
		client, l, err := cluster.Dial(o.Kubeconfig, o.Node, log)
		if err != nil {
			return err
		}
		defer client.Close()
		link, reporter.Event = l, client.Event
	}
	serve(ctx, health.serve, func(ctx context.Context) {
		o.untilUninstalled(ctx, link, version, reporter, log)
		reporter.Report(&condition.Set{})
	})
	return nil
}

// untilUninstalled uninstalls, and says in the FabricNode why it can't. It has no link to the cluster when it ends: the
// FabricNode is deleted next, and must not be created again.
func (o *Options) untilUninstalled(
	ctx context.Context, link *cluster.Link, version string, reporter *condition.Reporter, log *slog.Logger,
) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { link.Run(ctx) })
	s := statusReconciler{
		link: link, store: o.store(), log: log, now: time.Now, reported: outcome{what: "report what the node has"},
	}
	for ctx.Err() == nil {
		err := o.uninstall(ctx, log)
		if err == nil {
			break
		}
		set := &condition.Set{}
		set.Add(condition.UninstallRefused, condition.Node, "%v", err)
		reporter.Report(set)
		if link != nil {
			s.refused(ctx, set, version)
		}
		pause(ctx, o.Interval)
	}
	if link == nil {
		return
	}
	set := &condition.Set{}
	set.Add(condition.Uninstalled, condition.Node, "fabric-cni has been uninstalled from this node")
	ctx, end := context.WithTimeout(ctx, reportTime)
	defer end()
	for ctx.Err() == nil && !s.idle(ctx, set, version) {
		pause(ctx, time.Second/4)
	}
}

// refused says why the node can't be uninstalled. What the last agent has said of its devices stays, but for pods that
// have ended.
func (r *statusReconciler) refused(ctx context.Context, set *condition.Set, version string) {
	own := r.link.Own()
	if own == nil {
		return
	}
	there := map[string]bool{}
	for _, pods := range podsOf(r.store, prepared.In(r.store.Dir), r.log) {
		for _, p := range pods {
			there[p] = true
		}
	}
	s := own.Status.DeepCopy()
	s.Agent, s.Conditions, s.Devices.Attached = version, r.conditions(set), 0
	for i := range s.Fabrics {
		for k := range s.Fabrics[i].Devices {
			d := &s.Fabrics[i].Devices[k]
			d.Pods = slices.DeleteFunc(d.Pods, func(p string) bool { return !there[p] })
			s.Devices.Attached += int32(len(d.Pods))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.link.Report(ctx, s)
	r.reported.note(r.log, r.now(), err)
}
