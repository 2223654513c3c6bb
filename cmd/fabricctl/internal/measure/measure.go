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
	Good       float64             // per cent of the slower port's rate
	Progress   func(done, all int) // called after each rail of each pair; may be nil
}

const (
	each    = 2 * time.Minute  // bounds one command, perftest's own few seconds included
	patient = 20 * time.Second // how long a server may take until it listens
)

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
					r := one(ctx, ends[p.A], ends[p.B], &have[p.A][i], &have[p.B][i], 18500+10*p.A, o.Good)
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
func one(ctx context.Context, a, b *End, ra, rb *rail, tcp int, good float64) perftest.Result {
	r := perftest.Result{
		A:       a.Name,
		B:       b.Name,
		Rail:    ra.name,
		HCA:     ra.port.hca,
		RateGb:  min(ra.port.rateGb, rb.port.rateGb),
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
	hasVerbs := ra.port.hca != "" && rb.port.hca != ""
	rtt, err := ping(ctx, a, ra, rb)
	if err != nil {
		r.Ping = "unreachable"
		r.Text = joined(ra.down(), rb.down(), err.Error(), r.Text)
		if ok, text := match(ra, rb); hasVerbs && !ok {
			r.GID, r.Text = text, joined(text, r.Text)
		}
		return r
	}
	r.Ping, r.RTT = "reachable", rtt
	if !hasVerbs {
		r.Verdict = perftest.Skipped
		r.Text = fmt.Sprintf("reachable, %.3f ms; no RDMA device to measure with", rtt)
		return r
	}
	if ra.down() != "" || rb.down() != "" { // the link may have come up while ping was waiting for it
		ra.verbs(ctx, a)
		rb.verbs(ctx, b)
	}
	if text := joined(ra.down(), rb.down()); text != "" {
		r.Text = text
		return r
	}
	ok, text := match(ra, rb)
	if r.GID = text; !ok {
		r.Text = text
		return r
	}
	out, err := transfer(ctx, a, b, ra, rb, tcp, "ib_write_bw", "--report_gbits")
	if r.Bandwidth, err = bandwidth(out, err); err != nil {
		r.Text = explain(out, err)
		return r
	}
	r.Verdict, r.Text = perftest.Judge(r.Bandwidth.AverageGb, r.RateGb, good)
	r.Text += "; " + latency(&r, func() (string, error) {
		return transfer(ctx, a, b, ra, rb, tcp+1, "ib_write_lat")
	})
	return r
}

// joined are the texts that are not empty.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// latency measures it into r, and says in words what it is. A path with bandwidth and without latency has failed.
func latency(r *perftest.Result, run func() (string, error)) string {
	out, err := run()
	if err == nil {
		r.Latency, err = perftest.ParseLatency(out)
	}
	if err != nil {
		r.Verdict = perftest.Failed
		return explain(out, err)
	}
	return fmt.Sprintf("%.2f us", r.Latency.Typical)
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

// perftestArgs is a program of perftest on a rail. tcp is the port at which its two sides find each other.
func perftestArgs(r *rail, tcp int, program string, flags []string) ([]string, error) {
	args := []string{program, "-d", r.port.hca, "-i", strconv.Itoa(r.port.number), "-p", strconv.Itoa(tcp), "-F"}
	args = append(args, flags...)
	switch {
	case r.port.layer == ethernet:
		args = append(args, "-x", strconv.Itoa(r.index))
	case r.pkey != "":
		i := r.port.pkeyIndex(r.pkey)
		if i < 0 {
			return nil, fmt.Errorf("%s: PKey %s of %s is not in the table of %s: the subnet manager has taken the "+
				"partition from this port", r.end, r.pkey, r.name, r.port.name())
		}
		if i > 0 { // 0 is what perftest takes by itself, also where it does not know the option
			args = append(args, "--pkey_index="+strconv.Itoa(i))
		}
	}
	return args, nil
}

// transfer runs a program of perftest between the two: server on b, client on a, which tries again until the server
// listens. The output is that of the side that has failed.
func transfer(ctx context.Context, a, b *End, ra, rb *rail, tcp int, program string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	server, err := perftestArgs(rb, tcp, program, flags)
	if err != nil {
		return "", err
	}
	client, err := perftestArgs(ra, tcp, program, flags)
	if err != nil {
		return "", err
	}
	if len(b.prefix) > 0 { // timeout ends it in the pod too: ending kubectl does not
		server = append([]string{"timeout", strconv.Itoa(int(each.Seconds()))}, server...)
	}
	s, err := b.Serve(ctx, server...)
	if err != nil {
		return "", err
	}
	defer func() { _, _ = s.Stop() }()
	client = append(client, rb.addr.Addr().String())
	for begun := time.Now(); ; {
		out, err := a.Run(ctx, client...)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if s.Failed() { // why the client has failed, too, more often than not
			serverOut, serverErr := s.Stop()
			return serverOut + out, serverErr
		}
		if !strings.Contains(out, "Couldn't connect to") || time.Since(begun) > patient {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(500 * time.Millisecond):
		}
	}
}
