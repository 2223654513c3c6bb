package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	each    = 2 * time.Minute  // bounds one command, perftest's own few seconds included
	patient = 20 * time.Second // how long a pod may take until it answers
	listens = time.Minute      // how long a server may take until it listens: a busy node starts it late
)

func itoa(n int) string { return strconv.Itoa(n) }

var (
	loss = regexp.MustCompile(`([\d.]+)% packet loss`)
	rtts = regexp.MustCompile(`= [\d.]+/([\d.]+)/`)
)

// maxRTT is more ms than ping waits.
const maxRTT = 1e5

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
			short(m[1]),
		)
	}
	if err != nil {
		return 0, err
	}
	if m := rtts.FindStringSubmatch(out); m != nil {
		ms = finite(m[1], maxRTT)
	}
	return ms, nil
}

// flow is one transfer between two rails: the client on a, the server on b.
type flow struct {
	a, b   *End
	ra, rb *rail
	tcp    int // port at which the two find each other
}

// back is the flow the other way.
func (f flow) back() flow { return flow{f.b, f.a, f.rb, f.ra, f.tcp} }

// at is the flow with another port.
func (f flow) at(n int) flow { f.tcp += n; return f }

// meet is the server's address for what the two sides tell each other before they measure. Where the rail itself has an
// address and is its own way there, that is it; else the pod's own network.
func (f *flow) meet() netip.Addr {
	if f.rb.addr.IsValid() && f.ra.addr.IsValid() && (f.ra.name == f.rb.name || !f.rb.meet.IsValid()) {
		return f.rb.addr.Addr()
	}
	return f.rb.meet
}

// perftestArgs is a program of perftest on a rail. tcp is the port at which its two sides find each other.
func perftestArgs(r *rail, tcp int, program string, flags []string) ([]string, error) {
	args := []string{program, "-d", r.port.hca, "-i", itoa(r.port.number), "-p", itoa(tcp), "-F"}
	args = append(args, flags...)
	switch {
	case r.port.layer == ethernet:
		args = append(args, "-x", itoa(r.index))
	case r.pkey != "":
		i := r.port.pkeyIndex(r.pkey)
		if i < 0 {
			return nil, fmt.Errorf("%s: PKey %s of %s is not in the table of %s: the subnet manager has taken the "+
				"partition from this port", r.end, r.pkey, r.name, r.port.name())
		}
		if i > 0 { // 0 is what perftest takes by itself, also where it does not know the option
			args = append(args, "--pkey_index="+itoa(i))
		}
	}
	return args, nil
}

// perftest runs a program of perftest. The output is that of the side that has failed.
func (f flow) perftest(ctx context.Context, program string, flags ...string) (string, error) {
	return f.perftestWith(ctx, program, flags, flags)
}

func (f flow) perftestWith(ctx context.Context, program string, onA, onB []string) (string, error) {
	server, err := perftestArgs(f.rb, f.tcp, program, onB)
	if err != nil {
		return "", err
	}
	client, err := perftestArgs(f.ra, f.tcp, program, onA)
	if err != nil {
		return "", err
	}
	return f.talk(ctx, server, append(client, f.meet().String()), "Couldn't connect to")
}

// rping runs rping through the rails' addresses: it finds the path by rdma_cm, as MPI and storage do.
func (f flow) rping(ctx context.Context) error {
	to := []string{"-a", f.rb.addr.Addr().String(), "-p", itoa(f.tcp), "-C", "3"}
	client := append([]string{"rping", "-c", "-I", f.ra.addr.Addr().String()}, to...)
	out, err := f.talk(ctx, append([]string{"rping", "-s"}, to...), client, "RDMA_CM_EVENT_REJECTED")
	if err != nil && ctx.Err() == nil && out != "" {
		return errors.New(tail(out))
	}
	return err
}

// bounded ends a command in a pod too: ending the connection does not.
func (e *End) bounded(args []string) []string {
	if e.pod == nil {
		return args
	}
	return append([]string{"timeout", itoa(int(each.Seconds()))}, args...)
}

// talk runs a server on b and a client on a, which tries again as long as it finds no server.
func (f flow) talk(ctx context.Context, server, client []string, noServer string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	s, err := f.b.Serve(ctx, f.b.bounded(server)...)
	if err != nil {
		return "", err
	}
	defer func() { _, _ = s.Stop() }()
	for begun := time.Now(); ; {
		out, err := f.a.Run(ctx, client...)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		if s.Failed() { // why the client has failed, too, more often than not
			serverOut, serverErr := s.Stop()
			return serverOut + out, serverErr
		}
		if !strings.Contains(out, noServer) || time.Since(begun) > listens {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(500 * time.Millisecond):
		}
	}
}
