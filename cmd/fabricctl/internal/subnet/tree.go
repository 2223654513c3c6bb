package subnet

import (
	"cmp"
	"fmt"
	"slices"
)

// Tree is what the switches form.
type Tree struct {
	Levels int    // 1: no switch above the leaves
	Is     bool   // every link between switches goes one level up or down, but for Odd
	Reason string // why it is not a tree
	Odd    []Link // links within a level, few enough to be mistakes; each with its From
	From   []*Switch
}

// rank gives every switch its level: leaves have HCAs, and what is above them is as high as the way to the nearest leaf
// is long.
func (g *Graph) rank() Tree {
	var queue []*Switch
	for _, s := range g.Switches {
		if s.ranked = leaf(s); s.ranked {
			queue = append(queue, s)
		}
	}
	for _, s := range queue {
		s.level = 1
	}
	t := Tree{Is: true}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		t.Levels = max(t.Levels, s.level)
		for _, l := range s.Links {
			if !l.To.ranked {
				l.To.ranked, l.To.level = true, s.level+1
				queue = append(queue, l.To)
			}
		}
	}
	links := 0
	for _, s := range g.Switches {
		for _, l := range s.Links {
			if !s.ranked || l.To.ID < s.ID || l.To == s && l.ToPort < l.Port {
				continue // seen from the other end
			}
			if links++; s.level == l.To.level {
				t.Odd, t.From = append(t.Odd, l), append(t.From, s)
			}
		}
	}
	const few = 50 // one link of so many within a level is a mistake, more are a design
	if len(t.Odd) > 0 && (t.Levels < 2 || len(t.Odd)*few > links) {
		t.Is = false
		t.Reason = fmt.Sprintf("%d of %d links between switches are within a level, such as %s port %d to %s port %d: "+
			"a ring, torus, mesh or dragonfly", len(t.Odd), links, t.From[0].Name(), t.Odd[0].Port, t.Odd[0].To.Name(),
			t.Odd[0].ToPort)
		t.Odd, t.From = nil, nil
	}
	return t
}

// leaf tells a switch that nodes hang on from one that has only the machine of the subnet manager.
func leaf(s *Switch) bool {
	const service = 2
	if len(s.Hosts) == 0 {
		return false
	}
	if len(s.Hosts) > service {
		return true
	}
	busy := map[*Switch]bool{}
	for _, l := range s.Links {
		if len(l.To.Hosts) > service {
			busy[l.To] = true
		}
	}
	return len(busy) < 2
}

// sets are disjoint sets of switches.
type sets map[*Switch]*Switch

func (u sets) find(s *Switch) *Switch {
	for u[s] != nil && u[s] != s {
		if next := u[u[s]]; next != nil {
			u[s] = next
		}
		s = u[s]
	}
	return s
}

// join makes one set of two. The one whose switch has the smaller GUID gives its name, so that names stay.
func (u sets) join(a, b *Switch) {
	a, b = u.find(a), u.find(b)
	if a == b {
		return
	}
	if b.ID < a.ID {
		a, b = b, a
	}
	u[b] = a
}

// domain is one level of domains, and what each is called after: of its switches of that level the one with the
// smallest
// GUID.
type domain struct {
	sets
	head map[*Switch]*Switch
}

// of is the switch that the domain of a leaf is called after.
func (d *domain) of(leaf *Switch) *Switch {
	root := d.find(leaf)
	if s := d.head[root]; s != nil {
		return s
	}
	return root
}

// domains are, for each level, the set that each leaf is in: those that reach each other without going higher. Leaves
// of one group are one place at every level: its nodes hang on all of them.
func (g *Graph) domains(t Tree, groups []*Group) []domain {
	var out []domain
	for level := 1; level <= max(1, t.Levels); level++ {
		u := sets{}
		for _, gr := range groups {
			for _, s := range gr.leaves() {
				u.join(s, gr.leaves()[0])
			}
		}
		for _, s := range g.Switches {
			for _, l := range s.Links {
				if t.Is && s.ranked && max(s.level, l.To.level) <= level && level > 1 && s.level != l.To.level {
					u.join(s, l.To)
				}
			}
		}
		d := domain{u, map[*Switch]*Switch{}}
		for _, s := range g.Switches { // in the order of their GUIDs
			if root := u.find(s); s.level == level && level > 1 && d.head[root] == nil {
				d.head[root] = s
			}
		}
		out = append(out, d)
	}
	return out
}

// components are the parts of the fabric that cables connect, the largest first.
func (g *Graph) components() [][]*Switch {
	u := sets{}
	for _, s := range g.Switches {
		for _, l := range s.Links {
			u.join(s, l.To)
		}
	}
	by := map[*Switch][]*Switch{}
	for _, s := range g.Switches {
		by[u.find(s)] = append(by[u.find(s)], s)
	}
	var out [][]*Switch
	for _, list := range by {
		out = append(out, list)
	}
	slices.SortFunc(out, func(a, b []*Switch) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].ID, b[0].ID))
	})
	return out
}
