package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/server"
)

// gatherTime bounds one answer to Prometheus, whose own limit is 10 s by default.
const gatherTime = 10 * time.Second

// endpoints listens for the probes and for Prometheus. They are apart: kubelet asks without a token, at the node's
// loopback, and gets no more than yes or no.
func (o *Options) endpoints(
	ctx context.Context, registry *prometheus.Registry, reporter *condition.Reporter, client *cluster.Client,
	log *slog.Logger,
) (out []*server.Endpoint, err error) {
	defer func() {
		if err != nil {
			for _, e := range out {
				e.Close()
			}
		}
	}()
	ready := server.Health(func() bool { return len(reporter.NotReady()) == 0 })
	health, err := listen(ctx, "probes", o.Health, ready, nil, log)
	if err != nil {
		return nil, err
	}
	out = append(out, health)
	h := metricsHandler(registry)
	var config *tls.Config
	if o.MetricsSecure {
		addresses, err := server.Addresses(o.Metrics)
		if err != nil {
			return out, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		if config, err = server.TLS(o.MetricsCertDir, addresses, log); err != nil {
			return out, err
		}
		h = server.Authorized(client.MayReadMetrics, log, h)
	}
	m, err := listen(ctx, "Prometheus", o.Metrics, h, config, log)
	if err != nil {
		return out, err
	}
	return append(out, m), nil
}

func listen(
	ctx context.Context, name, list string, h http.Handler, config *tls.Config, log *slog.Logger,
) (*server.Endpoint, error) {
	addresses, err := server.Addresses(list)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	e, err := server.Listen(ctx, server.Config{
		Name: name, Addresses: addresses, Handler: h, TLS: config, Limits: server.Default, Log: log,
	})
	if err == nil {
		log.Info("listening", "for", name, "addresses", e.Addresses(), "tls", config != nil)
	}
	return e, err
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

// serve runs the loops and the endpoints side by side until ctx ends, or an endpoint fails.
func serve(ctx context.Context, endpoints []*server.Endpoint, loops ...func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	errs := make([]error, len(endpoints))
	for i, e := range endpoints {
		running.Go(func() {
			errs[i] = e.Serve(ctx)
			cancel()
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
