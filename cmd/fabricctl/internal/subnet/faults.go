package subnet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// misplaced is a port on another leaf than the same rail of its group.
type misplaced struct {
	p    *Port
	want *Switch
	with *misplaced // the other half of a swap
}

// findMisplaced finds the ports that hang on another leaf than those of their group, and what was swapped.
func findMisplaced(groups []*Group) []*misplaced {
	var list []*misplaced
	for _, gr := range groups {
		if !gr.judged() {
			continue
		}
		for _, h := range gr.Nodes {
			for _, r := range gr.Rails {
				if p := h.Ports[r]; p != nil && gr.Want[r] != nil && gr.Want[r] != p.Switch {
					list = append(list, &misplaced{p: p, want: gr.Want[r]})
				}
			}
		}
	}
	type way struct{ at, want *Switch }
	open := map[way][]*misplaced{}
	for _, m := range list {
		w := way{m.p.Switch, m.want}
		open[w] = append(open[w], m)
	}
	for _, same := range []bool{true, false} { // two cables of one node are swapped more easily than of two
		for _, m := range list {
			if m.with != nil {
				continue
			}
			for _, o := range open[way{m.want, m.p.Switch}] {
				if o.with == nil && o != m && (!same || o.p.Node == m.p.Node) {
					m.with, o.with = o, m
					break
				}
			}
		}
	}
	return list
}

func (m *misplaced) finding() doctor.Finding {
	text := fmt.Sprintf("%s is on %s, and the same port of nodes cabled like it is on %s", m.p.Name(), m.p.At(),
		m.want.Name())
	if m.with != nil {
		text += fmt.Sprintf(": swap its cable with that of %s on %s", m.with.p.Name(), m.with.p.At())
	}
	return doctor.Fabric("fabric-wrong-rail", doctor.Fail, text)
}

// missing is a link that a node lacks, and its peers have.
type missing struct {
	node, rail, local string
	leaf              *Switch
	why               string // what the inventory says of the port
	have, of          int
}

// findMissing finds nodes with fewer links than their peers. A node that has as many, on other ports, is not broken:
// sites use one port of a card, and not the same everywhere.
func (g *Graph) findMissing(groups []*Group, inventory []topology.Port) (list []missing) {
	owned := map[string]map[string]*topology.Port{}
	for i := range inventory {
		p := &inventory[i]
		if owned[p.Node] == nil {
			owned[p.Node] = map[string]*topology.Port{}
		}
		owned[p.Node][p.Name()] = p
		owned[p.Node][fmt.Sprintf("%s:%d", p.PCI, p.Port)] = p
	}
	for _, gr := range groups {
		if !gr.judged() {
			continue
		}
		have := map[string]int{}
		local := map[string]string{}
		for _, h := range gr.Nodes {
			for r, p := range h.Ports {
				have[r]++
				local[r] = p.Local()
			}
		}
		for _, h := range gr.Nodes {
			for _, r := range gr.Rails {
				if h.Ports[r] != nil || len(h.Ports) >= gr.most || have[r]*3 < len(gr.Nodes)*2 {
					continue
				}
				m := missing{node: h.Name, rail: r, local: local[r], leaf: gr.Want[r], have: have[r], of: len(gr.Nodes)}
				if ports := owned[h.Name]; ports != nil {
					p := ports[r]
					if p == nil {
						continue // it has no such port
					}
					m.local, m.why = p.Name(), fmt.Sprintf(
						", its inventory says %s (physical state %s)",
						p.State,
						p.Phys,
					)
				}
				list = append(list, m)
			}
		}
	}
	return list
}

func (m *missing) finding() doctor.Finding {
	where := ""
	if m.leaf != nil {
		where = ", on " + m.leaf.Name()
	}
	return doctor.Fabric("fabric-cable-missing", doctor.Fail, fmt.Sprintf(
		"%s %s has no link%s: %d of %d nodes that are cabled alike have one%s",
		m.node,
		m.local,
		m.why,
		m.have,
		m.of,
		where,
	))
}

// tally counts values, and finds the one that most have, if two of three have it and there are three at least.
func tally[K comparable](values []K) (most K, count int, ok bool) {
	by := map[K]int{}
	for _, v := range values {
		if by[v]++; by[v] > count {
			most, count = v, by[v]
		}
	}
	return most, count, len(values) >= 3 && count*3 >= len(values)*2
}

