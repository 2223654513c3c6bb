package measure

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// railOf is a rail of an end; of one without rails it has the name that the others call it.
func (m *run) railOf(end, i int) *rail {
	if i < len(m.have[end]) {
		return &m.have[end][i]
	}
	return &rail{end: m.ends[end].Name, name: m.names()[i].name, lacking: true}
}

// result is the one of a rail of a pair before anything is measured.
func (m *run) result(p perftest.Pair, l lane) *perftest.Result {
	a, b, ra, rb := m.ends[p.A], m.ends[p.B], m.railOf(p.A, l.a), m.railOf(p.B, l.b)
	r := &perftest.Result{
		A: a.Name, B: b.Name, NodeA: a.Node, NodeB: b.Node, Rail: ra.name, HCA: ra.port.hca, HCAB: rb.port.hca,
		RateGb: min(ra.port.rateGb, rb.port.rateGb), Verdict: perftest.Good,
	}
	if l.a != l.b {
		r.RailB = rb.name
	}
	return r
}

// one measures one rail of one pair into r.
func (m *run) one(ctx context.Context, p perftest.Pair, l lane, tcp int, r *perftest.Result) {
	f := flow{m.ends[p.A], m.ends[p.B], m.railOf(p.A, l.a), m.railOf(p.B, l.b), tcp}
	for _, end := range []*rail{f.ra, f.rb} {
		if end.lacking {
			r.Add(perftest.Failed, end.end+" has no rail "+end.name+", which others have")
			return
		}
	}
	if l.a != l.b {
		m.across(ctx, p, f, r)
		return
	}
	if !m.reach(ctx, f, r) || !m.ready(ctx, f, r) {
		return
	}
	m.connect(ctx, p, f, r)
	m.figures(ctx, p, f, r)
	repeated(r)
}

// reach asks by ping, and says whether it is worth measuring.
func (m *run) reach(ctx context.Context, f flow, r *perftest.Result) bool {
	switch {
	case f.ra.bare || f.rb.bare:
		r.Ping = "no interface"
		m.note("ping and rping: not tested on rails without an interface")
		if m.Ping == Must {
			r.Add(perftest.Skipped, "ping: not measured: no interface")
		}
		return true
	case !f.ra.addr.IsValid() || !f.rb.addr.IsValid():
		r.Ping = "no address"
		r.Add(perftest.Failed, "an end has no address on this rail: \"ipam\" in the network")
		return false
	case m.Ping == No:
		r.Ping = "not asked"
		return true
	}
	rtt, err := ping(ctx, f.a, f.ra, f.rb)
	if err != nil {
		r.Ping = "unreachable"
		reached := false
		r.Reached = &reached
		text := joined(f.ra.down(), f.rb.down(), err.Error())
		if !f.ra.addr.Contains(f.rb.addr.Addr()) {
			text = joined(text, fmt.Sprintf("%s and %s are in different subnets: two planes, or rails in another "+
				"order; routed at best", f.ra.addr, f.rb.addr))
		}
		if ok, why := match(f.ra, f.rb); f.hasVerbs() && !ok {
			r.GID, text = why, joined(why, text)
		}
		r.Add(perftest.Failed, text)
		return false
	}
	r.Ping, r.RTT = "reachable", rtt
	return true
}

func (f *flow) hasVerbs() bool { return f.ra.port.hca != "" && f.rb.port.hca != "" }

// rdma says whether a test that needs RDMA is wanted by itself.
func (m *run) rdma() bool { return max(m.Bandwidth, m.Latency, m.GPU, m.RPing) == Must }

// ready looks at the two ports, and says whether something can be measured between them.
func (m *run) ready(ctx context.Context, f flow, r *perftest.Result) bool {
	if !f.hasVerbs() {
		text := fmt.Sprintf("reachable, %.3f ms", r.RTT)
		if !m.rdma() {
			r.Add(perftest.Good, text)
			return false
		}
		r.Add(perftest.Skipped, text+"; no RDMA device to measure with")
		return false
	}
	if f.ra.down() != "" || f.rb.down() != "" { // the link may have come up while ping was waiting for it
		f.ra.verbs(ctx, f.a)
		f.rb.verbs(ctx, f.b)
	}
	if text := joined(f.ra.down(), f.rb.down()); text != "" {
		r.Add(perftest.Failed, text)
		return false
	}
	ok, text := match(f.ra, f.rb)
	if r.GID = text; !ok {
		if f.ra.index >= 0 && f.rb.index >= 0 {
			m.reached(r, false)
		}
		r.Add(perftest.Failed, text)
		return false
	}
	for _, end := range []*rail{f.ra, f.rb} {
		if want := m.Limits.Rate; want > 0 && end.port.rateGb != want {
			r.Add(perftest.Slow, fmt.Sprintf("%s: port %s has %v Gb/s, and %v are wanted: it has trained down, or is "+
				"another one: cable, transceiver, switch port", end.end, end.port.name(), end.port.rateGb, want))
		}
	}
	return true
}

