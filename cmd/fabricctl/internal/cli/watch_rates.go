package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// watchLook is what watch saw at one moment.
type watchLook struct {
	at     time.Time
	up     time.Duration // since any moment that does not change: how far apart two looks are
	ports  []watchedPort
	hidden int // virtual functions that no pod has
}

// watchedPort is a port in a look. Its Place is another one whenever the device has moved, or is another one.
type watchedPort struct {
	counters.Port
	device, netdev, pod, state string
	rateGb                     float64
	moving                     bool
}

// portRates is what watch prints of two looks.
type portRates struct {
	Time    time.Time  `json:"time"`
	Node    string     `json:"node"`
	Seconds float64    `json:"seconds"` // between the looks
	Hidden  int        `json:"hidden"`  // idle virtual functions that are left out
	Ports   []portRate `json:"ports"`

	columns, rows int // of the terminal
}

// portRate is one port. What is not known is left out: there is no rate if the device has moved or was reset between
// the looks, or if its counters can't be read.
type portRate struct {
	HCA    string             `json:"hca"` // on the host
	Port   uint32             `json:"port"`
	Device string             `json:"device,omitempty"`
	Netdev string             `json:"netdev,omitempty"` // on the host
	Pod    string             `json:"pod,omitempty"`
	State  string             `json:"state"`
	RateGb float64            `json:"rateGb,omitempty"` // of the port, in Gb/s
	InGb   *float64           `json:"inGb,omitempty"`   // Gb/s received
	OutGb  *float64           `json:"outGb,omitempty"`  // Gb/s sent
	Errors map[string]float64 `json:"errors"`           // a second, by counter; only those that rose
	Over   []string           `json:"over"`             // counters that rose by more than fabric-agent allows
	Downs  uint64             `json:"downs,omitempty"`  // how often the link went down between the looks
	Note   string             `json:"note,omitempty"`   // why there is no rate: new, moved, reset, unreadable

	known bool // there are counters to compare
}

func (p *portRate) name() string { return fmt.Sprintf("%s:%d", p.HCA, p.Port) }

// watched are the counters that watch reads: a counter costs a question to the firmware.
var watched = func() []string {
	out := []string{"port_xmit_data", "port_rcv_data", "link_downed"}
	for _, d := range slices.Concat(health.Defaults, health.Symptoms) {
		out = append(out, d.Counter)
	}
	return out
}()

// compare makes rates of two looks.
func compare(before, now *watchLook) *portRates {
	r := &portRates{Time: now.at, Seconds: (now.up - before.up).Seconds(), Hidden: now.hidden, Ports: []portRate{}}
	for i := range now.ports {
		p := &now.ports[i]
		out := portRate{HCA: p.HCA, Port: p.Number, Device: p.device, Netdev: p.netdev, Pod: p.pod, State: p.state,
			RateGb: p.rateGb, Errors: map[string]float64{}, Over: []string{}}
		if p.moving {
			out.State = "moving"
		}
		out.rates(before, now, p)
		r.Ports = append(r.Ports, out)
	}
	return r
}

// rates fills in what rose since the look before, or why that is not known.
func (p *portRate) rates(before, now *watchLook, at *watchedPort) {
	i := slices.IndexFunc(before.ports, func(o watchedPort) bool { return o.HCA == at.HCA && o.Number == at.Number })
	switch {
	case at.Values == nil:
		p.Note = "unreadable"
		return
	case i < 0 || before.ports[i].Values == nil:
		p.Note = "new"
		return
	case before.ports[i].Place != at.Place || at.moving:
		p.Note = "moved"
		return
	}
	// One port at a time: names are not unique while devices come and go.
	changes := counters.Changes(&counters.Look{Up: before.up, Ports: []counters.Port{before.ports[i].Port}},
		&counters.Look{Up: now.up, Ports: []counters.Port{at.Port}})
	c := &changes[0]
	if in, out, ok := c.Gbps(); ok {
		p.InGb, p.OutGb = &in, &out
	}
	if len(c.Set) > 0 {
		p.Note = "reset"
	}
	p.known, p.Downs = true, c.Lost
	for _, name := range watched {
		if n := c.Rise(name); n > 0 && !strings.HasSuffix(name, "_data") && c.Took > 0 {
			p.Errors[name] = float64(n) / c.Took.Seconds()
		}
	}
	if c.Lost > 0 {
		return // a link in training has errors
	}
	for _, v := range slices.Concat(health.WireLimits().Compare(c.Was, c.Now, c.Took),
		health.SymptomLimits(c.Took).Compare(c.Was, c.Now, c.Took)) {
		p.Over = append(p.Over, v.Counter)
	}
}

