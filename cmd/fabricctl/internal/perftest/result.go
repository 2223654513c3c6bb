package perftest

import (
	"fmt"
	"slices"
	"strings"
)

// Result is the outcome for one rail of one pair. A figure that is not there was not measured.
type Result struct {
	Round     int        `json:"round"` // from 1
	A         string     `json:"a"`
	B         string     `json:"b"`
	NodeA     string     `json:"nodeA,omitempty"` // of the pod A, as the API server says
	NodeB     string     `json:"nodeB,omitempty"`
	Rail      string     `json:"rail"`                // of A: an interface, or HCA:port without one
	RailB     string     `json:"railB,omitempty"`     // of B, where it is another rail
	HCA       string     `json:"hca,omitempty"`       // of A
	HCAB      string     `json:"hcaB,omitempty"`      // of B
	Ping      string     `json:"ping"`                // what ICMP said, in words
	RTT       float64    `json:"rtt,omitempty"`       // ms, average
	RPing     string     `json:"rping,omitempty"`     // what rdma_cm said, in words
	GID       string     `json:"gid,omitempty"`       // whether the two GIDs can reach each other, in words
	RateGb    float64    `json:"rateGb"`              // of the slower port
	Reached   *bool      `json:"reached,omitempty"`   // by RDMA; nil: not tried
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"` // from A to B
	Reverse   *Bandwidth `json:"reverse,omitempty"`   // from B to A
	GPU       *Bandwidth `json:"gpu,omitempty"`       // from A to B, between the memory of GPUs
	Latency   *Latency   `json:"latency,omitempty"`
	Repeats   int        `json:"repeats,omitempty"` // runs of perftest that gave no figure, and were repeated
	Verdict   Verdict    `json:"verdict"`
	Text      string     `json:"text"`
}

// Rails names the rail, or both where they are two.
func (r *Result) Rails() string {
	if r.RailB == "" {
		return r.Rail
	}
	return r.Rail + ">" + r.RailB
}

// Add adds what another measurement of the same rail says.
func (r *Result) Add(v Verdict, text string) {
	r.Verdict = Worse(r.Verdict, v)
	switch {
	case text == "":
	case r.Text == "":
		r.Text = text
	default:
		r.Text += "; " + text
	}
}

// Worst is the worst verdict of all: failed, slow, skipped, good. Nothing at all is skipped: it shows nothing.
func Worst(list []Result) Verdict {
	if len(list) == 0 {
		return Skipped
	}
	worst := Good
	for i := range list {
		worst = Worse(worst, list[i].Verdict)
	}
	return worst
}

// Summary counts results.
type Summary struct {
	Verdict     Verdict `json:"verdict"` // the worst
	Ends        int     `json:"ends"`
	Pairs       int     `json:"pairs"`
	Results     int     `json:"results"`
	Good        int     `json:"good"`
	Slow        int     `json:"slow"`
	Failed      int     `json:"failed"`
	NotMeasured int     `json:"notMeasured"`
}

// Summarize counts the verdicts.
func Summarize(list []Result) Summary {
	s := Summary{Verdict: Worst(list), Results: len(list)}
	ends, pairs := map[string]bool{}, map[[2]string]bool{}
	for i := range list {
		r := &list[i]
		ends[r.A], ends[r.B], pairs[[2]string{r.A, r.B}] = true, true, true
		switch r.Verdict {
		case Good:
			s.Good++
		case Slow:
			s.Slow++
		case Skipped:
			s.NotMeasured++
		default:
			s.Failed++
		}
	}
	s.Ends, s.Pairs = len(ends), len(pairs)
	return s
}

// String is the summary as one line.
func (s Summary) String() string {
	parts := []string{fmt.Sprintf("%d good", s.Good)}
	for _, p := range []struct {
		n    int
		what string
	}{{s.Slow, "slow"}, {s.Failed, "failed"}, {s.NotMeasured, "not measured"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s: %s, of %d results for %d pairs of %d ends", s.Verdict, strings.Join(parts, ", "), s.Results,
		s.Pairs, s.Ends)
}

// Wiring names the rails that reach other rails of the others and not their own: cables in the wrong place. It needs
// results between different rails.
func Wiring(list []Result) (out []string) {
	type rail struct{ end, name string }
	own, other := map[rail]map[string]bool{}, map[rail]map[string][]string{}
	var order []rail
	note := func(end, mine, peer, theirs string, reached bool) {
		r := rail{end, mine}
		if own[r] == nil {
			own[r], other[r] = map[string]bool{}, map[string][]string{}
			order = append(order, r)
		}
		switch {
		case mine == theirs:
			own[r][peer] = reached
		case reached:
			other[r][theirs] = append(other[r][theirs], peer)
		}
	}
	for i := range list {
		r := &list[i]
		if r.Reached == nil {
			continue
		}
		railB := r.RailB
		if railB == "" {
			railB = r.Rail
		}
		note(r.A, r.Rail, r.B, railB, *r.Reached)
		note(r.B, railB, r.A, r.Rail, *r.Reached)
	}
	for _, r := range order {
		lost := len(own[r]) > 0
		for _, reached := range own[r] {
			lost = lost && !reached
		}
		if !lost {
			continue
		}
		var to []string
		for name, peers := range other[r] {
			slices.Sort(peers)
			to = append(to, fmt.Sprintf("%s of %s", name, strings.Join(peers[:min(len(peers), 3)], ", ")))
		}
		if len(to) == 0 {
			continue
		}
		slices.Sort(to)
		text := fmt.Sprintf("%s of %s reaches %s, and no %s: its cable is in another rail's switch", r.name,
			r.end, strings.Join(to, " and "), r.name)
		if len(own[r]) == 1 { // of two ends either may be the one
			text += ", or theirs are"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
