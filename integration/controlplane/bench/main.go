// Command bench measures what a cluster's API server has to do for the agents of many nodes and for the controller:
// requests and bytes by verb and resource, the growth of etcd, how long a node waits, the memory of the controller.
// The API server and etcd are real, and so is all that the agents do with them; only the nodes are not there. Beside
// it runs what the agents did before there was a controller, and what agents do that watch a pool with the ranges of
// all nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

var selfPID = os.Getpid()

// options are the options of the command line.
type options struct {
	agents  int
	silent  int
	rate    int
	steady  time.Duration
	outage  time.Duration
	bin     string
	port    int
	before  []int
	pools   []int
	quiet   bool
	last    time.Time // of progress
	details bool
}

func main() {
	o := &options{}
	before, pools := "", ""
	flag.IntVar(&o.agents, "agents", 5000, "`nodes` with the agents and the controller of this version; 0: none")
	flag.IntVar(&o.silent, "silent", 0, "more `nodes` whose agents report once, for a machine with few CPUs")
	flag.IntVar(&o.rate, "rate", 100, "`agents` that start in a second")
	flag.DurationVar(&o.steady, "steady", 10*time.Minute, "how long to look at a cluster at rest")
	flag.DurationVar(&o.outage, "outage", 2*time.Minute, "how long the API server is away")
	flag.StringVar(&o.bin, "agent", "bin/fabric-agent", "the `program`")
	flag.IntVar(&o.port, "port", 19470, "`port` of the controllers' metrics, and the one after it")
	flag.StringVar(&before, "before", "50,200,500", "`nodes` with what agents did before, with commas; empty: none")
	flag.StringVar(&pools, "pools", "50,200,500", "`nodes` that watch pools, with commas; empty: none")
	flag.BoolVar(&o.details, "details", true, "print each verb and resource")
	flag.BoolVar(&o.quiet, "quiet", false, "print no progress")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // connections end here all the time
	err := errors.Join(numbers(before, &o.before), numbers(pools, &o.pools))
	if err == nil {
		err = o.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func numbers(text string, out *[]int) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is not a number of nodes", part)
		}
		*out = append(*out, n)
	}
	slices.Sort(*out)
	return nil
}

// run measures one after the other, and prints what it has as soon as it has it.
func (o *options) run(ctx context.Context) error {
	text, err := describe()
	if err != nil {
		return err
	}
	fmt.Println(text)
	if o.agents > 0 {
		a := &after{options: o, out: newReport("This version", o.details)}
		if err := a.run(ctx); err != nil {
			return err
		}
	}
	if len(o.before) > 0 {
		out := newReport("Before: the agents of commit 3acbb3f, their requests replayed", o.details)
		for _, n := range o.before {
			if err := (&before{options: o, n: n, out: out}).run(ctx); err != nil {
				return err
			}
		}
		out.extrapolate(5000)
	}
	if len(o.pools) > 0 {
		out := newReport("Every node watches every pool", o.details)
		for _, n := range o.pools {
			if err := (&pools{options: o, n: n, out: out}).run(ctx); err != nil {
				return err
			}
		}
		out.extrapolate(5000)
	}
	return nil
}

// progress says every few seconds how far it is.
func (o *options) progress(format string, args ...any) {
	if !o.quiet && time.Since(o.last) > 10*time.Second {
		o.last = time.Now()
		fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{o.last.Format(time.TimeOnly)}, args...)...)
	}
}
