package health

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Limits are when a port counts as unhealthy. The zero Limits has none, and withdraws at once.
type Limits struct {
	PerMinute map[string]int64 // by counter, how much it may rise within a minute
	Flaps     int              // a port that leaves Active so often within FlapWindow is Flapping; 0: never
	Recovery  time.Duration    // for how long all must have been well before Flapping and CounterLimit end
	AllowDown bool             // pods may get a port that is Down, so PortDown is no problem
	Withhold  bool             // kubelet gives an unhealthy device to no new pod
}

// FlapWindow is the time within which flaps are counted.
const FlapWindow = 10 * time.Minute

// What holds where a Fabric gives nothing.
const (
	DefaultFlaps    = 3
	DefaultRecovery = 10 * time.Minute
)

// Values of spec.health.action.
const (
	report   = "Report"
	withhold = "Withhold"
)

// Default is the limit of a counter that a Fabric does not name.
type Default struct {
	Counter   string
	PerMinute int64
	Why       string
}

// Defaults are limits of what a port says of its own wire, which neither a pod nor a peer can raise. docs/health.md
// says why other counters have none.
var Defaults = []Default{
	{"symbol_error", 10, "bits that the error correction could not mend; on a sound link hours pass without one"},
	{"link_error_recovery", 5, "the link was trained again within milliseconds, so that no state shows it"},
	{"local_link_integrity_errors", 1, "more errors within a short time than the port's own threshold allows"},
	{"excessive_buffer_overrun_errors", 1, "flow control has failed: packets are lost on a lossless link"},
	{"port_rcv_errors", 600, "packets that arrived broken, each of which is sent again"},
}

// ParseLimits fills in what a Fabric does not give.
func ParseLimits(h *v1alpha1.Health, allowDown bool) (*Limits, error) {
	l := &Limits{
		PerMinute: map[string]int64{}, Flaps: DefaultFlaps, Recovery: DefaultRecovery, AllowDown: allowDown,
		Withhold: h.Action == withhold,
	}
	if h.Action != "" && h.Action != report && h.Action != withhold {
		return nil, fmt.Errorf("health.action %q: want %s or %s", h.Action, report, withhold)
	}
	for _, d := range Defaults {
		l.PerMinute[d.Counter] = d.PerMinute
	}
	for i, c := range h.Counters {
		switch {
		case c.Counter == "":
			return nil, fmt.Errorf("health.counters[%d].counter: want the name of a counter, as in symbol_error", i)
		case c.PerMinute < 0:
			return nil, fmt.Errorf("health.counters[%d].perMinute %d: want 0 to ignore %s, or more", i, c.PerMinute,
				c.Counter)
		case c.PerMinute == 0:
			delete(l.PerMinute, c.Counter)
		default:
			l.PerMinute[c.Counter] = c.PerMinute
		}
	}
	if h.FlapsPerTenMinutes != nil {
		l.Flaps = int(*h.FlapsPerTenMinutes)
	}
	if l.Flaps < 0 || l.Flaps > maxFlaps {
		return nil, fmt.Errorf("health.flapsPerTenMinutes %d: must be 0 to ignore them, to %d", l.Flaps, maxFlaps)
	}
	if h.Recovery != nil {
		l.Recovery = h.Recovery.Duration
	}
	if l.Recovery < 0 {
		return nil, fmt.Errorf("health.recovery %s: want a time, as in 10m", l.Recovery)
	}
	return l, nil
}

// Counters are the names of the counters that have a limit.
func (l *Limits) Counters() []string { return slices.Sorted(maps.Keys(l.PerMinute)) }
