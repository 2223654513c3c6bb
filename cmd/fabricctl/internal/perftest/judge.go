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
	Skipped Verdict = "skipped" // nothing to measure with
)

// Threshold is how many per cent of a port's rate a good path reaches, unless somebody knows better: headers, and the
// encoding of the PCIe and the link, cost up to a tenth.
const Threshold = 90

// Judge compares bandwidth with the rate of the slower port, both in Gb/s, and says in words what it sees. Good are
// goodPercent of that rate and more.
func Judge(averageGb, rateGb, goodPercent float64) (Verdict, string) {
	if rateGb <= 0 {
		return Skipped, fmt.Sprintf("%.1f Gb/s; the port's rate is unknown", averageGb)
	}
	part := averageGb / rateGb
	text := fmt.Sprintf("%s of %s Gb/s", figure(averageGb), figure(rateGb))
	switch {
	case part >= goodPercent/100:
		return Good, text + ": good"
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

// figure prints a rate with one decimal where it has one.
func figure(v float64) string {
	if v = math.Round(v*10) / 10; v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
