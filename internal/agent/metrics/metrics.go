// Package metrics exports to Prometheus what the agent counts, and the state of the node at the moment of the scrape.
// Each metric is one row: in Metrics where the agent counts or sets it, in nodeMetrics or deviceMetrics where it is
// read from the node.
package metrics

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

// Metrics has the metrics that the agent counts or sets, and is a collector of those that are read from the node.
type Metrics struct {
	Repaired       *prometheus.CounterVec // by network
	RepairFailures *prometheus.CounterVec // by network
	Reinstalled    prometheus.Counter
	ready          prometheus.Gauge

	poolAddresses *prometheus.GaugeVec // by fabric and range
	poolAllocated *prometheus.GaugeVec // the same

	callDuration *prometheus.HistogramVec // by verb
	callErrors   *prometheus.CounterVec   // by verb and code

	prepareDuration *prometheus.HistogramVec
	prepareErrors   *prometheus.CounterVec // by reason

	collectors []prometheus.Collector
	node       survey.Node
	look       look
	log        *slog.Logger

	mu       sync.Mutex
	fabrics  map[string]string // device id -> fabric
	health   []Health
	unserved []Health
}

// Health is what the agent has judged of a device.
type Health struct {
	Device, HCA, Fabric string
	Problem             string // empty: it is healthy
	Degraded            bool   // a port of several is not Active, where pods get all of them
	Flaps               uint64 // since the agent was started
}

// New returns the metrics of a node, registered with r. What a scrape has read of the devices is good for all others
// that come within fresh.
func New(r prometheus.Registerer, node survey.Node, fresh time.Duration, log *slog.Logger) (*Metrics, error) {
	m := &Metrics{node: node, look: newLook(node, fresh), log: log}
	m.Repaired = m.counter("fabric_repaired_total",
		"Attachments of dead pods whose devices the agent has reclaimed.", "network")
	m.RepairFailures = m.counter("fabric_repair_failures_total",
		"Attempts to reclaim the device of a dead pod that failed.", "network")
	m.Reinstalled = m.counter("fabric_reinstalled_total",
		"Times the CNI binary was not the agent's and was installed again.").WithLabelValues()
	m.ready = m.gauge("fabric_ready", "1 if pods can be served.").WithLabelValues()
	m.poolAddresses = m.gauge("fabric_pool_addresses", "Addresses that the node's own range of a fabric has, with "+
		"nodeRanges.", "fabric", "range")
	m.poolAllocated = m.gauge("fabric_pool_allocated",
		"Addresses of fabric_pool_addresses that are allocated.", "fabric", "range")
	m.callDuration = m.histogram("fabric_cni_duration_seconds", "Time that a call of the plugin took, IPAM included, "+
		"by verb; failed calls are included.", callBuckets, "verb")
	m.callErrors = m.counter("fabric_cni_errors_total",
		"Calls of the plugin that failed, by verb and by the code of the error.", "verb", "code")
	m.prepareDuration = m.histogram("fabric_prepare_duration_seconds", "Time that it took to prepare a ResourceClaim; "+
		"those that failed are included.", callBuckets)
	m.prepareErrors = m.counter("fabric_prepare_errors_total",
		"ResourceClaims that could not be prepared, by reason.", "reason")
	for _, c := range m.Collectors() {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Collectors are all that is registered.
func (m *Metrics) Collectors() []prometheus.Collector { return append(m.collectors, m) }

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.collectors = append(m.collectors, v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.collectors = append(m.collectors, v)
	return v
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.collectors = append(m.collectors, v)
	return v
}

// SetReady sets whether pods can be served.
func (m *Metrics) SetReady(ready bool) { m.ready.Set(number(ready)) }

// Prepared counts a ResourceClaim that has been prepared; with a reason, one that could not be.
func (m *Metrics) Prepared(took time.Duration, reason string) {
	m.prepareDuration.WithLabelValues().Observe(took.Seconds())
	if reason != "" {
		m.prepareErrors.WithLabelValues(reason).Inc()
	}
}

// ResetPools forgets all ranges.
func (m *Metrics) ResetPools() {
	m.poolAddresses.Reset()
	m.poolAllocated.Reset()
}

// SetPool sets how many addresses the node's range of a fabric has, and how many of them are allocated.
func (m *Metrics) SetPool(fabric, prefix string, allocated, capacity int) {
	m.poolAddresses.WithLabelValues(fabric, prefix).Set(float64(capacity))
	m.poolAllocated.WithLabelValues(fabric, prefix).Set(float64(allocated))
}

// SetFabrics sets which device is in which fabric.
func (m *Metrics) SetFabrics(of map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fabrics = of
}

// SetHealth sets what the agent has judged of the devices in fabrics.
func (m *Metrics) SetHealth(h []Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health = h
}

// SetUnserved sets the devices that no new pod can be served with, whatever their health.
func (m *Metrics) SetUnserved(h []Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unserved = h
}

func (m *Metrics) judged() (health, unserved []Health) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.health, m.unserved
}

func (m *Metrics) fabric(device string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fabrics[device]
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
