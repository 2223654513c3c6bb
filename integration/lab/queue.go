package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// work is what a guest runs in one process: a top-level guest test, or a piece of one.
type work struct {
	kernel        Kernel
	suite         Suite
	test          string
	piece, pieces int     // piece 1 to pieces of a test that is dealt to several guests; 1 of 1: the whole test
	expected      float64 // seconds in the guest, from an earlier run
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

// queue hands out work to guests. Guests of one machine specification share their work.
type queue struct {
	mu      sync.Mutex
	classes []*class
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
	return strings.Join([]string{
		k.Series, fmt.Sprint(s.NewQEMU, s.UserLand, s.Pyverbs),
		strings.Join(s.Append, " "), strings.Join(s.Devices, " "),
	}, "|")
}

func (c *class) sort() {
	slices.SortStableFunc(c.waiting, func(a, b *work) int {
		return cmp.Or(cmp.Compare(b.expected, a.expected), cmp.Compare(a.id(), b.id()))
	})
}

// enter returns the class for which another guest is most useful, and counts that guest; nil if there is none. A guest
// that runs finishes a small rest sooner than another one boots.
func (q *queue) enter() *class {
	q.mu.Lock()
	defer q.mu.Unlock()
	var best *class
	var bestShare float64
	for _, c := range q.classes {
		if len(c.waiting) == 0 {
			continue
		}
		remaining := c.remaining()
		if c.guests > 0 && (remaining < bootSeconds || len(c.waiting) == 1 && remaining < 2*bootSeconds) {
			continue
		}
		if share := remaining / float64(c.guests+1); best == nil || share > bestShare {
			best, bestShare = c, share
		}
	}
	if best != nil {
		best.guests++
	}
	return best
}

// take returns the next work of a class, nil if there is none.
func (q *queue) take(c *class) *work {
	q.mu.Lock()
	defer q.mu.Unlock()
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

// peek returns what take would, nil if there is none.
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
