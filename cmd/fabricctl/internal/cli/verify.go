package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/measure"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

func verifyCommand(a *app) *cobra.Command {
	v := &verification{console: &a.console, pods: testPods{version: a.version}}
	v.pods.from.machine = a.machine
	c := &cobra.Command{
		Use:   "verify {POD POD... | --deploy [RECORDING...] | --netns PATH,PATH,...}",
		Short: "Measure between pods, rail by rail, and judge the result against the ports' rate",
		Long: `verify measures every pair of pods, rail by rail, in rounds in which each pod is in one pair:
reachability (ping, rping), GIDs, ib_write_bw in both directions, and ib_write_lat. Good is 90 per cent of the port's
rate, or --good or --threshold. --cross-rail also measures between different rails. The pods need perftest, ip, ping,
sh and timeout; fabricctl generate perftest-pods writes such pods. --deploy creates two pods, or --workers, and
deletes them afterwards. --netns measures between network namespaces of this machine with its own perftest, as root.

Pods without an interface of the rails (shared RDMA mode) are measured over their InfiniBand devices.

Exit status: 0 all requested measurements were made and passed; 3 something is slow, has failed, or was not measured.`,
		Example: `  fabricctl generate perftest-pods | kubectl apply -f -
  fabricctl verify rdma-test-a rdma-test-b
  fabricctl verify --deploy --image registry.example.com/perftest:1 gpu-1.tar.gz
  fabricctl verify p1 p2 p3 p4 --cross-rail forbidden --threshold 400=360,200=180 --max-latency 5
  fabricctl verify --deploy --cluster --workers 16 --image IMAGE --label-nodes
  fabricctl verify p1 p2 --output-file last.json --baseline last.json
  fabricctl verify p1 p2 p3 p4 -o html >report.html`,
		Args:              argsBetween(0, 10000),
		ValidArgsFunction: v.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			v.pods.from.machine = a.machine
			v.namespace = a.kube.Namespace()
			if err := v.check(args, cmd.Flags()); err != nil {
				return err
			}
			v.pods.namespace = v.namespace
			if v.deploy {
				v.pods.from.recordings = args
				v.pods.from.settle()
			}
			report, err := v.run(cmd.Context(), cmd.Flags())
			if err != nil {
				return err
			}
			if err := v.print(report); err != nil {
				return err
			}
			if report.Summary.Verdict != perftest.Good {
				return errFinding
			}
			return nil
		},
	}
	v.flags(c)
	return c
}

