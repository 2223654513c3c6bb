package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// suiteCost is a line of the summary.
type suiteCost struct {
	suite, kernel string
	tests, cached int
	seconds       float64
	guests        map[int]bool
}

// slowest is how many tests the summary lists.
const slowest = 10

// summary is what a run has cost: a table of suites and kernels, the slowest tests, and a total.
func summary(done []*result, guests []guestTime, wall time.Duration) string {
	var rows []*suiteCost
	for _, r := range done {
		kernel := r.work.kernel.String()
		i := slices.IndexFunc(rows, func(c *suiteCost) bool {
			return c.suite == r.work.suite.Name && c.kernel == kernel
		})
		if i < 0 {
			i = len(rows)
			rows = append(rows, &suiteCost{suite: r.work.suite.Name, kernel: kernel, guests: make(map[int]bool)})
		}
		c := rows[i]
		c.tests++
		c.seconds += r.seconds
		if r.cached != nil {
			c.cached++
		}
		if r.guest > 0 {
			c.guests[r.guest] = true
		}
	}
	slices.SortStableFunc(rows, func(a, b *suiteCost) int {
		return cmp.Or(cmp.Compare(a.suite, b.suite), cmp.Compare(a.kernel, b.kernel))
	})
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "suite\tkernel\ttests\tcached\tguests\tseconds\t")
	cached := 0
	for _, c := range rows {
		fmt.Fprintf(tab, "%s\t%s\t%d\t%d\t%d\t%.0f\t\n", c.suite, c.kernel, c.tests, c.cached, len(c.guests), c.seconds)
		cached += c.cached
	}
	_ = tab.Flush() // into memory

	byTime := slices.DeleteFunc(slices.Clone(done), func(r *result) bool { return r.seconds == 0 })
	slices.SortStableFunc(byTime, func(a, b *result) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, r := range byTime[:min(slowest, len(byTime))] {
		if i == 0 {
			b.WriteString("slowest tests:\n")
		}
		fmt.Fprintf(&b, "%8.1f  %s\n", r.seconds, r.work.id())
	}
	var slots, boots, cpu time.Duration
	for _, g := range guests {
		slots, boots, cpu = slots+g.wall, boots+g.boot, cpu+g.cpu
	}
	fmt.Fprintf(&b, "lab: %d tests, %d of them cached, in %.0f s\n", len(done), cached, wall.Seconds())
	fmt.Fprintf(&b, "lab: %d guests took %.0f s together, %.0f s of it to boot, and %.0f s of CPU\n",
		len(guests), slots.Seconds(), boots.Seconds(), cpu.Seconds())
	return b.String()
}
