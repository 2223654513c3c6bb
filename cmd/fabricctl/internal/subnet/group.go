package subnet

import (
	"cmp"
	"slices"
	"strings"
)

// Group are nodes that are cabled alike: the ports of each rail hang on one leaf. Where all rails of a node hang on one
// leaf, that is the nodes of this leaf.
type Group struct {
	Nodes []*Host
	Rails []string           // in the order of their names
	Want  map[string]*Switch // leaf of each rail, where most nodes agree
	most  int                // links of most nodes
}

// Host is one node, with its ports by rail.
type Host struct {
	Name  string
	Ports map[string]*Port // those with a link
	Group *Group
}

// leaves are those of the group, in the order of rails.
func (g *Group) leaves() (out []*Switch) {
	for _, r := range g.Rails {
		if s := g.Want[r]; s != nil && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// judged tells whether there are enough nodes to know how a node of the group should be cabled.
func (g *Group) judged() bool { return len(g.Nodes) >= 3 }

func (g *Graph) hosts() (out []*Host) {
	by := map[string]*Host{}
	for _, p := range g.Ports {
		if p.Node == "" || p.Switch == nil {
			continue
		}
		h := by[p.Node]
		if h == nil {
			h = &Host{Name: p.Node, Ports: map[string]*Port{}}
			by[p.Node] = h
			out = append(out, h)
		}
		h.Ports[p.rail] = p
	}
	slices.SortFunc(out, func(a, b *Host) int { return natural(a.Name, b.Name) })
	return out
}

// pattern is how a node is cabled, and which nodes are cabled exactly so.
type pattern struct {
	want  map[string]*Switch
	hosts []*Host
	group *Group // that is named after it; nil: its nodes are in another
}

// join adds the nodes of a pattern to the group.
func (p *pattern) join(other *pattern) {
	p.group.Nodes = append(p.group.Nodes, other.hosts...)
	for _, h := range other.hosts {
		h.Group = p.group
	}
}

func patterns(hosts []*Host) []*pattern {
	by := map[string]*pattern{}
	var out []*pattern
	for _, h := range hosts {
		var key strings.Builder
		want := map[string]*Switch{}
		for _, r := range sortedKeys(h.Ports) {
			want[r] = h.Ports[r].Switch
			key.WriteString(r + "\x00" + want[r].ID + "\x00")
		}
		p := by[key.String()]
		if p == nil {
			p = &pattern{want: want}
			by[key.String()] = p
			out = append(out, p)
		}
		p.hosts = append(p.hosts, h)
	}
	// stable: patterns of as many nodes stay in the order of the nodes' names
	slices.SortStableFunc(out, func(a, b *pattern) int { return cmp.Compare(len(b.hosts), len(a.hosts)) })
	return out
}

// grouping finds groups: patterns that many nodes have are one each; a node with another pattern belongs where most of
// its cables say.
type grouping struct {
	byLeaf map[*Switch][]*pattern
}

// maxCandidates bounds how many groups a node is compared with. A leaf has few groups.
const maxCandidates = 64

func group(hosts []*Host) (out []*Group) {
	g := grouping{map[*Switch][]*pattern{}}
	list := patterns(hosts)
	for _, p := range list {
		home := g.home(p)
		if home == nil {
			home = p
			p.group = &Group{}
			out = append(out, p.group)
			for _, s := range p.want {
				if l := g.byLeaf[s]; len(l) < maxCandidates && !slices.Contains(l, p) {
					g.byLeaf[s] = append(l, p)
				}
			}
		}
		home.join(p)
	}
	for _, p := range list { // once more, now that groups are as large as they are
		if p.group == nil || len(p.group.Nodes) > len(p.hosts) {
			continue
		}
		if home := g.home(p); home != nil {
			out = slices.DeleteFunc(out, func(gr *Group) bool { return gr == p.group })
			p.group = nil
			home.join(p)
		}
	}
	for _, gr := range out {
		gr.decide()
	}
	slices.SortFunc(out, func(a, b *Group) int { return natural(a.Nodes[0].Name, b.Nodes[0].Name) })
	return out
}

// home is the pattern of the group that a pattern belongs to, or nil.
func (g *grouping) home(p *pattern) *pattern {
	var best *pattern
	var bestAgree, bestShared int
	tie := false
	seen := map[*pattern]bool{}
	for _, s := range p.want {
		for _, c := range g.byLeaf[s] {
			if seen[c] || c == p || c.group == nil {
				continue
			}
			seen[c] = true
			agree, shared := alike(p, c)
			if !fits(p, c, agree, shared) {
				continue
			}
			switch cmp.Or(cmp.Compare(agree, bestAgree), cmp.Compare(shared, bestShared)) {
			case 1:
				best, bestAgree, bestShared, tie = c, agree, shared, false
			case 0:
				tie = true
			}
		}
	}
	if tie {
		return nil // it may be a node of either group: no advice is better than a wrong one
	}
	return best
}

// alike counts the rails that hang on the same leaf in both, and the leaves that both have.
func alike(p, c *pattern) (agree, shared int) {
	count := map[*Switch]int{}
	for r, s := range c.want {
		count[s]++
		if p.want[r] == s {
			agree++
		}
	}
	for _, s := range p.want {
		if count[s] > 0 {
			count[s]--
			shared++
		}
	}
	return agree, shared
}

// fits tells whether nodes with pattern p are nodes of c's group with faults. Nodes with fewer HCAs are others: several
// that lack the same, or one that lacks half.
func fits(p, c *pattern, agree, shared int) bool {
	n, m := len(p.want), len(c.want)
	switch {
	case n < m-1 && (len(p.hosts) > 1 || n*2 <= m):
		return false
	case n > m:
		return agree == m && m > 1 // that group's nodes lack something
	case agree*2 > n:
		return true
	}
	// The same leaves in another order: a swap, if nearly all others have the one order.
	return n > 1 && n >= m-1 && shared*2 >= n && len(c.group.Nodes) >= 3 && len(c.group.Nodes) >= 3*len(p.hosts)
}

// decide finds the leaf of each rail by majority.
func (g *Group) decide() {
	slices.SortFunc(g.Nodes, func(a, b *Host) int { return natural(a.Name, b.Name) })
	votes := map[string]map[*Switch]int{}
	links := map[int]int{}
	for _, h := range g.Nodes {
		links[len(h.Ports)]++
		for r, p := range h.Ports {
			if votes[r] == nil {
				votes[r] = map[*Switch]int{}
			}
			votes[r][p.Switch]++
		}
	}
	for n, c := range links {
		if c > links[g.most] || c == links[g.most] && n > g.most {
			g.most = n
		}
	}
	g.Rails, g.Want = sortedKeys(votes), map[string]*Switch{}
	for r, v := range votes {
		all := 0
		for _, c := range v {
			all += c
		}
		for s, c := range v {
			if c*2 > all {
				g.Want[r] = s
			}
		}
	}
}
