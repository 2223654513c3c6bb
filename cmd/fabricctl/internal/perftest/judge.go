package perftest

import (
	"fmt"
	"math"
)

// Verdict is what a measurement means.
type Verdict string

// The verdicts.
const (
	Good    Verdict = "good"
	Slow    Verdict = "slow"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped" // not measured, in part or at all
)

// rank orders verdicts: what was not measured is worse than what is good.
func (v Verdict) rank() int {
	switch v {
	case Good:
		return 0
	case Skipped:
		return 1
	case Slow:
		return 2
	}
	return 3
}

// Worse is the worse one of two verdicts.
func Worse(a, b Verdict) Verdict {
	if a.rank() >= b.rank() {
		return a
	}
	return b
}

// Threshold is how many per cent of a port's rate a good path reaches, unless set otherwise: headers, and the
// encoding of the PCIe and the link, cost up to a tenth.
const Threshold = 90

// Limits are what good paths reach. Zero values limit nothing, but for Percent.
type Limits struct {
	Percent    float64             // of the slower port's rate
	ByRate     map[float64]float64 // Gb/s that are good by the port's rate in Gb/s, instead of Percent
	Rate       float64             // Gb/s that each port has to have
	MaxLatency float64             // us
	MaxRegress float64             // per cent that a path may lose against the last run
}

// least is how many Gb/s are good on a port of this rate.
func (l *Limits) least(rateGb float64) float64 {
	if gb, ok := l.ByRate[rateGb]; ok {
		return gb
	}
	return rateGb * l.Percent / 100
}

// Judge compares bandwidth with the rate of the slower port, both in Gb/s, and says in words what it sees.
func (l *Limits) Judge(averageGb, rateGb float64) (Verdict, string) {
	if rateGb <= 0 {
		return Skipped, fmt.Sprintf("%.1f Gb/s; the port's rate is unknown", averageGb)
	}
	part, least := averageGb/rateGb, l.least(rateGb)
	text := fmt.Sprintf("%s of %s Gb/s", figure(averageGb), figure(rateGb))
	switch {
	case averageGb >= least:
		return Good, text + ": good"
	case part >= 0.9: // the threshold is stricter than what a port's rate allows to guess about
		return Slow, text + ": slow: " + figure(least) + " are wanted"
	case part >= 0.45 && part < 0.55:
		return Slow, text + ": half: a PCIe link of half the lanes or generation (fabricctl discover -o wide), or " +
			"another flow on the port"
	case part >= 0.6:
		return Slow, text + ": slow: MTU (4096 on InfiniBand, 9000 on Ethernet), relaxed ordering, the CPU's " +
			"frequency, memory on the other NUMA node"
	}
	return Slow, text + ": slow: a lossy path (PFC, ECN), a link that has trained down, the IOMMU or ACS, a virtual " +
		"machine"
}

// JudgeLatency says whether a latency in us is good.
func (l *Limits) JudgeLatency(us float64) (Verdict, string) {
	text := fmt.Sprintf("%.2f us", us)
	if l.MaxLatency > 0 && us > l.MaxLatency {
		return Slow, text + ": slow: more than " + figure(l.MaxLatency) + " us: another path through the fabric, " +
			"power saving of the CPU (C-states), memory on the other NUMA node"
	}
	return Good, text
}

// figure prints a rate with one decimal where it has one.
func figure(v float64) string {
	if v = math.Round(v*10) / 10; v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
