package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/cri"
	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/repair"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Run works until ctx ends.
func Run(ctx context.Context, o *Options, version string, log *slog.Logger) error {
	if o.Interval <= 0 || o.Grace < 0 {
		return fmt.Errorf("%w: --interval and --grace want to be positive", ErrUsage)
	}
	registry := prometheus.NewRegistry()
	if err := errors.Join(registry.Register(collectors.NewGoCollector()),
		registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	node := survey.Node{Sys: os.DirFS("/sys"), Store: o.store(), Policy: o.Policy}
	if o.Survey == nil {
		o.Survey = node.Read
	}
	m, err := metrics.New(registry, node, log)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	l := &looker{o: o, log: log, metrics: m, now: time.Now, applied: map[string]time.Time{}, parts: map[string]part{},
		inventory: inventory{version: version},
		trouble:   []string{"the first look at the node is not done"}}
	l.recall()
	if !o.NoCluster {
		c, err := cluster.Dial(o.Kubeconfig, o.Node)
		if err != nil {
			return err
		}
		defer c.Close()
		l.cluster = c
	}
	if o.DeviceDir != "" {
		l.set = &deviceplugin.Set{Dir: o.DeviceDir, InfoDir: o.InfoDir, Log: log}
		defer l.set.Stop()
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen for probes and Prometheus: %w", err)
	}
	log.Info("running", "version", version, "node", o.Node, "listen", listener.Addr().String())
	return l.all(ctx, listener, registry)
}

// all runs the parts side by side. The first that fails for good ends the others.
func (l *looker) all(ctx context.Context, listener net.Listener, registry *prometheus.Registry) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { l.o.target().Watch(ctx, l.o.Interval, l.metrics.Installed.Inc, l.log) })
	parts.Go(func() { l.repairs().Run(ctx, min(l.o.Interval, time.Minute)) })
	parts.Go(func() {
		tick := time.NewTicker(l.o.Interval)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.look(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	server := &http.Server{Handler: l.handler(registry), ReadHeaderTimeout: 10 * time.Second}
	parts.Go(func() {
		<-ctx.Done()
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer stop()
		if err := server.Shutdown(end); err != nil {
			l.log.Debug("connections were still open", "error", err)
		}
	})
	err := server.Serve(listener)
	cancel()
	parts.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve probes and Prometheus: %w", err)
}

func (l *looker) repairs() *repair.Loop {
	runtime := cri.Runtime{Socket: l.o.CRISocket, HostProc: l.o.HostProc}
	return &repair.Loop{
		Store:       l.o.store(),
		Plugin:      l.o.target().Path(),
		HostProc:    l.o.HostProc,
		Grace:       l.o.Grace,
		CallTimeout: 2 * time.Minute,
		Sandboxes:   runtime.Sandboxes,
		Log:         l.log,
		Now:         time.Now,
		Done: func(e *journal.Entry, err error) {
			if err != nil {
				l.metrics.Failed.WithLabelValues(e.Network).Inc()
				return
			}
			l.metrics.Repaired.WithLabelValues(e.Network).Inc()
			if l.cluster != nil {
				l.cluster.Warn(
					"DeviceRepaired",
					fmt.Sprintf(
						"device %s of network %s was left behind by container %s, whose DEL never came: it is home "+
							"again",
						e.Claim,
						e.Network,
						e.ContainerID,
					),
				)
			}
		},
	}
}

func (l *looker) handler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if trouble := l.ready(); len(trouble) > 0 {
			http.Error(w, strings.Join(trouble, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// cut takes the reason of an Event from its message.
func cut(text string) (reason, message string) {
	reason, message, _ = strings.Cut(text, "\x00")
	return reason, message
}
