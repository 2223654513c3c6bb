package agent

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra"
	"github.com/fabric-cni/fabric-cni/internal/agent/install"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

// worker is an agent that works on its node while it is not uninstalled there.
type worker struct {
	o        *Options
	version  string
	node     survey.Node
	files    func(context.Context, deviceplugin.Unit) ([]string, error)
	metrics  *metrics.Metrics
	client   *cluster.Client // nil: there is no API server
	link     *cluster.Link   // nil: there is no API server
	reporter *condition.Reporter
	log      *slog.Logger
}

// work is what an agent has while it works.
type work struct {
	target     install.Target
	plugins    *deviceplugin.Set // nil: no device plugin
	driver     *dra.Driver       // nil: no DRA
	reconciler *reconciler
}

// begin makes what an agent needs to work.
func (w *worker) begin() (*work, error) {
	b := &work{target: w.o.target()}
	if w.o.DeviceDir != "" {
		b.plugins = &deviceplugin.Set{
			Dir: w.o.DeviceDir, InfoDir: w.o.InfoDir, Log: w.log, Files: w.files,
			Prefer: w.o.chooser(w.node.Sys, w.log).choose,
		}
	}
	b.target.Sums = &install.Sums{} // for all loops that look at the binary
	var err error
	if b.driver, err = w.o.newDriver(w.client, w.node, w.metrics, w.log); err != nil {
		return nil, err
	}
	r := newReconciler(w.o, b.target, w.link, b.plugins, w.metrics, w.reporter, w.log)
	r.claims = claimReconciler{
		driver: b.driver, networks: &r.networks, known: w.link.Synced,
	}
	if w.client != nil {
		r.addresses.server = w.client.LocalAddresses
	}
	r.status.version = w.version
	b.reconciler = r
	return b, nil
}

// lookAway is the time between two looks at whether the node has been uninstalled.
const lookAway = time.Second

// run works, and waits while the node is uninstalled, until ctx ends.
func (w *worker) run(ctx context.Context, b *work) {
	p := presence{w.o.StateDir}
	for ctx.Err() == nil {
		present := w.enter(ctx, p)
		if !p.isAway() {
			present = w.work(ctx, p, present, b)
		}
		mark, err := p.wait(ctx)
		if present != nil {
			present.Close() // uninstall waits for that
		}
		switch {
		case ctx.Err() != nil && mark == nil:
			return
		case err != nil:
			w.log.Error("cannot tell whether this node is uninstalled", "error", err)
			pause(ctx, lookAway)
		case mark != nil:
			w.idle(ctx, p, mark)
		}
		for b = nil; b == nil && ctx.Err() == nil; {
			if b, err = w.begin(); err != nil {
				w.log.Error("cannot work again", "error", err)
				pause(ctx, lookAway)
			}
		}
	}
}

// enter says that this agent works; nil: it can't, because the state directory is not to be used, which is a finding.
func (w *worker) enter(ctx context.Context, p presence) *os.File {
	f, err := p.enter(ctx, w.o.places())
	if err != nil {
		w.log.Debug("cannot say that an agent works here", "error", err)
		return nil
	}
	return f
}

// work works until ctx ends or the node is uninstalled. Then kubelet has nothing of it any more. It returns what says
// that this agent works: another file, if the first one was removed.
func (w *worker) work(ctx context.Context, p presence, present *os.File, b *work) *os.File {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for _, loop := range []func(context.Context){
		func(ctx context.Context) { b.target.Watch(ctx, w.o.Interval, w.metrics.Reinstalled.Inc, w.log) },
		func(ctx context.Context) {
			repairLoop(w.o, w.metrics, w.reporter, w.log).Run(ctx, min(w.o.Interval, time.Minute))
		},
		func(ctx context.Context) { every(ctx, w.o.Interval, w.link.Changed(), b.reconciler.reconcile) },
		b.driver.Run,
	} {
		wg.Go(func() { loop(running) })
	}
	for running.Err() == nil {
		pause(running, min(lookAway, w.o.Interval))
		if p.isAway() {
			w.log.Info("this node is being uninstalled: withdrawing its devices")
			stop()
		}
		if present == nil || !isFile(p.present(), present) {
			again, cancel := context.WithTimeout(running, lookAway)
			f := w.enter(again, p)
			if cancel(); f != nil {
				if present != nil {
					present.Close()
				}
				present = f
			}
		}
	}
	wg.Wait()
	if b.plugins != nil {
		b.plugins.Stop()
	}
	if ctx.Err() == nil {
		b.driver.Withdraw(ctx)
	}
	return present
}

// idle does nothing but say so, until ctx ends or the node is installed again. An agent that ends takes the last file
// of the node with it.
func (w *worker) idle(ctx context.Context, p presence, mark *os.File) {
	set := &condition.Set{}
	set.Add(condition.Uninstalled, condition.Node, "fabric-cni has been uninstalled from this node: this agent does "+
		"nothing, and no pod gets a device; a new pod of the agent ends that, and so does `fabric-agent install` in "+
		"this one")
	w.reporter.Report(set)
	s := statusReconciler{link: w.link, now: time.Now, reported: outcome{what: "report what the node has"}, log: w.log}
	for ctx.Err() == nil && isFile(p.away(), mark) {
		if w.link != nil {
			s.idle(ctx, set, w.version)
		}
		pause(ctx, min(lookAway, w.o.Interval))
	}
	mark.Close()
	if ctx.Err() == nil {
		w.log.Info("this node is installed again")
		return
	}
	if err := w.o.last(); err != nil {
		w.log.Error("cannot remove the last file of this node", "error", err)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
