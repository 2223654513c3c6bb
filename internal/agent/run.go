package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/podresources"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/internal/prepared"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Run works until ctx ends: it looks at the node every interval, keeps the binary in place, repairs, and serves probes
// and metrics. While the node is one that `fabric-agent uninstall` has left, it does nothing but say so.
func Run(ctx context.Context, o *Options, version string, log *slog.Logger) error {
	if o.Interval <= 0 || o.Grace < 0 {
		return fmt.Errorf("%w: --interval and --grace must be positive", ErrUsage)
	}
	registry := prometheus.NewRegistry()
	if err := errors.Join(registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	w := &worker{
		o: o, version: version, log: log,
		node: survey.Node{
			Sys: os.DirFS("/sys"), Store: o.store(), Policy: o.Policy, Proc: o.HostProc, Seen: &survey.Seen{},
		},
	}
	w.files = filesThen
	if o.Survey == nil {
		o.Survey, o.counters, w.files = w.node.Read, w.node.Counters, filesNow(w.node)
	}
	var err error
	if w.metrics, err = metrics.New(registry, w.node, o.Interval, log); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if !o.NoCluster {
		if w.client, w.link, err = cluster.Dial(o.Kubeconfig, o.Node, log); err != nil {
			return err
		}
		defer w.client.Close()
		w.link.Every = o.WriteEvery
	}
	w.reporter = &condition.Reporter{Log: log, Ready: w.metrics.SetReady}
	if w.client != nil {
		w.reporter.Event = w.client.Event
	}
	first, err := w.begin()
	if err != nil {
		return err
	}
	endpoints, err := o.endpoints(registry, w.reporter, w.client, log)
	if err != nil {
		return err
	}
	log.Info("running", "version", version, "node", o.Node)
	loops := []func(context.Context){w.link.Run, func(ctx context.Context) { w.run(ctx, first) }}
	for _, e := range endpoints {
		loops = append(loops, e.serve)
	}
	serve(ctx, loops...)
	return nil
}

// every calls f at once, then each interval and when something has changed, until ctx ends.
func every(ctx context.Context, interval time.Duration, changed <-chan struct{}, f func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		f(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-changed:
		}
	}
}

// newReconciler connects the sub-reconcilers. link and plugins may be nil.
func newReconciler(
	o *Options, target install.Target, link *cluster.Link, plugins *deviceplugin.Set,
	m *metrics.Metrics, reporter *condition.Reporter, log *slog.Logger,
) *reconciler {
	saved, err := loadState(o.StateDir)
	if err != nil {
		log.Error(err.Error())
	}
	judge := health.Judge{Settle: settleLooks * o.Interval, Confirm: o.Interval / 2}
	judge.Restore(time.Now(), saved.Health)
	ipamDir := o.ipamDir()
	ranges := &rangeReconciler{link: link, saved: saved, ipamDir: ipamDir, metrics: m, log: log}
	for id, s := range saved.Health {
		if reason, ok := problems[s.Problem]; ok {
			reporter.Known(reason, condition.Device(id))
		}
	}
	inForce := fabricsReconciler{saved: saved, log: log, now: time.Now}
	confined := confinedReconciler{log: log, now: time.Now}
	if link != nil {
		confined.mayWriteOthers = link.MayWriteOthers
		inForce.told = func() ([]*v1alpha1.Fabric, bool) { return link.Fabrics(), link.Synced() }
		inForce.selected = func() ([]string, bool) {
			own := link.Own()
			if own == nil {
				return nil, link.Synced()
			}
			return own.Spec.Selected, link.Synced()
		}
	}
	r := &reconciler{
		addresses: addressReconciler{
			addresses: o.nodeIPs, link: link, plugins: o.DeviceDir, dir: o.StateDir, log: log, now: time.Now,
			found: outcome{what: "find the addresses of the node"},
		},
		now:      time.Now,
		surveyed: outcome{what: "read all devices"},
		counted:  outcome{what: "count the plugin's calls"},
		survey:   o.Survey, stateDir: o.StateDir, log: log, metrics: m, reporter: reporter, saved: saved,
		fabrics: inForce,
		ranges:  ranges,
		limits:  limitReconciler{link: link, saved: saved, ipamDir: ipamDir, log: log},
		networks: networkReconciler{
			confDir: o.ConfDir, noted: filepath.Join(o.StateDir, policy.PublishedDir), ipamDir: ipamDir,
			store: o.store(), ranges: ranges, log: log,
		},
		health: healthReconciler{
			judge: judge, counters: o.counters, saved: saved, metrics: m, log: log, now: time.Now,
		},
		devices:   deviceReconciler{plugins: plugins, metrics: m, saved: saved, log: log},
		readiness: readiness{plugin: target, store: o.store()},
		confined:  confined,
		status: statusReconciler{
			link: link, node: o.Node, plugin: target, store: o.store(), ipamDir: ipamDir, log: log,
			now: time.Now, reported: outcome{what: "report what the node has"},
		},
	}
	r.offer = o.newOffer(&r.networks, m, log)
	return r
}

func (o *Options) newOffer(networks *networkReconciler, m *metrics.Metrics, log *slog.Logger) offerReconciler {
	out := offerReconciler{
		networks: networks, mode: o.Mode, metrics: m, log: log,
		ipam:    ipamReconciler{binDir: o.BinDir, hostProc: o.HostProc, log: log},
		holders: holderReader{store: o.store(), claims: prepared.In(o.StateDir), log: log},
	}
	if out.mode == nil {
		out.mode = survey.Mode
	}
	if o.PodSocket != "" && o.DeviceDir != "" {
		out.holders.given = podresources.Kubelet{Socket: o.PodSocket, HostProc: o.HostProc}.List
	}
	return out
}
