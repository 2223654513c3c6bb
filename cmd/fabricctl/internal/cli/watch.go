package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// watcher is the work of watch.
type watcher struct {
	*app
	format   string
	interval time.Duration
	count    int // looks that are shown; 0: until it is stopped
	once     bool
	all      bool
}

// The least and the most that may lie between two looks.
const (
	shortestInterval = 100 * time.Millisecond
	longestInterval  = time.Hour
)

func watchCommand(a *app) *cobra.Command {
	w := &watcher{app: a}
	c := &cobra.Command{
		Use:   "watch",
		Short: "Show the rails live: rate in and out, errors, state, and the pod that has each",
		Long: `watch shows the rate of each RDMA port of this node, in Gb/s and per cent, and its errors per second,
for ports on the host and, as root, in pods. The counters of RoCE ports have RDMA only, no TCP. On a terminal it
updates one table; otherwise it prints a line, or with -o json an object, per port and sample. The first rates appear
after one interval. Ctrl-C ends it.`,
		Args: argsBetween(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return err
			}
			return w.run(cmd.Context())
		},
	}
	c.Flags().DurationVar(&w.interval, "interval", 2*time.Second, "time between two looks")
	c.Flags().IntVar(&w.count, "count", 0, "end after so many looks with rates; 0: never")
	c.Flags().BoolVar(&w.once, "once", false, "the same as --count 1")
	c.Flags().BoolVar(&w.all, "all", false, "also virtual functions that no pod has")
	c.Flags().StringVarP(&w.format, "output", "o", "text", "text or json")
	c.MarkFlagsMutuallyExclusive("count", "once")
	return c
}

func (w *watcher) check() error {
	if w.once {
		w.count = 1
	}
	switch {
	case w.interval < shortestInterval || w.interval > longestInterval:
		return fmt.Errorf("%w: --interval %s: want a time from %s to %s, as in 2s", errUsage, w.interval,
			shortestInterval,
			longestInterval)
	case w.count < 0:
		return fmt.Errorf("%w: --count %d: want 0 for no end, or more", errUsage, w.count)
	}
	if st, err := os.Stat(w.root); err == nil && !st.IsDir() {
		return fmt.Errorf("%w: --root %s is a recording, which stands still; of two recordings fabricctl doctor host "+
			"--before says what rose", errUsage, w.root)
	}
	return oneOf("output", &w.format, "text", "json")
}

// run looks, waits and shows, until it has shown enough or is stopped, which is no error.
func (w *watcher) run(ctx context.Context) error {
	before, err := w.look()
	if err != nil {
		return err
	}
	if len(before.ports) == 0 {
		return errors.New("no RDMA port: no such hardware, or its driver is not loaded (modprobe mlx5_ib)")
	}
	show := w.lines
	switch columns, rows, live := w.size(); {
	case w.format == "json":
		show = w.json
	case live:
		w.stdout.Printf("%s", quote.Raw("\x1b[?25l\x1b[2J"))             // no cursor, an empty screen
		defer func() { w.stdout.Printf("%s", quote.Raw("\x1b[?25h")) }() // the cursor again, below the last table
		show = w.table
		if err := show(first(before, w.node(), columns, rows)); err != nil {
			return err
		}
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for shown := 0; w.count == 0 || shown < w.count; shown++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := w.look()
		if err != nil {
			return err
		}
		r := compare(before, now)
		r.Node = w.node()
		r.columns, r.rows, _ = w.size()
		if err := show(r); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// first is a frame before there are rates.
func first(look *watchLook, node string, columns, rows int) *portRates {
	r := compare(&watchLook{}, look)
	r.Node, r.columns, r.rows = node, columns, rows
	for i := range r.Ports {
		r.Ports[i].Note = ""
	}
	return r
}

func (w *watcher) node() string {
	name, err := os.Hostname()
	if err != nil || w.root != "/" {
		return "node"
	}
	return name
}

// size is that of the terminal; live is false if the output is not one.
func (w *watcher) size() (columns, rows int, live bool) {
	f, ok := w.stdout.W.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || w.getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24
	}
	return columns, rows, true
}

// json prints a look as one line.
func (w *watcher) json(r *portRates) error { return w.line(*r) }

// lines prints a line per port.
func (w *watcher) lines(r *portRates) error {
	for i := range r.Ports {
		p := &r.Ports[i]
		w.stdout.Printf("%s %s %s %s in %s out %s errors %s%s\n", r.Time.Format(time.TimeOnly), p.name(), dash(p.Pod),
			p.State, gbps(p.InGb, p.RateGb), gbps(p.OutGb, p.RateGb), p.errorRate(), prefixed(" ", p.Note))
	}
	return nil
}

// table draws the table from the upper left corner of the terminal, over the one before.
func (w *watcher) table(r *portRates) error {
	var in, out float64
	for i := range r.Ports {
		in, out = in+value(r.Ports[i].InGb), out+value(r.Ports[i].OutGb)
	}
	head := fmt.Sprintf("%s  %s  every %s  in %.1f Gb/s  out %.1f Gb/s", r.Node, r.Time.Format(time.TimeOnly),
		w.interval,
		in, out)
	w.stdout.Printf("%s%s%s", quote.Raw("\x1b[H"), quote.Raw(fit(quote.Terminal(head), r.columns)),
		quote.Raw(endOfLine+endOfLine))
	const others = 5 // two lines above, two notes below, and the one that the cursor is in
	list, more := r.draw(r.columns, max(2, r.rows-others))
	for _, l := range list {
		w.stdout.Printf("%s%s", w.coloured(l.colour, fit(l.text, r.columns)), quote.Raw(endOfLine))
	}
	if more > 0 {
		w.stdout.Printf("%s%s", quote.Raw(fmt.Sprintf("and %d more ports", more)), quote.Raw(endOfLine))
	}
	if r.Hidden > 0 {
		w.stdout.Printf("%s%s", quote.Raw(fit(fmt.Sprintf("%d idle virtual functions are left out (--all)", r.Hidden),
			r.columns)), quote.Raw(endOfLine))
	}
	w.stdout.Printf("%s", quote.Raw("\x1b[J")) // and nothing below
	return nil
}

// endOfLine clears what an earlier table had there.
const endOfLine = "\x1b[K\n"

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// fit cuts a text to a number of columns.
func fit(s string, columns int) string {
	if quote.Width(s) <= columns {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if quote.Width(b.String()+string(r)) > columns-1 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "~"
}
