// Package prefer decides which of a node's devices a container gets where kubelet may choose: those that are nearest to
// the GPUs of its pod, or else to each other. It is pure: what kubelet has said and where things are come in, ids go
// out.
package prefer

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Unit is one thing that kubelet hands out: a device, or a share of one.
type Unit struct {
	ID    string
	Slot  string // of the card: units of one slot share its port
	Place node.Place
}

// Choose returns size ids: all of must, and the best of available. units are in the order of the rails. The first rule
// that tells two choices apart decides:
//
//  1. no card gives more units than it has to: they share its port
//  2. each GPU has a unit as near as possible
//  3. each unit has a GPU as near as possible
//  4. the units are as near to each other as possible
//  5. from cards of which more is free
//  6. in the order of the rails
//
// An id without a unit is taken last: its device has left the node. The result is shorter than size only if there are
// not that many ids, and longer only if must is.
func Choose(units []Unit, available, must []string, size int, gpus []node.Place) []string {
	out := set(must)
	rest := slices.DeleteFunc(set(available), func(id string) bool { return slices.Contains(out, id) })
	c := newChoice(units, rest, out, gpus)
	out = append(out, c.best(size-len(out))...)
	rest = slices.DeleteFunc(rest, func(id string) bool { return slices.Contains(out, id) })
	return append(out, rest[:max(0, min(size-len(out), len(rest)))]...)
}

func set(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// choice is what can be chosen from, card by card: units of one card are at one place, but for the last step down the
// PCI tree.
type choice struct {
	slots  []string
	free   [][]string // of each slot, in the order of the units
	must   []int      // of each slot, how many units are chosen already
	apart  [][]int    // distances of slots
	to     [][]int    // distances of slots and GPUs
	places []node.Place
}

func newChoice(units []Unit, free, must []string, gpus []node.Place) *choice {
	c := &choice{}
	for i := range units {
		u := &units[i]
		isFree, isMust := slices.Contains(free, u.ID), slices.Contains(must, u.ID)
		if !isFree && !isMust {
			continue
		}
		s := slices.Index(c.slots, u.Slot)
		if s < 0 || u.Slot == "" {
			s = len(c.slots)
			c.slots, c.places = append(c.slots, u.Slot), append(c.places, u.Place)
			c.free, c.must = append(c.free, nil), append(c.must, 0)
		}
		if isMust {
			c.must[s]++
		} else {
			c.free[s] = append(c.free[s], u.ID)
		}
	}
	for _, p := range c.places {
		c.apart, c.to = append(c.apart, distances(p, c.places)), append(c.to, distances(p, gpus))
	}
	return c
}

func distances(from node.Place, to []node.Place) []int {
	out := make([]int, len(to))
	for i, p := range to {
		out[i] = int(from.Distance(p))
	}
	return out
}

// most bounds how many choices are compared: 8 of 16 rails are 12,870.
const most = 20000

// best returns up to n free ids, by rule 1 one of each card in turn. Who has the last turn is decided by the other
// rules.
func (c *choice) best(n int) (out []string) {
	taken := slices.Clone(c.must)
	last := c.candidates(taken)
	for ; len(last) > 0 && n >= len(last); last = c.candidates(taken) {
		for _, s := range last {
			taken[s]++
		}
		n -= len(last)
	}
	if n > 0 && len(last) > 0 {
		if choices(len(last), n) <= most {
			taken = c.compare(taken, last, n)
		} else {
			taken = c.grow(taken, last, n)
		}
	}
	for s, n := range taken {
		out = append(out, c.free[s][:n-c.must[s]]...)
	}
	return out
}

// choices is how many choices of n there are; more than most: too many.
func choices(of, n int) int {
	out := 1
	for i := range min(n, of-n) {
		if out = out * (of - i) / (i + 1); out > most {
			break
		}
	}
	return out
}

// compare takes n of the slots, and returns the best of all such choices.
func (c *choice) compare(taken, slots []int, n int) []int {
	if n == 0 {
		return slices.Clone(taken)
	}
	var best []int
	for i := range slots[:len(slots)-n+1] {
		taken[slots[i]]++
		best = c.better(best, c.compare(taken, slots[i+1:], n-1))
		taken[slots[i]]--
	}
	return best
}

// grow is compare for too many choices: it begins with each of the slots, and goes on with what is best then.
func (c *choice) grow(taken, slots []int, n int) []int {
	var best []int
	for _, first := range slots {
		t := slices.Clone(taken)
		t[first]++
		for range n - 1 {
			var next []int
			for _, s := range c.candidates(t) {
				t[s]++
				next = c.better(next, slices.Clone(t))
				t[s]--
			}
			t = next
		}
		best = c.better(best, t)
	}
	return best
}

// better returns the better one of two choices, a if they are equal; nil is no choice.
func (c *choice) better(a, b []int) []int {
	if a == nil || slices.Compare(c.cost(b), c.cost(a)) < 0 {
		return b
	}
	return a
}

// candidates are the slots of which fewest units are taken, among those that have any left.
func (c *choice) candidates(taken []int) (out []int) {
	for s := range c.slots {
		if taken[s]-c.must[s] == len(c.free[s]) {
			continue
		}
		if len(out) > 0 && taken[s] < taken[out[0]] {
			out = nil
		}
		if len(out) == 0 || taken[s] == taken[out[0]] {
			out = append(out, s)
		}
	}
	return out
}

// cost is what the rules 2 to 6 say of a choice, in this order: less is better.
func (c *choice) cost(taken []int) []int {
	var ofGPUs, ofUnits, apart, free int
	order := make([]int, len(taken))
	nearest := slices.Repeat([]int{int(node.SYS) + 1}, c.gpus())
	for s, n := range taken {
		order[s] = -n
		if n == 0 {
			continue
		}
		for g, d := range c.to[s] {
			nearest[g] = min(nearest[g], d)
		}
		if len(c.to[s]) > 0 {
			ofUnits += n * slices.Min(c.to[s])
		}
		for t, m := range taken[:s] {
			apart += n * m * c.apart[s][t]
		}
		free += n * len(c.free[s])
	}
	for _, d := range nearest {
		ofGPUs += d
	}
	return append([]int{ofGPUs, ofUnits, apart, -free}, order...)
}

func (c *choice) gpus() int {
	if len(c.to) == 0 {
		return 0
	}
	return len(c.to[0])
}
