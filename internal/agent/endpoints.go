package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/server"
)

// gatherTime bounds one answer to Prometheus, whose own limit is 10 s by default.
const gatherTime = 10 * time.Second

// portAgain is the time between two tries to listen at a port.
const portAgain = 2 * time.Second

// port is an endpoint that is served as soon as its addresses are free.
type port struct {
	server.Config

	happened func(reason, message string)
}

// endpoints are the probes and Prometheus's. They are apart: kubelet runs a command in the agent's container, which
// asks without a token at a socket there, and gets no more than yes or no.
func (o *Options) endpoints(
	registry *prometheus.Registry, reporter *condition.Reporter, client *cluster.Client, log *slog.Logger,
) ([]*port, error) {
	ready := server.Health(func() bool { return len(reporter.NotReady()) == 0 })
	health, err := newPort("probes", o.Health, ready, reporter, log)
	if err != nil {
		return nil, err
	}
	m, err := newPort("Prometheus", o.Metrics, metricsHandler(registry), reporter, log)
	if err != nil {
		return nil, err
	}
	if o.MetricsSecure {
		if m.TLS, err = server.TLS(o.MetricsCertDir, m.Addresses, log); err != nil {
			return nil, err
		}
		m.Handler = server.Authorized(client.MayReadMetrics, log, m.Handler)
	}
	return []*port{health, m}, nil
}

func newPort(name, list string, h http.Handler, reporter *condition.Reporter, log *slog.Logger) (*port, error) {
	addresses, err := server.Addresses(list)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return &port{server.Config{
		Name: name, Addresses: addresses, Handler: h, Limits: server.Default, Log: log,
	}, reporter.Happened}, nil
}

// serve serves it until ctx ends. Any process of the node may have the port: that is no reason for the agent not to
// work.
func (p *port) serve(ctx context.Context) {
	for said := false; ctx.Err() == nil; pause(ctx, portAgain) {
		e, err := server.Listen(ctx, p.Config)
		if err == nil {
			p.Log.Info("listening", "for", p.Name, "addresses", e.Addresses(), "tls", p.TLS != nil)
			said, err = false, e.Serve(ctx)
		}
		if err != nil && !said {
			said = true
			text := fmt.Sprintf("%v; tried again each %s", err, portAgain)
			if errors.Is(err, unix.EADDRINUSE) {
				text = "another process of this node has the port, end it, or give the agent another one: " + text
			}
			p.Log.Error(text)
			p.happened(condition.PortTaken, text)
		}
	}
}

// metricsHandler bounds how many look at the node at once, also those whose caller has gone or was told that it took
// too long: they end when the node has answered.
func metricsHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: server.AtOnce,
		Timeout:             gatherTime,
	}))
	return server.Limited(server.AtOnce, mux)
}

// serve runs loops side by side until ctx ends.
func serve(ctx context.Context, loops ...func(context.Context)) {
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	running.Wait()
}