// errorRate is all errors of a port, a second.
func (p *portRate) errorRate() string {
	sum := 0.0
	for _, n := range p.Errors {
		sum += n
	}
	switch {
	case !p.known:
		return "-"
	case sum > 0 && sum < 10:
		return fmt.Sprintf("%.1f/s", sum)
	}
	return fmt.Sprintf("%.0f/s", sum)
}

// worst is the counter that rises fastest; those over their limit go first.
func (p *portRate) worst() string {
	if len(p.Over) > 0 {
		return p.Over[0]
	}
	worst := ""
	for _, name := range watched {
		if p.Errors[name] > p.Errors[worst] {
			worst = name
		}
	}
	return worst
}

func value(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

// gbps is a rate and its part of the port's.
func gbps(f *float64, rate float64) string {
	switch {
	case f == nil:
		return "-"
	case rate == 0:
		return fmt.Sprintf("%.1f Gb/s", *f)
	}
	return fmt.Sprintf("%.1f Gb/s %.0f%%", *f, 100**f/rate)
}

// Columns of the table. What is left of the line is the pod's.
const (
	stateColumn = 6
	rateColumn  = 10 // 391.2  98%
	errorColumn = 6
	leastPod    = 8
)

// drawn is a line of the table.
type drawn struct{ text, colour string }

// draw makes a table of at most so many columns and lines, and says how many ports it has no room for.
func (r *portRates) draw(columns, lines int) (out []drawn, more int) {
	ports := r.Ports
	name, pod := len("PORT"), len("POD")
	for i := range ports {
		name = max(name, quote.Width(quote.Terminal(ports[i].name())))
		pod = max(pod, quote.Width(quote.Terminal(ports[i].Pod)))
	}
	const others = stateColumn + 2*rateColumn + errorColumn + 5*2
	name = min(name, 16)
	pod = min(pod, max(leastPod, columns-others-name))
	row := func(cells ...string) string {
		widths := []int{name, pod, stateColumn, -rateColumn, -rateColumn, -errorColumn}
		var b strings.Builder
		for i, c := range cells {
			if i > 0 {
				b.WriteString("  ")
			}
			width := max(widths[i], -widths[i])
			c = fit(quote.Terminal(c), width)
			space := strings.Repeat(" ", width-quote.Width(c))
			if widths[i] < 0 {
				c = space + c
			} else {
				c += space
			}
			b.WriteString(c)
		}
		return strings.TrimRight(b.String(), " ")
	}
	out = []drawn{{row("PORT", "POD", "STATE", "IN Gb/s", "OUT Gb/s", "ERRORS"), dim}}
	for i := range ports {
		p := &ports[i]
		line := row(p.name(), dash(p.Pod), p.State, short(p.InGb, p.RateGb), short(p.OutGb, p.RateGb),
			cmp.Or(strings.TrimSuffix(p.errorRate(), "/s"), "-"))
		block := []drawn{{text: line, colour: p.colour()}}
		if what := p.remark(); what != "" {
			block = append(block, drawn{text: "  " + what, colour: p.colour()})
		}
		if len(out)+len(block) > lines {
			return out, len(ports) - i
		}
		out = append(out, block...)
	}
	return out, 0
}

func (p *portRate) colour() string {
	switch {
	case len(p.Over) > 0 || p.Downs > 0 || p.State == "Down":
		return bad
	case p.State != "Active" || p.Note != "":
		return warn
	}
	return ""
}

// remark says what the numbers do not.
func (p *portRate) remark() string {
	switch worst := p.worst(); {
	case p.Downs > 0:
		return fmt.Sprintf("the link went down %d times", p.Downs)
	case worst != "":
		return fmt.Sprintf("%s %.1f/s", worst, p.Errors[worst])
	}
	return p.Note
}

// short is a rate and its part of the port's rate, for a column.
func short(f *float64, rate float64) string {
	switch {
	case f == nil:
		return "-"
	case rate == 0:
		return fmt.Sprintf("%.1f", *f)
	}
	return fmt.Sprintf("%.1f %3.0f%%", *f, 100**f/rate)
}
