package measure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// Want is how much a test is wanted.
type Want int

// Whether a test is run.
const (
	No    Want = iota
	IfCan      // where the ends have what it needs
	Must       // that it can't be run is a finding
)

// Cross is what is expected between rails of different numbers.
type Cross string

// The values of Cross.
const (
	CrossOff       Cross = "off"       // they are not looked at
	CrossAllowed   Cross = "allowed"   // what reaches each other is measured, and need not
	CrossRequired  Cross = "required"  // every rail reaches every rail
	CrossForbidden Cross = "forbidden" // no rail reaches another one: planes
)

// Options of a measurement.
type Options struct {
	Interfaces []string
	Limits     perftest.Limits
	Cross      Cross
	OneWay     bool // bandwidth from A to B only

	Ping, RPing, Bandwidth, Latency, GPU Want

	Rounds     int           // so many only; 0: every pair
	Iterations int           // of each program of perftest; 0: its own
	Duration   time.Duration // of each measurement of bandwidth, instead of iterations
	MaxTime    time.Duration // after which no other round begins; 0: none

	Progress func(done, all int)                        // called after each rail of each pair; may be nil
	Estimate func(rounds int, took, rest time.Duration) // called after the first round if others follow; may be nil
}

// run is one measurement.
type run struct {
	Options
	ends  []*End
	have  [][]rail
	tools []tools
	lanes []lane

	mu    sync.Mutex
	gone  []string // why an end does not answer any more; empty: it does
	notes map[string]bool
	out   []perftest.Result
}

// lane is a rail of A and a rail of B, as indexes into the names of all rails.
type lane struct{ a, b int }

// All measures every pair of ends, rail by rail: pairs of one round side by side, since they share no port. The notes
// say what was not tested.
func All(ctx context.Context, ends []*End, o Options) (list []perftest.Result, notes []string, err error) {
	m := &run{Options: o, ends: ends, have: make([][]rail, len(ends)), tools: make([]tools, len(ends)),
		gone: make([]string, len(ends)), notes: map[string]bool{}}
	if err := m.look(ctx); err != nil {
		return nil, nil, err
	}
	rounds := perftest.Rounds(len(ends))
	if o.Rounds > 0 && o.Rounds < len(rounds) {
		m.note(fmt.Sprintf("%d of %d rounds: each end with %d of %d others", o.Rounds, len(rounds), o.Rounds,
			len(ends)-1))
		rounds = rounds[:o.Rounds]
	}
	all := 0
	for _, round := range rounds {
		all += len(round) * len(m.lanes)
	}
	begun := time.Now()
	for n, round := range rounds {
		late := o.MaxTime > 0 && time.Since(begun) >= o.MaxTime
		m.round(ctx, n, round, all, late)
		if err := ctx.Err(); err != nil {
			return m.out, nil, err
		}
		if took := time.Since(begun); n == 0 && len(rounds) > 1 && o.Estimate != nil {
			o.Estimate(len(rounds), took, took*time.Duration(len(rounds)-1))
		}
	}
	slices.SortStableFunc(m.out, func(a, b perftest.Result) int {
		return cmp.Or(a.Round-b.Round, cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B), natural(a.Rail, b.Rail),
			natural(a.RailB, b.RailB))
	})
	for text := range m.notes {
		notes = append(notes, text)
	}
	slices.Sort(notes)
	return m.out, notes, nil
}

// look finds the rails and the tools of all ends. It fails if fewer than two have rails.
func (m *run) look(ctx context.Context) error {
	errs := make([]error, len(m.ends))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16) // each is a connection
	for i, e := range m.ends {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, each)
			defer cancel()
			if m.have[i], errs[i] = rails(ctx, e, m.Interfaces); errs[i] == nil {
				m.tools[i] = toolsOf(ctx, e)
			}
		})
	}
	wg.Wait()
	var first error
	sound, most := 0, 0
	for i, err := range errs {
		switch {
		case err == nil:
			sound++
			most = max(most, len(m.have[i]))
		case first == nil:
			first = err
			fallthrough
		default:
			m.gone[i] = err.Error()
		}
	}
	if sound < 2 {
		return first
	}
	m.align()
	for a := range len(m.names()) {
		for b := range len(m.names()) {
			if a == b || m.Cross != CrossOff && m.Cross != "" {
				m.lanes = append(m.lanes, lane{a, b})
			}
		}
	}
	return nil
}

// names are the rails of the end that has most of them.
func (m *run) names() []rail {
	return slices.MaxFunc(m.have, func(a, b []rail) int { return len(a) - len(b) })
}

// align puts the rails of all ends into the same order. Where all have as many, they are in order already, and may be
// called differently; else they belong together by name, and one that an end lacks stays without a name.
func (m *run) align() {
	var names []string
	same := true
	for i := range m.have {
		if m.gone[i] != "" {
			continue
		}
		for _, r := range m.have[i] {
			if !slices.Contains(names, r.name) {
				names = append(names, r.name)
			}
		}
		same = same && len(m.have[i]) == len(m.names())
	}
	if same {
		return
	}
	slices.SortFunc(names, natural)
	for i := range m.have {
		if m.gone[i] != "" {
			continue
		}
		list := make([]rail, len(names))
		for j, name := range names {
			if k := slices.IndexFunc(m.have[i], func(r rail) bool { return r.name == name }); k >= 0 {
				list[j] = m.have[i][k]
			} else {
				list[j] = rail{end: m.ends[i].Name, name: name, lacking: true}
			}
		}
		m.have[i] = list
	}
}

// note remembers what was not tested.
func (m *run) note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[text] = true
}

// round measures the pairs of a round side by side.
func (m *run) round(ctx context.Context, n int, round []perftest.Pair, all int, late bool) {
	var wg sync.WaitGroup
	for k, p := range round {
		wg.Go(func() {
			for l, lane := range m.lanes {
				r := m.result(p, lane)
				r.Round = n + 1
				switch {
				case late:
					r.Add(perftest.Skipped, fmt.Sprintf("not measured: --max-time %v is over", m.MaxTime))
				case m.dead(p, r):
				default:
					// Each has ports of its own: a server of before may still listen in its pod.
					seq := (n*len(round)+k)*len(m.lanes) + l
					const first, ports, each = 18500, 14000, 8 // below the ports that the kernel gives
					m.one(ctx, p, lane, first+seq*each%ports, r)
					m.alive(ctx, p, r)
				}
				m.mu.Lock()
				m.out = append(m.out, *r)
				if m.Progress != nil {
					m.Progress(len(m.out), all)
				}
				m.mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// dead says whether one of the two does not answer any more, and why.
func (m *run) dead(p perftest.Pair, r *perftest.Result) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range []int{p.A, p.B} {
		if m.gone[i] != "" {
			r.Add(perftest.Failed, m.gone[i])
		}
	}
	return m.gone[p.A]+m.gone[p.B] != ""
}

// alive looks after a failure whether the pods are there, so that the run does not wait for one that has died.
func (m *run) alive(ctx context.Context, p perftest.Pair, r *perftest.Result) {
	if r.Verdict != perftest.Failed {
		return
	}
	for _, i := range []int{p.A, p.B} {
		if m.ends[i].pod == nil {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, patient)
		_, err := m.ends[i].Run(soon, "ip", "-V")
		cancel()
		if err != nil && ctx.Err() == nil {
			m.mu.Lock()
			m.gone[i] = fmt.Sprintf("%s does not answer since round %d: %s", m.ends[i].Name, r.Round, err.Error())
			m.mu.Unlock()
		}
	}
}
