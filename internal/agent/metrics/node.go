package metrics

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// nodeMetric is a metric of the journal, read at each scrape.
type nodeMetric struct {
	desc *prometheus.Desc
	read func(journalState) []sample
}

// deviceMetric is a metric of each device, read at each scrape.
type deviceMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*deviceState) []sample
}

// sample is one value, and its labels.
type sample struct {
	value  float64
	labels []string
}

// journalState is the plugin's journal.
type journalState struct {
	entries []*journal.Entry
	err     error
}

// deviceState is one device, wherever it is now.
type deviceState struct {
	*survey.Device
	name     string           // of the RDMA device, fit for a label
	fabric   string           // empty: none
	pod      [2]string        // namespace and name of the pod that has it; empty: it is on the host
	counters []survey.Counter // empty if they cannot be read
}

// The labels of a pod. Prometheus gives pod, namespace and container to what it scrapes: those are the agent's own.
const (
	podNamespace = "pod_namespace"
	podName      = "pod_name"
)

var nodeMetrics = []nodeMetric{
	{description("fabric_attachments", "Interfaces that pods have, by network and kind.",
		"network", "kind"), attachments},
	{description("fabric_missing", "1 for what a pod had and DEL has not found: it may be in use, in a network "+
		"namespace that the pod has made, and keeps its addresses.", "network", "device"), missing},
	{description("fabric_journal_unreadable", "1 if the journal has entries that cannot be read."),
		func(j journalState) []sample { return []sample{{number(j.err != nil), nil}} }},
}

var deviceMetrics = []deviceMetric{
	{description("fabric_port_state", "Logical state of a port: 1 Down, 2 Init, 3 Armed, 4 Active (IBTA).",
		"device", "hca", "port", "fabric", podNamespace, podName), prometheus.GaugeValue, portStates},
	{description("fabric_device_refused", "1 for a device that the node policy keeps on the host.", "device", "hca"),
		prometheus.GaugeValue, refused},
	{description("fabric_rdma_counter",
		"Counter of an RDMA port as the kernel has it, read in the pod that has the device, of a VF only while a "+
			"pod has it. port_xmit_data and port_rcv_data count words of four bytes.",
		"device", "hca", "port", "group", "name", "fabric", podNamespace, podName), prometheus.CounterValue, counters},
}

var (
	unhealthy = description("fabric_device_unhealthy", "1 for a device that pods should not use, with the reason.",
		"device", "hca", "fabric", "reason")
	degraded = description("fabric_device_degraded",
		"1 for a device with ports that are not Active and others that are, where pods get all of them.",
		"device", "hca", "fabric")
	flaps = description("fabric_port_flaps_total",
		"How often the port of a device has left Active, moves into pods and back apart.", "device", "hca", "fabric")
)

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func attachments(j journalState) (out []sample) {
	type group struct{ network, kind string }
	count := map[group]int{}
	for _, e := range j.entries {
		if e.Attached {
			count[group{e.Network, string(e.Kind)}]++
		}
	}
	for g, n := range count {
		out = append(out, sample{float64(n), []string{g.network, g.kind}})
	}
	return out
}

func missing(j journalState) (out []sample) {
	seen := map[[2]string]bool{} // one parent may have several
	for _, e := range j.entries {
		if l := [2]string{e.Network, e.DeviceKey}; e.Missing && !seen[l] {
			seen[l] = true
			out = append(out, sample{1, l[:]})
		}
	}
	return out
}

func portStates(d *deviceState) (out []sample) {
	for _, p := range d.HCA.Ports {
		labels := []string{d.ID(), d.name, portNumber(p.Number), d.fabric, d.pod[0], d.pod[1]}
		out = append(out, sample{float64(p.State), labels})
	}
	return out
}

func refused(d *deviceState) []sample {
	return []sample{{number(d.Refused != nil), []string{d.ID(), d.name}}}
}

func counters(d *deviceState) (out []sample) {
	for _, c := range d.counters {
		labels := []string{d.ID(), d.name, portNumber(c.Port), c.Group, c.Name, d.fabric, d.pod[0], d.pod[1]}
		out = append(out, sample{float64(c.Value), labels})
	}
	return out
}

func portNumber(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, r := range nodeMetrics {
		out <- r.desc
	}
	for _, r := range deviceMetrics {
		out <- r.desc
	}
	out <- unhealthy
	out <- degraded
	out <- flaps
}

// Collect implements prometheus.Collector: it reads the journal now, and the devices unless that has just been done.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	entries, err := m.node.Store.List()
	for _, r := range nodeMetrics {
		send(out, r.desc, prometheus.GaugeValue, r.read(journalState{entries, err}))
	}
	health, unserved := m.judged()
	for _, h := range append(slices.Clone(health), unserved...) {
		if h.Problem != "" {
			labels := []string{h.Device, quote.Terminal(h.HCA), h.Fabric, h.Problem}
			send(out, unhealthy, prometheus.GaugeValue, []sample{{1, labels}})
		}
	}
	for _, h := range health {
		hca := quote.Terminal(h.HCA)
		labels := []string{h.Device, hca, h.Fabric}
		send(out, flaps, prometheus.CounterValue, []sample{{float64(h.Flaps), labels}})
		if h.Degraded {
			send(out, degraded, prometheus.GaugeValue, []sample{{1, labels}})
		}
	}
	for _, d := range m.states() {
		for _, r := range deviceMetrics {
			send(out, r.desc, r.kind, r.read(d))
		}
	}
}

func (m *Metrics) state(d *survey.Device) *deviceState {
	s := &deviceState{Device: d, name: quote.Terminal(d.HCA.Name), fabric: m.fabric(d.ID())}
	if d.Holder != nil {
		s.pod = podOf(d.Holder)
	}
	if !counts(d) {
		return s
	}
	var err error
	if s.counters, err = m.look.counters(d); err != nil {
		m.log.Warn("cannot read the counters of a device", "device", d.ID(), "error", err)
	}
	return s
}

// podOf is the namespace and the name of the pod that has a device. Where the runtime did not pass them the name is
// that of the container.
func podOf(e *journal.Entry) [2]string {
	namespace, name, ok := strings.Cut(e.Pod(), "/")
	if !ok {
		return [2]string{"", e.Key.Who()}
	}
	return [2]string{quote.Terminal(namespace), quote.Terminal(name)}
}

func send(out chan<- prometheus.Metric, desc *prometheus.Desc, kind prometheus.ValueType, samples []sample) {
	for _, s := range samples {
		out <- prometheus.MustNewConstMetric(desc, kind, s.value, s.labels...)
	}
}