// complete offers the pods of the namespace, or files with recordings.
func (v *verification) complete(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	switch {
	case v.deploy:
		return nil, cobra.ShellCompDirectiveDefault
	case len(v.netns) > 0:
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return ofCluster(v.pods.from.kube, cluster.Pods)(c, args, begun)
}

// verification is the flags of verify, and its output.
type verification struct {
	*console
	namespace string
	names     []string // of the pods to measure between
	deploy    bool     // make pods for it
	pods      testPods
	netns     []string // paths, instead of pods
	options   measure.Options
	limits    limitFlags
	cross     string
	tests     []string
	baseline  string
	save      string
	labels    bool
	moved     []string // nodes whose pods were replaced while they were measured
	nccl      ncclJob
	format    string
}

func (v *verification) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&v.deploy, "deploy", false, "make pods for it, each on a node of its own, and delete them afterwards")
	v.pods.flags(c)
	f.StringSliceVar(&v.netns, "netns", nil, "network namespaces of this machine to measure between")
	c.MarkFlagsMutuallyExclusive("deploy", "netns")
	f.StringSliceVar(&v.options.Interfaces, "interfaces", nil, "the rails (default: net1, net2, ... and InfiniBand "+
		"interfaces; without any, the InfiniBand ports); also ports, such as mlx5_0:1")
	f.StringVar(&v.cross, "cross-rail", string(measure.CrossOff), "rails with other rails: off, allowed (measured "+
		"where they reach each other), required, or forbidden (planes)")
	f.StringSliceVar(&v.tests, "tests", nil, "only these, which then have to be measured: ping, rping, bandwidth, "+
		"latency, gpudirect (default: ping, bandwidth and latency; the others where the pods have what it takes)")
	f.BoolVar(&v.options.OneWay, "one-way", false, "bandwidth from the first of a pair to the second only")
	f.IntVar(&v.options.Rounds, "rounds", 0, "so many rounds only: each pod with so many others (default: with all)")
	f.IntVar(&v.options.Iterations, "iterations", 0, "messages of each measurement (default: perftest's own)")
	f.DurationVar(&v.options.Duration, "duration", 0,
		"how long each measurement of bandwidth takes, instead of iterations")
	f.DurationVar(&v.options.MaxTime, "max-time", 0,
		"begin no round after so long; what is left counts as not measured")
	c.MarkFlagsMutuallyExclusive("iterations", "duration")
	v.limits.flags(f)
	f.StringVar(&v.baseline, "baseline", "", "report of an earlier run (--output-file, -o json) to compare with")
	f.StringVar(&v.save, "output-file", "", "write the report to this file as JSON, in whatever format it is printed")
	f.BoolVar(&v.labels, "label-nodes", false, "label the nodes of the pods "+labelVerified+"=true or false")
	v.nccl.flags(f)
	f.StringVarP(&v.format, "output", "o", "table", "table, wide, json, yaml, junit or html")
}

// limitFlags are the thresholds.
type limitFlags struct {
	perftest.Limits
	byRate []string
}

func (l *limitFlags) flags(f *pflag.FlagSet) {
	f.Float64Var(&l.Percent, "good", perftest.Threshold,
		"per cent of the slower port's rate that are good: fewer where ports share a link, or are emulated")
	f.StringSliceVar(&l.byRate, "threshold", nil,
		"RATE=LEAST,...: Gb/s that are good on ports with this rate, instead of --good: 400=360,200=180")
	f.Float64Var(&l.Rate, "rate", 0, "Gb/s that every port has to have: less is a port that has trained down")
	f.Float64Var(&l.MaxLatency, "max-latency", 0, "us of latency that are still good (default: any)")
	f.Float64Var(&l.MaxRegress, "max-regress", 10, "per cent that a path may lose against the --baseline")
}

// check checks the thresholds, and reads those by rate.
func (l *limitFlags) check() error {
	positive := func(flag string, v float64) error {
		if !(v >= 0 && v <= maxRate) { // nor is it no number
			return fmt.Errorf("%w: --%s %v: want 0 to %d", errUsage, flag, v, maxRate)
		}
		return nil
	}
	if !(l.Percent > 0 && l.Percent <= 100) {
		return fmt.Errorf("%w: --good %v: want per cent, more than 0 and 100 at most", errUsage, l.Percent)
	}
	if !(l.MaxRegress > 0 && l.MaxRegress <= 100) {
		return fmt.Errorf("%w: --max-regress %v: want per cent, more than 0 and 100 at most", errUsage, l.MaxRegress)
	}
	l.ByRate = map[float64]float64{}
	for _, t := range l.byRate {
		rate, least, err := pairOfNumbers(t)
		if err != nil || rate <= 0 || least <= 0 || least > rate || rate > maxRate {
			return fmt.Errorf("%w: --threshold %.100q: want RATE=LEAST in Gb/s, such as 400=360, LEAST not above RATE",
				errUsage, t)
		}
		l.ByRate[rate] = least
	}
	return errors.Join(positive("max-latency", l.MaxLatency), positive("rate", l.Rate))
}

func pairOfNumbers(s string) (a, b float64, err error) {
	var rest string
	if n, err := fmt.Sscanf(s, "%g=%g%s", &a, &b, &rest); n != 2 {
		return 0, 0, fmt.Errorf("not two numbers: %w", err)
	}
	return a, b, nil
}

