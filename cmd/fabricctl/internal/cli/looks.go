package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/counters"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// twoLooks are the flags of doctor host for a second look at the counters.
type twoLooks struct {
	wait   time.Duration // between two looks at the running machine; 0: one look
	before string        // an earlier recording of the machine; empty: none
}

// The least and the most that --duration may wait.
const (
	shortestWait = time.Second
	longestWait  = time.Hour
)

func (l *twoLooks) flags(c *cobra.Command) {
	c.Flags().DurationVar(&l.wait, "duration", 0, "look at the counters twice, so far apart, and judge what rose "+
		"meanwhile")
	c.Flags().StringVar(&l.before, "before", "",
		"an earlier recording of the same node since the same boot, whose counters are the first look")
}

func (l *twoLooks) check(a *app) error {
	switch {
	case l.wait != 0 && l.before != "":
		return fmt.Errorf("%w: --duration and --before exclude each other", errUsage)
	case l.wait != 0 && (l.wait < shortestWait || l.wait > longestWait):
		return fmt.Errorf("%w: --duration %s: want a time from %s to %s, as in 10s", errUsage, l.wait, shortestWait,
			longestWait)
	case l.wait != 0 && a.root != "/":
		return fmt.Errorf("%w: --duration looks at the running machine, and --root is %s; of two recordings the "+
			"earlier one is --before", errUsage, a.root)
	}
	return nil
}

// take takes the look that is missing.
func (l *twoLooks) take(ctx context.Context, a *app, h *doctor.Host) error {
	switch {
	case l.before != "":
		tree, err := treeOf("before", l.before)
		if err != nil {
			return err
		}
		n, err := node.Open(tree, a.store())
		if err != nil {
			return fmt.Errorf("--before %s: %w", l.before, err)
		}
		h.Before = counters.Read(tree, n)
		switch {
		case n.Name != h.Node.Name:
			return fmt.Errorf("--before %s: is of node %s, and this is %s", l.before, n.Name, h.Node.Name)
		case h.Before.Up == 0 || h.Look.Up == 0:
			return fmt.Errorf("--before %s: one of the two has no proc/uptime, so the time between them is unknown; "+
				"record them again with this fabricctl", l.before)
		case h.Before.Up >= h.Look.Up:
			return fmt.Errorf("--before %s: the node was up for %s then and is up for %s now: it was booted in "+
				"between, or the two are the wrong way round", l.before, h.Before.Up, h.Look.Up)
		}
	case l.wait > 0:
		h.Before = h.Look
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(l.wait):
		}
		tree, err := a.tree()
		if err != nil {
			return err
		}
		h.Look = counters.Read(tree, h.Node)
		h.Look.Add(a.liveCounters(h.Node), h.Node)
	}
	return nil
}

// recordHost makes doctor host find in a recording what it asks for. What sysfs does not tell of counters is a file of
// its own.
func (a *app) recordHost(r *node.Recorder, n *node.Node) error {
	doctor.CollectHost(r, n)
	if a.root != "/" {
		return nil // a recording has the file, and it has been read
	}
	b, err := json.MarshalIndent(a.liveCounters(n), "", "  ")
	if err != nil {
		return err
	}
	r.Put(counters.LiveFile, append(b, '\n'))
	return nil
}
