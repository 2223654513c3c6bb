package measure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
	"github.com/fabric-cni/fabric-cni/internal/doctor"
)

// Options of a measurement.
type Options struct {
	Interfaces []string
	Progress   func(done, all int) // called after each rail of each pair; may be nil
}

// each bounds one command, perftest's own few seconds included.
const each = 60 * time.Second

// All measures every pair of ends, rail by rail: pairs of one round side by side, since they share no port.
func All(ctx context.Context, ends []*End, o Options) ([]perftest.Result, error) {
	have := make([][]rail, len(ends))
	for i, e := range ends {
		var err error
		if have[i], err = rails(ctx, e, o.Interfaces); err != nil {
			return nil, err
		}
		if len(have[i]) != len(have[0]) {
			return nil, fmt.Errorf(
				"%s has %d rails, %s has %d: rails are paired in order, so all need as many",
				ends[0].Name,
				len(have[0]),
				e.Name,
				len(have[i]),
			)
		}
	}
	rounds := perftest.Rounds(len(ends))
	all := len(ends) * (len(ends) - 1) / 2 * len(have[0])
	var out []perftest.Result
	for n, round := range rounds {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, p := range round {
			wg.Go(func() {
				for i := range have[p.A] {
					r := one(ctx, ends[p.A], ends[p.B], &have[p.A][i], &have[p.B][i], 18500+10*p.A)
					r.Round = n + 1
					mu.Lock()
					out = append(out, r)
					if o.Progress != nil {
						o.Progress(len(out), all)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return out, err
		}
	}
	slices.SortFunc(out, func(a, b perftest.Result) int {
		return strings.Compare(
			fmt.Sprintf("%06d %s %s %s", a.Round, a.A, a.B, a.Rail),
			fmt.Sprintf("%06d %s %s %s", b.Round, b.A, b.B, b.Rail),
		)
	})
	return out, nil
}

// one measures one rail of one pair.
func one(ctx context.Context, a, b *End, ra, rb *rail, port int) perftest.Result {
	r := perftest.Result{
		A:       a.Name,
		B:       b.Name,
		Rail:    ra.name,
		HCA:     ra.hca,
		RateGb:  min(ra.rateGb, rb.rateGb),
		Verdict: perftest.Failed,
	}
	switch {
	case !ra.addr.IsValid() || !rb.addr.IsValid():
		r.Ping = "no address"
		r.Text = "an end has no address on this rail: \"ipam\" in the network"
		return r
	case !ra.addr.Contains(rb.addr.Addr()):
		r.Text = fmt.Sprintf(
			"%s and %s are in different subnets: two planes, or rails in another order; routed at best",
			ra.addr,
			rb.addr,
		)
	}
	rtt, err := ping(ctx, a, ra, rb)
	if err != nil {
		r.Ping = "unreachable"
		r.Text = strings.TrimSpace(err.Error() + "; " + r.Text)
		return r
	}
	r.Ping, r.RTT = "reachable", rtt
	if ra.hca == "" || rb.hca == "" {
		r.Verdict = perftest.Skipped
		r.Text = fmt.Sprintf("reachable, %.3f ms; no RDMA device to measure with", rtt)
		return r
	}
	ok, text := match(ra, rb)
	if r.GID = text; !ok {
		r.Text = text
		return r
	}
	out, err := transfer(ctx, a, b, ra, rb, port, "ib_write_bw", "--report_gbits")
	if r.Bandwidth, err = bandwidth(out, err); err != nil {
		r.Text = explain(out, err)
		return r
	}
	r.Verdict, r.Text = perftest.Judge(r.Bandwidth.AverageGb, r.RateGb)
	if out, err = transfer(ctx, a, b, ra, rb, port+1, "ib_write_lat"); err == nil {
		if r.Latency, err = perftest.ParseLatency(out); err == nil {
			r.Text += fmt.Sprintf("; %.2f us", r.Latency.Typical)
		}
	}
	return r
}

func bandwidth(out string, err error) (*perftest.Bandwidth, error) {
	if err != nil {
		return nil, err
	}
	return perftest.ParseBandwidth(out)
}

// explain adds what the message of perftest means.
func explain(out string, err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, e := range doctor.Explain(out) {
		text += "; " + e.ID + ": " + e.Cause + "; " + e.Cure
		break
	}
	return text
}

var (
	loss = regexp.MustCompile(`([\d.]+)% packet loss`)
	rtts = regexp.MustCompile(`= [\d.]+/([\d.]+)/`)
)

// ping asks three times, through the rail.
func ping(ctx context.Context, a *End, ra, rb *rail) (ms float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	to := rb.addr.Addr().String()
	out, err := a.Run(ctx, "ping", "-c", "3", "-i", "0.2", "-W", "2", "-I", ra.name, to)
	if m := loss.FindStringSubmatch(out); m != nil && m[1] != "0" {
		return 0, fmt.Errorf(
			"ping -I %s %s: %s%% of the packets are lost: cable, subnet manager, partition, VLAN, or another plane",
			ra.name,
			to,
			m[1],
		)
	}
	if err != nil {
		return 0, err
	}
	if m := rtts.FindStringSubmatch(out); m != nil {
		ms, _ = strconv.ParseFloat(m[1], 64)
	}
	return ms, nil
}

// transfer runs a program of perftest between the two: server on b, client on a, which tries again until the server
// listens.
func transfer(ctx context.Context, a, b *End, ra, rb *rail, port int, program string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	args := func(r *rail) []string {
		list := append([]string{program, "-d", r.hca, "-i", "1", "-p", strconv.Itoa(port), "-F"}, flags...)
		if r.layer == "Ethernet" {
			list = append(list, "-x", strconv.Itoa(r.index))
		}
		return list
	}
	// timeout ends it in the pod too: ending kubectl does not.
	stop, err := b.Serve(ctx, append([]string{"timeout", strconv.Itoa(int(each.Seconds()))}, args(rb)...)...)
	if err != nil {
		return "", err
	}
	defer stop()
	for try := 0; ; try++ {
		out, err := a.Run(ctx, append(args(ra), rb.addr.Addr().String())...)
		if err == nil || try == 10 || !strings.Contains(out, "Couldn't connect to") {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}
