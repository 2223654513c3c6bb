package metrics

import (
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/calls"
)

// callBuckets are in seconds. A device alone takes some 10 ms, IPAM in a busy cluster seconds, and a runtime gives up
// after minutes.
var callBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}

// CountCalls counts the calls that the plugin has recorded in the state directory. A record is counted once, with the
// second call of CountCalls after it was written: until then the plugin may still be writing.
func (m *Metrics) CountCalls(stateDir string) error {
	list, err := calls.Take(stateDir)
	for _, c := range list {
		m.callDuration.WithLabelValues(c.Verb).Observe(c.Took.Seconds())
		if c.Code != 0 {
			m.callErrors.WithLabelValues(c.Verb, strconv.FormatUint(uint64(c.Code), 10)).Inc()
		}
	}
	return err
}
