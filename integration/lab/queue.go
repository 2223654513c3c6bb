package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/share"
)

// work is what a guest runs in one process: a top-level guest test, or a piece of one.
type work struct {
	kernel        Kernel
	suite         Suite
	test          string
	piece, pieces int     // piece 1 to pieces of a test that is dealt to several guests; 1 of 1: the whole test
	expected      float64 // seconds in the guest, from an earlier run
	first         bool    // before all others: a deadline must not cut it off
	tries         int     // how often it was given to a guest
}

// name returns the name under which the result is reported.
func (w *work) name() string {
	if w.pieces > 1 {
		return fmt.Sprintf("%s-%dof%d", w.test, w.piece, w.pieces)
	}
	return w.test
}

// id identifies the work in tables of durations.
func (w *work) id() string { return w.kernel.Series + "/" + w.suite.Name + "/" + w.name() }

// class is the work that needs guests of one machine specification, the longest first.
type class struct {
	machine string
	waiting []*work
	guests  int // that run now
}

func (c *class) remaining() (seconds float64) {
	for _, w := range c.waiting {
		seconds += w.expected
	}
	return seconds
}

// queue hands out work to guests. Guests of one machine specification share their work. Work that would probably end
// after $FABRIC_DEADLINE is left out.
type queue struct {
	mu      sync.Mutex
	classes []*class
	left    []*work
	// How long what has been done took, and how long it was expected to take: the pace of this machine today.
	took, expected float64
}

// bootSeconds is about what another guest costs.
const bootSeconds = 8

func newQueue(all []*work) *queue {
	q := &queue{}
	byMachine := make(map[string]*class)
	for _, w := range all {
		m := machine(w.kernel, w.suite)
		c := byMachine[m]
		if c == nil {
			c = &class{machine: m}
			byMachine[m] = c
			q.classes = append(q.classes, c)
		}
		c.waiting = append(c.waiting, w)
	}
	for _, c := range q.classes {
		c.sort()
	}
	return q
}

// machine describes the machine that a suite's tests need on a kernel. Equal text means that they can share a guest.
func machine(k Kernel, s Suite) string {
	apart := ""
	if s.Apart {
		apart = s.Name
	}
	return strings.Join([]string{
		k.Series, apart, fmt.Sprint(s.NewQEMU, s.UserLand, s.Pyverbs),
		strings.Join(s.Append, " "), strings.Join(s.Devices, " "),
	}, "|")
}

func (c *class) sort() {
	slices.SortStableFunc(c.waiting, func(a, b *work) int {
		return cmp.Or(last(a)-last(b), cmp.Compare(b.expected, a.expected), cmp.Compare(a.id(), b.id()))
	})
}

func last(w *work) int {
	if w.first {
		return 0
	}
	return 1
}

// done tells the queue how long work took.
func (q *queue) done(w *work, seconds float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.took += seconds
	q.expected += w.expected
}

// leaveOut takes what would end too late out of the queue.
func (q *queue) leaveOut() {
	pace := 1.0
	if q.expected > bundleSeconds { // a few short tests say nothing about it
		pace = max(pace, q.took/q.expected)
	}
	for _, c := range q.classes {
		c.waiting = slices.DeleteFunc(c.waiting, func(w *work) bool {
			seconds := w.expected
			if c.guests == 0 {
				seconds += bootSeconds
			}
			fits := share.TimeFor(time.Duration(pace * seconds * float64(time.Second)))
			if !fits {
				q.left = append(q.left, w)
			}
			return !fits
		})
	}
}

// idle reports whether nothing waits that there is time for.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveOut()
	return !slices.ContainsFunc(q.classes, func(c *class) bool { return len(c.waiting) > 0 })
}

// enter returns the class for which another guest is most useful, and counts that guest; or nil. A guest
// that runs finishes a small rest sooner than another one boots.
func (q *queue) enter() *class {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveOut()
	var best *class
	var bestEach float64
	for _, c := range q.classes {
		if len(c.waiting) == 0 {
			continue
		}
		remaining := c.remaining()
		if c.guests > 0 && (remaining < bootSeconds || len(c.waiting) == 1 && remaining < 2*bootSeconds) {
			continue
		}
		each := remaining / float64(c.guests+1)
		if c.waiting[0].first {
			each += 1e6
		}
		if best == nil || each > bestEach {
			best, bestEach = c, each
		}
	}
	if best != nil {
		best.guests++
	}
	return best
}

// take returns the next work of a class, or nil.
func (q *queue) take(c *class) *work {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveOut()
	if len(c.waiting) == 0 {
		return nil
	}
	w := c.waiting[0]
	c.waiting = c.waiting[1:]
	w.tries++
	return w
}

// giveBack returns work whose guest died. It reports false when that has happened before: the work fails then.
func (q *queue) giveBack(c *class, w *work) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.tries >= 2 {
		return false
	}
	c.waiting = append(c.waiting, w)
	c.sort()
	return true
}

// leave ends a guest of a class.
func (q *queue) leave(c *class) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.guests--
}

// peek returns what take would, or nil.
func (q *queue) peek(c *class) *work {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(c.waiting) == 0 {
		return nil
	}
	return c.waiting[0]
}

// rest takes all work that still waits.
func (q *queue) rest() (all []*work) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.classes {
		all = append(all, c.waiting...)
		c.waiting = nil
	}
	return all
}
