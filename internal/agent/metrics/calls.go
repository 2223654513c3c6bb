package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/calls"
)

// spool shows what the plugin notes of its calls.
type spool struct {
	duration *prometheus.HistogramVec // by verb
	errors   *prometheus.CounterVec   // by verb and code
}

func newSpool() spool {
	return spool{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fabric_cni_duration_seconds",
			Help: "Time that a call of the plugin took, IPAM included, by verb; calls that failed count, too.",
			// A device alone takes some 10 ms, IPAM in a busy cluster seconds, a runtime gives up after minutes.
			Buckets: []float64{
				0.005,
				0.01,
				0.025,
				0.05,
				0.1,
				0.25,
				0.5,
				1,
				2.5,
				5,
				10,
				30,
				60,
				120,
			},
		}, []string{"verb"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fabric_cni_errors_total",
			Help: "Calls of the plugin that failed, by verb and by the code of the error."}, []string{"verb", "code"}),
	}
}

// Spool counts the calls that the plugin has noted in the state directory since the last time but one.
func (m *Metrics) Spool(dir string) error {
	list, err := calls.Take(dir)
	for _, c := range list {
		m.spool.duration.WithLabelValues(c.Verb).Observe(c.Took.Seconds())
		if c.Code != 0 {
			m.spool.errors.WithLabelValues(c.Verb, strconv.FormatUint(uint64(c.Code), 10)).Inc()
		}
	}
	return err
}