// testNames are the values of --tests.
var testNames = []string{"ping", "rping", "bandwidth", "latency", "gpudirect"}

func (v *verification) check(args []string, f *pflag.FlagSet) error {
	if err := errors.Join(oneOf("output", &v.format, "table", "wide", "json", "yaml", "junit", "html"),
		oneOf("cross-rail", &v.cross, string(measure.CrossOff), string(measure.CrossAllowed),
			string(measure.CrossRequired), string(measure.CrossForbidden)),
		v.limits.check(), labelRule.check("namespace", v.namespace), v.checkTests(), v.checkAmounts()); err != nil {
		return err
	}
	if len(args) > 0 && len(v.netns) > 0 {
		return fmt.Errorf("%w: unexpected argument %q: --netns is not between pods", errUsage, args[0])
	}
	if !v.deploy {
		v.names = args
	}
	for _, name := range v.names {
		if domainRule.check("", name) != nil {
			return fmt.Errorf("%w: argument %.300q: must be the name of a pod", errUsage, name)
		}
	}
	if v.labels && len(v.netns) > 0 {
		return fmt.Errorf("%w: --label-nodes: network namespaces are not of a node of a cluster", errUsage)
	}
	return errors.Join(v.pods.check(v.deploy, f), v.nccl.check(v.deploy, f))
}

func (v *verification) checkAmounts() error {
	const most = 24 * time.Hour
	switch o := &v.options; {
	case o.Rounds < 0:
		return fmt.Errorf("%w: --rounds %d: want 1 or more, or 0 for all", errUsage, o.Rounds)
	case o.Iterations != 0 && (o.Iterations < 5 || o.Iterations > 1e9):
		return fmt.Errorf("%w: --iterations %d: perftest wants 5 to 1000000000", errUsage, o.Iterations)
	case o.Duration != 0 && (o.Duration < time.Second || o.Duration > time.Minute):
		return fmt.Errorf("%w: --duration %v: want 1s to 1m", errUsage, o.Duration)
	case o.MaxTime < 0 || o.MaxTime > most:
		return fmt.Errorf("%w: --max-time %v: want up to %v", errUsage, o.MaxTime, most)
	}
	return nil
}

// checkTests reads --tests into the options.
func (v *verification) checkTests() error {
	o := &v.options
	o.Cross, o.Limits = measure.Cross(v.cross), v.limits.Limits
	want := map[string]*measure.Want{"ping": &o.Ping, "rping": &o.RPing, "bandwidth": &o.Bandwidth,
		"latency": &o.Latency, "gpudirect": &o.GPU}
	if len(v.tests) == 0 {
		o.Ping, o.RPing, o.Bandwidth, o.Latency, o.GPU = measure.IfCan, measure.IfCan, measure.Must, measure.Must,
			measure.IfCan
	}
	for i := range v.tests {
		if err := oneOf("tests", &v.tests[i], testNames...); err != nil {
			return err
		}
		*want[v.tests[i]] = measure.Must
	}
	return nil
}

// ends are the pods or network namespaces to measure between. The caller closes them.
func (v *verification) ends(ctx context.Context) (out []*measure.End, err error) {
	if len(v.names)+len(v.netns) < 2 {
		return nil, fmt.Errorf("%w: name two pods at the least, or --netns A,B", errUsage)
	}
	seen := map[string]bool{}
	for _, name := range append(append([]string{}, v.names...), v.netns...) {
		if seen[name] {
			return nil, fmt.Errorf("%w: %q is named twice", errUsage, name)
		}
		seen[name] = true
	}
	for _, p := range v.names {
		out = append(out, measure.Pod(v.pods.from.kube, v.namespace, p))
	}
	for _, path := range v.netns {
		e, err := measure.Netns(path)
		if err != nil {
			return nil, fmt.Errorf("--netns: %w", err)
		}
		out = append(out, e)
	}
	return out, v.nodes(ctx, out)
}
