// Command bench measures what a cluster's API server has to do for the agents of many nodes and for the controller:
// requests and bytes by verb and resource, the growth of etcd, how long a node waits, the memory of the controller.
// The API server and etcd are real, and so is all that the agents do with them; only the nodes are not there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
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
	quiet   bool
	last    time.Time // of progress
	details bool
}

func main() {
	o := &options{}
	flag.IntVar(&o.agents, "agents", 5000, "`nodes` whose agents are connected all the time")
	flag.IntVar(&o.silent, "silent", 0, "more `nodes` whose agents report once, for a machine with few CPUs")
	flag.IntVar(&o.rate, "rate", 100, "`agents` that start in a second")
	flag.DurationVar(&o.steady, "steady", 10*time.Minute, "how long to look at a cluster at rest")
	flag.DurationVar(&o.outage, "outage", 2*time.Minute, "how long the API server is away")
	flag.StringVar(&o.bin, "agent", "bin/fabric-agent", "the `program`")
	flag.IntVar(&o.port, "port", 19470, "`port` of the controllers' metrics, and the one after it")
	flag.BoolVar(&o.details, "details", true, "print each verb and resource")
	flag.BoolVar(&o.quiet, "quiet", false, "print no progress")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // connections end here all the time
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	text, err := describe()
	if err != nil {
		return err
	}
	fmt.Println(text)
	return (&scenario{options: o}).run(ctx)
}

// progress says every few seconds how far it is.
func (o *options) progress(format string, args ...any) {
	if !o.quiet && time.Since(o.last) > 10*time.Second {
		o.last = time.Now()
		fmt.Fprintf(os.Stderr, "%s "+format+"\n", append([]any{o.last.Format(time.TimeOnly)}, args...)...)
	}
}
