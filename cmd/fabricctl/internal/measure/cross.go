package measure

import (
	"context"
	"regexp"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// noPath is what perftest says where two ports do not reach each other: the queue pairs can't be connected (RoCE has to
// find the other end first), or no acknowledgement comes (status 12, IBV_WC_RETRY_EXC_ERR).
var noPath = regexp.MustCompile(`(?i)failed to modify QP|unable to connect the HCA|failed status 12|` +
	`transport retry counter exceeded`)

// unreached reports whether an output shows that the other port was not reached, and nothing else was wrong.
func unreached(out string) bool { return noPath.MatchString(out) }

// across looks whether a rail of A reaches another rail of B, by RDMA alone: a kernel answers ARP for an address of one
// interface on the others as well, so that ping would prove nothing.
func (m *run) across(ctx context.Context, p perftest.Pair, f flow, r *perftest.Result) {
	r.Ping = "not asked"
	notMeasured := func(why string) { r.Add(perftest.Skipped, "not measured: "+why) }
	if !f.hasVerbs() {
		notMeasured("without an RDMA device ping proves nothing between rails: ARP is answered on any interface")
		return
	}
	if text := joined(f.ra.down(), f.rb.down()); text != "" {
		notMeasured(text)
		return
	}
	ok, text := match(f.ra, f.rb)
	r.GID = text
	if !ok && (f.ra.index < 0 || f.rb.index < 0) {
		notMeasured(text)
		return
	}
	if !ok {
		m.judgeCross(r, false, text)
		return
	}
	if err := f.canMeet(ctx); err != nil {
		notMeasured("no way for the TCP connection of perftest: " + oneLine(err))
		return
	}
	probe := []string{"-n", "5", "-s", "64"}
	out, err := f.perftest(ctx, "ib_write_bw", probe...)
	if perftest.Unclocked(out) { // that comes when all has been sent
		err = nil
	}
	if err != nil && !unreached(out) {
		notMeasured(explain(out, err))
		return
	}
	if m.judgeCross(r, err == nil, "nothing is acknowledged"); err == nil && m.Cross != CrossForbidden {
		m.figures(ctx, p, f.at(1), r)
		repeated(r)
	}
}

// canMeet looks whether the address where perftest's two sides meet can be reached at all.
func (f *flow) canMeet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	_, err := f.a.Run(ctx, "ping", "-c", "1", "-W", "5", f.meet().String())
	return err
}

// judgeCross compares whether two rails reach each other with what is expected.
func (m *run) judgeCross(r *perftest.Result, reached bool, why string) {
	m.reached(r, reached)
	switch {
	case reached && m.Cross == CrossForbidden:
		r.Add(perftest.Failed, "reached: the rails are in one fabric, or a cable is in another rail's switch "+
			"(--cross-rail forbidden)")
	case !reached && m.Cross == CrossRequired:
		r.Add(perftest.Failed, "not reached ("+why+"): rails that are apart, or a cable in another fabric "+
			"(--cross-rail required)")
	case !reached:
		r.Add(perftest.Good, "apart: "+why)
	}
}
