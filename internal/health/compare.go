package health

import (
	"cmp"
	"slices"
	"time"
)

// risen is how much a counter rose since it was read before. One that is smaller than it was has been reset.
func risen(before map[string]uint64, name string, now uint64) uint64 {
	if old, ok := before[name]; ok && now > old {
		return now - old
	}
	return 0
}

// perMinute is how much a counter rises within a minute. What it rose by in less than that is not extrapolated:
// an error
// within ten seconds is one error, and not six.
func perMinute(rise float64, took time.Duration) float64 {
	return rise * float64(span) / float64(max(took, span))
}

// exceeds says how many times its limit a counter rises, and as a verdict if that is more than once.
func exceeds(name string, rate float64, limit int64) (times float64, v Verdict) {
	if times = rate / float64(limit); times <= 1 {
		return times, Verdict{}
	}
	return times, Verdict{Problem: CounterLimit, Counter: name, Rate: int64(rate), Limit: limit}
}

// Compare judges the counters of a port by two looks at them, as a Judge does by many: worst first. The link must not
// have gone down between the looks: one in training has errors that say nothing of the trained one. A Judge waits for a
// third look before it reports anything; who asks for two looks only has to say from how long ago the first is.
func (l *Limits) Compare(before, now map[string]uint64, took time.Duration) (out []Verdict) {
	by := map[string]float64{}
	for _, name := range l.Counters() {
		v, ok := now[name]
		if !ok {
			continue
		}
		times, is := exceeds(name, perMinute(float64(risen(before, name, v)), took), l.PerMinute[name])
		if is.Problem != None {
			by[name] = times
			out = append(out, is)
		}
	}
	slices.SortStableFunc(out, func(a, b Verdict) int { return -cmp.Compare(by[a.Counter], by[b.Counter]) })
	return out
}

// fewestTotals is the uptime from which a total says something: a link in training at the boot has errors, too.
const fewestTotals = time.Hour

// CompareTotals judges counters by what they are, up being the time since the boot: only what rose by more than its
// limit in each minute since then, on average, is bad for sure. When it rose is unknown.
func (l *Limits) CompareTotals(totals map[string]uint64, up time.Duration) []Verdict {
	if up < fewestTotals {
		return nil
	}
	zeros := map[string]uint64{}
	for name := range totals {
		zeros[name] = 0
	}
	return l.Compare(zeros, totals, up)
}

// Interface are limits of what an Ethernet interface counts of the wire. The agent does not read interfaces: those of
// pods are theirs.
var Interface = []Default{
	{"rx_crc_errors", 600, "packets that arrived broken; behind a switch that forwards before it has checked them " +
		"(cut-through), another link on the way may have broken them"},
	{"rx_symbol_err_phy", 600, "bits that the error correction could not mend"},
}

// Symptoms are limits of counters that peers, pods and load raise as well. The agent does not judge by them: a job that
// crashes would make its port unhealthy. Who looks while a job runs wants to know. The numbers are those at which
// NVSentinel calls a port degraded, where it has one.
var Symptoms = []Default{
	{"port_xmit_discards", 6000, "packets were dropped instead of sent: congestion, or a peer whose port is down"},
	{"local_ack_timeout_err", 60, "packets, or their acknowledgements, were lost on the way, or the peer's " +
		"process has died"},
	{"rx_discards_phy", 600, "packets were dropped because the port's buffer was full: the sender was not paused " +
		"(PFC), or the host takes them too slowly"},
	{"roce_slow_restart", 600, "congestion control starts from the lowest rate again and again"},
}

// SymptomLimits are the limits of Symptoms for two looks that are so far apart. There are many of each, so that a part
// of a minute tells what the minute would have.
func SymptomLimits(took time.Duration) *Limits {
	l := limitsOf(Symptoms)
	for name, limit := range l.PerMinute {
		l.PerMinute[name] = max(1, int64(float64(limit)*float64(min(took, span))/float64(span)))
	}
	return l
}

// WireLimits are the limits of Defaults and Interface.
func WireLimits() *Limits { return limitsOf(slices.Concat(Defaults, Interface)) }

func limitsOf(list []Default) *Limits {
	l := &Limits{PerMinute: map[string]int64{}, Flaps: DefaultFlaps, Recovery: DefaultRecovery}
	for _, d := range list {
		l.PerMinute[d.Counter] = d.PerMinute
	}
	return l
}

// Why says what it means that a counter rises; empty for one without a limit.
func Why(counter string) string {
	for _, d := range slices.Concat(Defaults, Interface, Symptoms) {
		if d.Counter == counter {
			return d.Why
		}
	}
	return ""
}

// FlapsTotals reports whether a link went down so often that it must have flapped all the time since the boot.
func FlapsTotals(downs uint64, up time.Duration) bool {
	return up >= fewestTotals && float64(downs)*float64(FlapWindow)/float64(up) >= DefaultFlaps
}
