// Package metrics shows Prometheus what the agent knows: attachments, devices and their ports, RDMA counters where the
// device is, repairs.
package metrics

import (
	"log/slog"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// Metrics is everything the agent counts, and a collector for what it looks at when asked.
type Metrics struct {
	Repaired  *prometheus.CounterVec // by network
	Failed    *prometheus.CounterVec // repairs that failed, by network
	Installed prometheus.Counter     // times the binary had to be put back
	Ready     prometheus.Gauge

	poolHave, poolGiven *prometheus.GaugeVec // by fabric, pool, range
	spool               spool

	node survey.Node
	log  *slog.Logger

	mu      sync.Mutex
	fabrics map[string]string // device id -> fabric
}

// New makes the metrics and registers them.
func New(r prometheus.Registerer, node survey.Node, log *slog.Logger) (*Metrics, error) {
	m := &Metrics{
		Repaired: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fabric_repaired_total",
			Help: "Attachments of dead pods whose devices the agent has brought home."}, []string{"network"}),
		Failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fabric_repair_failures_total",
			Help: "Attempts to bring a dead pod's device home that failed."}, []string{"network"}),
		Installed: prometheus.NewCounter(prometheus.CounterOpts{Name: "fabric_reinstalled_total",
			Help: "Times the CNI binary was not the agent's and was put back."}),
		Ready: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fabric_ready", Help: "1 if pods can be served."}),
		poolHave: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fabric_pool_addresses",
			Help: "Addresses that there are to give: in an IPPool of whereabouts, which every node shows, or in the " +
				"node's own part of a range.",
		}, poolLabels),
		poolGiven: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{
				Name: "fabric_pool_allocated",
				Help: "Addresses that are given, of fabric_pool_addresses.",
			},
			poolLabels,
		),
		spool: newSpool(),
		node:  node,
		log:   log,
	}
	for _, c := range m.Collectors() {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

var poolLabels = []string{"fabric", "pool", "range"}

// Collectors are all that is registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m,
		m.Repaired,
		m.Failed,
		m.Installed,
		m.Ready,
		m.poolHave,
		m.poolGiven,
		m.spool.duration,
		m.spool.errors,
	}
}

// ResetPools forgets all pools.
func (m *Metrics) ResetPools() {
	m.poolHave.Reset()
	m.poolGiven.Reset()
}

// Pool tells how many addresses a pool has, and how many of them are given.
func (m *Metrics) Pool(fabric, pool, prefix string, given, have int) {
	m.poolHave.WithLabelValues(fabric, pool, prefix).Set(float64(have))
	m.poolGiven.WithLabelValues(fabric, pool, prefix).Set(float64(given))
}

// Fabrics tells which device is in which fabric.
func (m *Metrics) Fabrics(of map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fabrics = of
}

var (
	attachments = prometheus.NewDesc(
		"fabric_attachments",
		"Interfaces that pods have, by network and kind.",
		[]string{"network", "kind"},
		nil,
	)
	corrupt = prometheus.NewDesc(
		"fabric_journal_unreadable",
		"1 if the journal has entries that cannot be read.",
		nil,
		nil,
	)
	state = prometheus.NewDesc(
		"fabric_port_state",
		"Logical state of a port: 1 Down, 2 Init, 3 Armed, 4 Active (IBTA).",
		[]string{"device", "hca", "port", "fabric", "container"},
		nil,
	)
	refused = prometheus.NewDesc(
		"fabric_device_refused",
		"1 for a device that the node policy keeps on the host.",
		[]string{"device", "hca"},
		nil,
	)
	counter = prometheus.NewDesc(
		"fabric_rdma_counter",
		"Counter of an RDMA port as the kernel has it, read in the pod that has the device.",
		[]string{"device", "hca", "port", "group", "name", "fabric", "container"},
		nil,
	)
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{attachments, corrupt, state, refused, counter} {
		out <- d
	}
}

// Collect implements prometheus.Collector: it looks at the node now.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	entries, err := m.node.Store.List()
	out <- prometheus.MustNewConstMetric(corrupt, prometheus.GaugeValue, one(err != nil))
	m.journal(out, entries)
	devices, err := m.node.Read()
	if err != nil {
		m.log.Warn("metrics lack what cannot be read", "error", err)
	}
	m.mu.Lock()
	fabrics := m.fabrics
	m.mu.Unlock()
	for i := range devices {
		m.device(out, &devices[i], fabrics[devices[i].ID])
	}
}

func (m *Metrics) journal(out chan<- prometheus.Metric, entries []*journal.Entry) {
	type label struct{ network, kind string }
	count := map[label]int{}
	for _, e := range entries {
		if e.Attached {
			count[label{e.Network, string(e.Kind)}]++
		}
	}
	for l, n := range count {
		out <- prometheus.MustNewConstMetric(attachments, prometheus.GaugeValue, float64(n), l.network, l.kind)
	}
}

func (m *Metrics) device(out chan<- prometheus.Metric, d *survey.Device, fabric string) {
	container := ""
	if d.Holder != nil {
		container = d.Holder.ContainerID
	}
	for _, p := range d.HCA.Ports {
		out <- prometheus.MustNewConstMetric(state, prometheus.GaugeValue, float64(p.State), d.ID, d.HCA.Name, utoa(p.Number), fabric, container)
	}
	out <- prometheus.MustNewConstMetric(refused, prometheus.GaugeValue, one(d.Refused != nil), d.ID, d.HCA.Name)
	list, err := m.node.Counters(d)
	if err != nil {
		m.log.Warn("cannot read the counters of a device", "device", d.ID, "error", err)
	}
	for _, c := range list {
		out <- prometheus.MustNewConstMetric(counter, prometheus.CounterValue, float64(c.Value),
			d.ID, d.HCA.Name, utoa(c.Port), c.Group, c.Name, fabric, container)
	}
}

func utoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
