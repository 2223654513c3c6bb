package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

func verifyCommand(a *app) *cobra.Command {
	v := &verification{console: &a.console}
	c := &cobra.Command{
		Use:   "verify {--pods A,B,... | --deploy [RECORDING...] | --netns PATH,PATH,...}",
		Short: "Measure between pods, rail by rail, and judge the result against the ports' rate",
		Long: `verify measures every pair of the pods, rail by rail, in rounds in which no pod is in two pairs:
reachability (ping), whether the GIDs can reach each other, ib_write_bw and ib_write_lat. 90 per cent of
the port's rate are good, or what --good says. The pods need perftest, ip, ping and sh; fabricctl
generate perftest-pods writes such pods, and kubectl has to be in PATH. --deploy makes two of them, or
--workers, measures, and deletes them. With --netns it measures between network namespaces of this
machine, with the ping and the perftest of this machine, as root.

Exit status 3 if something is slow or has failed.`,
		Example: `  fabricctl generate perftest-pods | kubectl apply -f -
  fabricctl verify --pods rdma-test-a,rdma-test-b
  fabricctl verify --deploy --image registry.example.com/perftest:1 gpu-1.tar.gz
  fabricctl verify --pods p1,p2,p3,p4 -o html >report.html`,
		Args: argsBetween(0, 10000),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(args); err != nil {
				return err
			}
			if v.deploy {
				if err := v.pods.from.checkPrefix(cmd.Flags()); err != nil {
					return err
				}
				v.pods.namespace = v.namespace
				v.pods.from.machine, v.pods.from.recordings = a.machine, args
				defer v.pods.remove()
				if err := v.pods.deploy(cmd.Context()); err != nil {
					return err
				}
				v.pods.from.warn(v.console)
				v.names = v.pods.names()
			}
			ends, err := v.ends()
			if err != nil {
				return err
			}
			defer func() {
				for _, e := range ends {
					e.Close()
				}
			}()
			options := measure.Options{Interfaces: v.interfaces, Good: v.good, Progress: v.progress()}
			list, err := measure.All(cmd.Context(), ends, options)
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			if err := v.print(list); err != nil {
				return err
			}
			if w := perftest.Worst(list); w == perftest.Slow || w == perftest.Failed {
				return errFinding
			}
			return nil
		},
	}
	v.flags(c)
	return c
}

// verification is the flags of verify, and its output.
type verification struct {
	*console
	namespace  string
	names      []string // of the pods to measure between
	deploy     bool     // make pods for it
	pods       testPods
	netns      []string // paths, instead of pods
	interfaces []string
	good       float64 // per cent
	format     string
}

func (v *verification) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&v.names, "pods", nil, "pods to measure between")
	f.BoolVar(&v.deploy, "deploy", false, "make pods for it, each on a node of its own, and delete them afterwards")
	v.pods.flags(f)
	f.StringSliceVar(&v.netns, "netns", nil, "network namespaces of this machine to measure between")
	c.MarkFlagsMutuallyExclusive("pods", "deploy", "netns")
	f.StringVarP(&v.namespace, "namespace", "n", "default", "namespace of the pods")
	f.StringSliceVar(&v.interfaces, "interfaces", nil,
		"the rails (default: net1, net2, ... and InfiniBand interfaces)")
	f.Float64Var(&v.good, "good", perftest.Threshold,
		"per cent of the slower port's rate that are good: fewer where ports share a link, or are emulated")
	f.StringVarP(&v.format, "output", "o", "table", "table, wide, json, yaml, junit or html")
}

func (v *verification) check(args []string) error {
	if err := oneOf("output", v.format, "table", "wide", "json", "yaml", "junit", "html"); err != nil {
		return err
	}
	if !(v.good > 0 && v.good <= 100) { // nor is it no number
		return fmt.Errorf("%w: --good %v: want per cent, more than 0 and 100 at most", errUsage, v.good)
	}
	if len(args) > 0 && !v.deploy {
		return fmt.Errorf("%w: unexpected argument %q: recordings are for --deploy", errUsage, args[0])
	}
	if err := errors.Join(labelRule.check("namespace", v.namespace), v.pods.check()); err != nil {
		return err
	}
	if v.deploy && v.pods.count < 2 {
		return fmt.Errorf("%w: --workers %d: want 2 at least", errUsage, v.pods.count)
	}
	return nil
}

// ends are the pods or network namespaces to measure between. The caller closes them.
func (v *verification) ends() (out []*measure.End, err error) {
	if len(v.names)+len(v.netns) < 2 {
		return nil, fmt.Errorf("%w: name two ends at the least, with --pods A,B or --netns A,B", errUsage)
	}
	for _, p := range v.names {
		out = append(out, measure.Pod(v.namespace, p))
	}
	for _, path := range v.netns {
		e, err := measure.Netns(path)
		if err != nil {
			return nil, fmt.Errorf("--netns: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// progress draws a bar on a terminal.
func (v *verification) progress() func(done, all int) {
	st, err := os.Stderr.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return func(done, all int) {
		const width = 40
		n := width * done / all
		v.stderr.Printf("\r[%s%s] %d/%d", strings.Repeat("#", n), strings.Repeat(".", width-n), done, all)
		if done == all {
			v.stderr.Println()
		}
	}
}

// print prints the results in the format of --output.
func (v *verification) print(list []perftest.Result) error {
	switch v.format {
	case "json", "yaml":
		return v.structured(v.format, verifyReport{list})
	case "junit":
		return v.document(func(w io.Writer) error { return printJUnit(w, list) })
	case "html":
		return v.document(func(w io.Writer) error { return draw.Report(w, list) })
	}
	t := newTable("ROUND", "A", "B", "RAIL", "HCA", "PING", "VERDICT", "RESULT")
	colour := map[perftest.Verdict]string{perftest.Good: good, perftest.Slow: warn, perftest.Failed: bad}
	if v.format == "wide" {
		t.header = append(t.header, "RTT-MS", "GID", "GBPS", "OF", "LATENCY-US")
	}
	for _, r := range list {
		row := []any{r.Round, r.A, r.B, r.Rail, r.HCA, r.Ping, cell{string(r.Verdict), colour[r.Verdict]}, r.Text}
		if v.format == "wide" {
			var gbps, latency float64
			if r.Bandwidth != nil {
				gbps = r.Bandwidth.AverageGb
			}
			if r.Latency != nil {
				latency = r.Latency.Typical
			}
			row = append(row, figure(r.RTT), r.GID, figure(gbps), figure(r.RateGb), figure(latency))
		}
		t.add(row...)
	}
	t.print(v.console)
	return nil
}

// figure is a number as people write it, and nothing for none.
func figure(v float64) string {
	if v == 0 {
		return ""
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