// peers are switches that should have the same links upwards: those of one level, of leaves those that the nodes of
// groups hang on, and the others.
func (g *Graph) peers(t Tree, groups []*Group) (out [][]*Switch) {
	compute := map[*Switch]bool{}
	for _, gr := range groups {
		if gr.judged() {
			for _, s := range gr.leaves() {
				compute[s] = true
			}
		}
	}
	by := make([][]*Switch, t.Levels+1)
	for _, s := range g.Switches {
		if at := s.level; at > 1 && at < t.Levels || compute[s] {
			by[at] = append(by[at], s)
		} else if at == 1 {
			by[0] = append(by[0], s)
		}
	}
	for _, list := range by {
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	return out
}

func (s *Switch) uplinks() (n int, gb float64, to map[*Switch]int) {
	to = map[*Switch]int{}
	for _, l := range s.Links {
		if l.To.level == s.level+1 {
			n++
			gb += l.Rate.Gb
			to[l.To]++
		}
	}
	return n, gb, to
}

// findUplinks finds switches with fewer uplinks than their peers. It returns which ones.
func findUplinks(peers [][]*Switch) (found []doctor.Finding, short map[*Switch]bool) {
	short = map[*Switch]bool{}
	for _, list := range peers {
		counts := make([]int, len(list))
		each := map[*Switch][]int{} // of the switch above: links to those that it has
		for i, s := range list {
			n, _, to := s.uplinks()
			counts[i] = n
			for up, c := range to {
				each[up] = append(each[up], c)
			}
		}
		usual, have, ok := tally(counts)
		if !ok {
			continue
		}
		for i, s := range list {
			if counts[i] >= usual {
				continue
			}
			short[s] = true
			found = append(found, doctor.Fabric("fabric-cable-missing", doctor.Fail, fmt.Sprintf(
				"%s has %d uplinks: %d of %d switches like it have %d%s", s.Name(), counts[i], have, len(list), usual,
				deficits(s, each, len(list)))))
		}
	}
	return found, short
}

// deficits says to which switches links are missing.
func deficits(s *Switch, each map[*Switch][]int, peers int) string {
	_, _, to := s.uplinks()
	var list []string
	for up, counts := range each {
		usual, have, ok := tally(counts)
		if c := to[up]; ok && c < usual && have*3 >= peers*2 {
			list = append(list, fmt.Sprintf("%d of %d to %s", c, usual, up.Name()))
		}
	}
	slices.SortFunc(list, natural)
	if len(list) == 0 {
		return ""
	}
	const most = 8
	if len(list) > most {
		list = append(list[:most], fmt.Sprintf("and %d more", len(list)-most))
	}
	return "; it has " + strings.Join(list, ", ")
}

// findSlow finds links that run slower than those they compare with: of nodes the same rail in the group, of switches
// the links between the same levels.
func (g *Graph) findSlow(groups []*Group, faults map[string][]Fault) (found []doctor.Finding) {
	slow := func(what string, r Rate, usual Rate, have, of int) {
		found = append(found, doctor.Fabric("fabric-link-slow", doctor.Fail, fmt.Sprintf(
			"%s runs at %s: %d of %d links like it at %s", what, r, have, of, usual)))
	}
	for _, gr := range groups {
		for _, rail := range gr.Rails {
			var rates []Rate
			for _, h := range gr.Nodes {
				if p := h.Ports[rail]; p != nil && p.Rate.Gb > 0 {
					rates = append(rates, p.Rate)
				}
			}
			usual, have, ok := tally(rates)
			for _, h := range gr.Nodes {
				if p := h.Ports[rail]; ok && p != nil && p.Rate.Gb > 0 && p.Rate.Gb < usual.Gb {
					slow(p.Name()+" on "+p.At(), p.Rate, usual, have, len(rates))
					faults[h.Name] = append(
						faults[h.Name],
						Fault{p.Local() + " runs at " + p.Rate.String(), p.Switch.Name()},
					)
				}
			}
		}
	}
	rates := map[[2]int][]Rate{}
	each := func(f func(s *Switch, l Link, class [2]int)) {
		for _, s := range g.Switches {
			for _, l := range s.Links {
				if class := [2]int{s.level, l.To.level}; l.Rate.Gb > 0 &&
					(s.level < l.To.level || s.level == l.To.level && s.ID < l.To.ID) {
					f(s, l, class)
				}
			}
		}
	}
	each(func(_ *Switch, l Link, class [2]int) { rates[class] = append(rates[class], l.Rate) })
	usual, have := map[[2]int]Rate{}, map[[2]int]int{}
	for class, list := range rates {
		if r, n, ok := tally(list); ok {
			usual[class], have[class] = r, n
		}
	}
	each(func(s *Switch, l Link, class [2]int) {
		if l.Rate.Gb < usual[class].Gb {
			slow(fmt.Sprintf("%s port %d to %s port %d", s.Name(), l.Port, l.To.Name(), l.ToPort), l.Rate, usual[class],
				have[class], len(rates[class]))
		}
	})
	return found
}

// findOversubscribed says how many leaves have less bandwidth up than down, in one finding per ratio. Leaves that lack
// a cable have a finding for that.
func findOversubscribed(switches []*Switch, short map[*Switch]bool) (found []doctor.Finding) {
	const tolerated = 1.1 // a leaf of 40 ports cannot be divided better than 21:19
	by := map[string][]string{}
	for _, s := range switches {
		down, up := s.bandwidth()
		if s.level == 1 && down > 0 && up > 0 && down/up > tolerated && !short[s] {
			ratio := fmt.Sprintf("%.3g:1", down/up)
			by[ratio] = append(by[ratio], fmt.Sprintf("%s (%g Gb/s to nodes, %g Gb/s up)", s.Name(), down, up))
		}
	}
	for _, ratio := range sortedKeys(by) {
		list := by[ratio]
		slices.SortFunc(list, natural)
		const most = 4
		more := ""
		if len(list) > most {
			more = fmt.Sprintf(" and %d more", len(list)-most)
		}
		found = append(found, doctor.Fabric("fabric-oversubscribed", doctor.Warn, fmt.Sprintf("%s on %d leaves: %s%s",
			ratio, len(list), strings.Join(list[:min(most, len(list))], ", "), more)))
	}
	return found
}

// bandwidth is that of the leaf to HCAs and to other switches, in Gb/s.
func (s *Switch) bandwidth() (down, up float64) {
	for _, p := range s.Hosts {
		down += p.Rate.Gb
	}
	_, up, _ = s.uplinks()
	return down, up
}

// findIsolated finds parts without a cable to the rest of the same file, and nodes that the files do not have.
func (g *Graph) findIsolated(inventory []topology.Port) (found []doctor.Finding) {
	parts := g.components()
	hosts := func(list []*Switch) (n int) {
		for _, s := range list {
			n += len(s.Hosts)
		}
		return n
	}
	if len(parts) > g.Files && g.infiniband() { // ibnetdiscover sees what cables lead to: a file is one part
		for _, p := range parts[g.Files:] {
			found = append(
				found,
				doctor.Fabric("fabric-isolated", doctor.Fail, fmt.Sprintf("%s, with %d switches and %d "+
					"ports of HCAs, has no link to the rest", p[0].Name(), len(p), hosts(p))),
			)
		}
	}
	for _, p := range g.Ports {
		if p.Switch == nil && p.Node != "" {
			found = append(found, doctor.Fabric("fabric-isolated", doctor.Warn, p.Name()+" hangs on no switch"))
		}
	}
	seen := map[device.GUID]bool{}
	for _, p := range g.Ports {
		seen[p.GUID] = true
	}
	gone, total := map[string]int{}, map[string]int{}
	for i := range inventory {
		p := &inventory[i]
		if p.LinkLayer == device.InfiniBand && p.State == device.PortActive && p.Kind == "PF" && g.infiniband() {
			if total[p.Node]++; !seen[p.GUID] {
				gone[p.Node]++
			}
		}
	}
	for _, n := range sortedKeys(gone) {
		found = append(
			found,
			doctor.Fabric("fabric-isolated", doctor.Warn, fmt.Sprintf("%s: %d of %d Active InfiniBand "+
				"ports of its inventory are not in what the fabric's tools saw", n, gone[n], total[n])),
		)
	}
	return found
}

// infiniband tells whether what was read is of InfiniBand.
func (g *Graph) infiniband() bool {
	return slices.ContainsFunc(g.Ports, func(p *Port) bool { return !p.ethernet })
}