// connect asks by rping, where there is an address for it.
func (m *run) connect(ctx context.Context, p perftest.Pair, f flow, r *perftest.Result) {
	ta, tb := &m.tools[p.A], &m.tools[p.B]
	switch {
	case m.RPing == No:
		return
	case f.ra.bare || f.rb.bare:
		r.RPing = "no interface"
	case !ta.can("rping") || !tb.can("rping"):
		r.RPing = "no rping"
		m.note("rping: not tested: the pods do not have it (package rdmacm-utils)")
	default:
		if err := f.at(4).rping(ctx); err != nil {
			r.RPing = "failed"
			r.Add(perftest.Failed, "rping: "+oneLine(err))
			return
		}
		r.RPing = "reachable"
		return
	}
	if m.RPing == Must {
		r.Add(perftest.Skipped, "rping: not measured: "+r.RPing)
	}
}

// figures measures bandwidth and latency.
func (m *run) figures(ctx context.Context, p perftest.Pair, f flow, r *perftest.Result) {
	if m.Bandwidth != No {
		var works bool
		if r.Bandwidth, works = m.bandwidth(ctx, f, r, ""); !works {
			return // the way back, and latency, fail for the same reason
		}
		if m.OneWay {
			m.note("bandwidth: from A to B only (--one-way)")
		} else {
			r.Reverse, _ = m.bandwidth(ctx, f.back().at(1), r, "back ")
		}
	}
	if m.Latency != No {
		m.latency(ctx, f.at(2), r)
	}
	m.gpus(ctx, p, f, r)
}

// latency measures one way.
func (m *run) latency(ctx context.Context, f flow, r *perftest.Result) {
	latency, out, err := again(ctx, r, func() (string, error) {
		return f.perftest(ctx, "ib_write_lat", m.iterations()...)
	}, perftest.ParseLatency)
	if err != nil {
		m.without(r, "", "latency", out, err)
		return
	}
	r.Latency = latency
	r.Add(m.Limits.JudgeLatency(latency.Typical))
	m.reached(r, true)
}

// without says why a figure is missing: the path has failed, or perftest could not tell, which is not the path's fault.
func (m *run) without(r *perftest.Result, what, figure, out string, err error) (works bool) {
	var u *unmeasured
	if errors.As(err, &u) {
		m.reached(r, true)
		r.Add(perftest.Skipped, what+figure+": "+oneLine(err))
		return true
	}
	r.Add(perftest.Failed, what+explain(out, err))
	return false
}

func (m *run) reached(r *perftest.Result, yes bool) { r.Reached = &yes }

func (m *run) iterations() []string {
	if m.Iterations > 0 {
		return []string{"-n", itoa(m.Iterations)}
	}
	return nil
}

// amount is how much is sent to measure bandwidth.
func (m *run) amount() []string {
	if m.Duration > 0 {
		return []string{"--report_gbits", "-D", itoa(max(1, int(m.Duration.Seconds())))}
	}
	return append([]string{"--report_gbits"}, m.iterations()...)
}

// bandwidth measures one way; what is put before what r says of it. It is nil if there is no figure, which r says too.
func (m *run) bandwidth(ctx context.Context, f flow, r *perftest.Result, what string) (b *perftest.Bandwidth,
	works bool,
) {
	b, out, err := again(ctx, r, func() (string, error) {
		return f.perftest(ctx, "ib_write_bw", m.amount()...)
	}, perftest.ParseBandwidth)
	if err != nil {
		if unreached(out) && what == "" {
			m.reached(r, false)
		}
		return nil, m.without(r, what, "bandwidth", out, err)
	}
	m.reached(r, true)
	v, text := m.Limits.Judge(b.AverageGb, r.RateGb)
	r.Add(v, what+text)
	return b, true
}

// gpus measures between the memory of the GPUs next to the rails.
func (m *run) gpus(ctx context.Context, p perftest.Pair, f flow, r *perftest.Result) {
	if m.GPU == No {
		return
	}
	ta, tb := &m.tools[p.A], &m.tools[p.B]
	if why := noGPU(ta, tb); why != "" {
		m.note("GPUDirect: not tested: " + why)
		if m.GPU == Must {
			r.Add(perftest.Skipped, "GPUDirect: not measured: "+why)
		}
		return
	}
	b, out, err := again(ctx, r, func() (string, error) {
		return f.at(3).perftestWith(ctx, "ib_write_bw", append(m.amount(), ta.gpuFlags(f.ra)...),
			append(m.amount(), tb.gpuFlags(f.rb)...))
	}, perftest.ParseBandwidth)
	if err != nil {
		m.without(r, "GPUDirect: ", "bandwidth", out, err)
		return
	}
	r.GPU = b
	v, text := m.Limits.Judge(b.AverageGb, r.RateGb)
	r.Add(v, "GPUDirect "+text)
}

// joined are the texts that are not empty.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

func oneLine(err error) string { return short(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// explain adds what the message of perftest means.
func explain(out string, err error) string {
	text := oneLine(err)
	if noPerftest.MatchString(text) {
		return text + "; the image of the pod needs perftest"
	}
	return text + meaning(out)
}

// noPerftest is what runtimes and timeout(1) say of a program that an image lacks.
var noPerftest = regexp.MustCompile(`executable file not found|timeout: (failed to run|can't execute)`)

// meaning is what the first message that is known in an output means, of those that are no part of a good one.
func meaning(out string) string {
	for _, e := range doctor.Explain(out) {
		if e.Harmless {
			continue
		}
		return "; " + e.ID + ": " + e.Cause + "; " + e.Cure
	}
	return ""
}
