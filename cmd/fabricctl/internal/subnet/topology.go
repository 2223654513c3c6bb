package subnet

import (
	"fmt"
	"slices"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// Topology is where everything hangs, and what is wrong with it.
type Topology struct {
	// Levels of switches; 0 where they are not judged
	Levels   int              `json:"levels"`
	Reason   string           `json:"reason"` // why the levels are so, or why they are not judged
	Notes    []string         `json:"notes"`
	Switches []SwitchPlace    `json:"switches"`
	Groups   []GroupPlace     `json:"groups"`
	Ports    []PortPlace      `json:"ports"`
	Nodes    []NodePlace      `json:"nodes"`
	Findings []doctor.Finding `json:"findings"`
}

// SwitchPlace is one switch.
type SwitchPlace struct {
	ID          string `json:"id"`   // GUID, or the chassis' id of LLDP
	Name        string `json:"name"` // its GUID where it has no name of its own
	Description string `json:"description,omitempty"`
	Level       int    `json:"level"` // 1: leaf; 0: no HCA below it, or not judged
	Hosts       int    `json:"hosts"` // ports of HCAs
	Uplinks     int    `json:"uplinks"`
	// DownGb is the bandwidth to HCAs in Gb/s
	DownGb float64 `json:"downGb,omitempty"`
	UpGb   float64 `json:"upGb,omitempty"` // to the next level, in Gb/s
	// Above are the names of the switches of the next level, and how many links there are to each.
	Above []Uplink `json:"above,omitempty"`
	Bad   bool     `json:"bad,omitempty"` // it lacks a link
}

// Uplink is the links of a switch to one of the next level.
type Uplink struct {
	Switch string `json:"switch"`
	Links  int    `json:"links"`
}

// GroupPlace are nodes that are cabled alike.
type GroupPlace struct {
	Name  string     `json:"name"` // of its first leaf
	Nodes []string   `json:"nodes"`
	Rails []RailLeaf `json:"rails"`
}

// RailLeaf is the leaf of one rail of a group.
type RailLeaf struct {
	Rail string `json:"rail"`
	Leaf string `json:"leaf,omitempty"` // empty: the nodes do not agree
}

// PortPlace is one port of an HCA.
type PortPlace struct {
	Node     string   `json:"node,omitempty"` // empty: not known
	Port     string   `json:"port"`           // mlx5_0:1
	ID       string   `json:"id"`             // port GUID
	Leaf     string   `json:"leaf,omitempty"` // empty: no link
	LeafPort string   `json:"leafPort,omitempty"`
	Spines   []string `json:"spines,omitempty"` // switches above the leaf
	RateGb   float64  `json:"rateGb,omitempty"`
	Rate     string   `json:"rate,omitempty"`
	Wanted   string   `json:"wanted,omitempty"` // leaf where it should be, if that is another one
}

// NodePlace is where a node is, for schedulers.
type NodePlace struct {
	Node      string `json:"node"`
	Inventory bool   `json:"inventory"` // its name comes from an inventory, not from descriptions in the fabric
	// Tiers are the domains that the node is in, the nearest first: its group or leaf, then the spines that join
	// leaves, and so on.
	Tiers []Tier `json:"tiers"`
	// Faults are what is wrong with its cables, shorter than in the findings.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is what is wrong with one cable of a node.
type Fault struct {
	Text string `json:"text"`
	Leaf string `json:"leaf,omitempty"` // where the cable is now
}

// Tier is one domain: nodes that share it reach each other without a higher switch.
type Tier struct {
	Name string `json:"name"` // of its switch of that level with the smallest GUID
	ID   string `json:"id"`   // its GUID
}

// Judge finds out where everything hangs. The inventory is what nodes say of their ports, as far as that is known.
func (g *Graph) Judge(inventory []topology.Port) *Topology {
	out := &Topology{Findings: g.Identify(inventory)}
	tree := g.rank()
	hosts := g.hosts()
	groups := group(hosts)
	wrong := findMisplaced(groups)
	faults := map[string][]Fault{}
	for _, m := range wrong {
		faults[m.p.Node] = append(
			faults[m.p.Node],
			Fault{m.p.Local() + " should be on " + m.want.Name(), m.p.Switch.Name()},
		)
	}
	for _, m := range wrong[:min(len(wrong), maxFindings)] {
		out.add(m.finding())
	}
	lacking := g.findMissing(groups, inventory)
	for _, m := range lacking[:min(len(lacking), maxFindings)] {
		out.add(m.finding())
	}
	for _, m := range lacking {
		faults[m.node] = append(faults[m.node], Fault{Text: m.local + " has no link"})
	}
	var short map[*Switch]bool
	if tree.Is {
		var up []doctor.Finding
		up, short = findUplinks(g.peers(tree, groups))
		out.add(up...)
		out.add(findOversubscribed(g.Switches, short)...)
		for i, l := range tree.Odd {
			out.add(
				doctor.Fabric("fabric-shortcut", doctor.Warn, fmt.Sprintf("%s port %d to %s port %d, both of level %d",
					tree.From[i].Name(), l.Port, l.To.Name(), l.ToPort, l.To.level)),
			)
		}
	}
	slow := g.findSlow(groups, faults)
	out.add(slow[:min(len(slow), maxFindings)]...)
	isolated := g.findIsolated(inventory)
	out.add(isolated[:min(len(isolated), maxFindings)]...)
	for what, n := range map[string]int{"cables are on the wrong leaf": len(wrong), "cables are missing": len(lacking),
		"links are slow": len(slow), "ports or parts are isolated": len(isolated)} {
		if n > maxFindings {
			out.Notes = append(out.Notes, fmt.Sprintf("%d %s; %d are listed", n, what, maxFindings))
		}
	}
	slices.Sort(out.Notes)
	out.describe(g, tree, groups)
	out.place(g, tree, groups, hosts, wrong, short)
	for i := range out.Nodes {
		out.Nodes[i].Faults = faults[out.Nodes[i].Node]
	}
	doctor.Sort(out.Findings)
	return out
}

func (t *Topology) add(f ...doctor.Finding) { t.Findings = append(t.Findings, f...) }

// describe says what the fabric is.
func (t *Topology) describe(g *Graph, tree Tree, groups []*Group) {
	t.Levels, t.Reason = tree.Levels, tree.Reason
	switch {
	case !tree.Is:
		t.Levels = 0
		t.Notes = append(t.Notes, "levels above the leaves, uplinks and oversubscription are not judged")
	case !g.infiniband():
		t.Levels, t.Reason = 1, "LLDP of nodes tells the leaves, and nothing of what is above them"
	case tree.Levels <= 1:
		t.Reason = "no switch is above the leaves"
	default:
		t.Reason = "every link between switches goes one level up or down"
	}
	judged, unnamed, alone := 0, 0, 0
	for _, gr := range groups {
		if gr.judged() {
			judged++
		} else {
			alone += len(gr.Nodes)
		}
	}
	for _, p := range g.Ports {
		if p.Node == "" {
			unnamed++
		}
	}
	if alone > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("nodes with fewer than two others that are cabled like them: %d; "+
			"whether their cables are right is not judged", alone))
	}
	if unnamed > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("ports of HCAs of no node that is known: %d; give recordings, or "+
			"--cluster, or run rdma-ndd on the nodes", unnamed))
	}
	if len(t.Findings) == 0 && judged > 0 {
		t.add(
			doctor.Fabric("fabric-wrong-rail", doctor.OK, fmt.Sprintf("%d groups of nodes, each cabled alike", judged)),
		)
	}
}

// place lists switches, groups, ports and nodes.
func (t *Topology) place(g *Graph, tree Tree, groups []*Group, hosts []*Host, wrong []*misplaced,
	short map[*Switch]bool) {
	spines := map[*Switch][]string{}
	for _, s := range g.Switches {
		p := SwitchPlace{
			ID:          s.ID,
			Name:        s.Name(),
			Description: s.Desc,
			Level:       s.level,
			Hosts:       len(s.Hosts),
			Bad:         short[s],
		}
		if !tree.Is && p.Level > 1 {
			p.Level = 0
		}
		if tree.Is {
			n, _, to := s.uplinks()
			p.Uplinks = n
			p.DownGb, p.UpGb = s.bandwidth()
			for up, c := range to {
				p.Above = append(p.Above, Uplink{up.Name(), c})
				spines[s] = append(spines[s], up.Name())
			}
			slices.SortFunc(p.Above, func(a, b Uplink) int { return natural(a.Switch, b.Switch) })
			slices.SortFunc(spines[s], natural)
		}
		t.Switches = append(t.Switches, p)
	}
	slices.SortFunc(t.Switches, func(a, b SwitchPlace) int {
		if a.Level != b.Level {
			return a.Level - b.Level
		}
		return natural(a.Name, b.Name)
	})
	wanted := map[*Port]string{}
	for _, m := range wrong {
		wanted[m.p] = m.want.Name()
	}
	for _, p := range g.Ports {
		at := PortPlace{Node: p.Node, Port: p.Local(), ID: p.ID, RateGb: p.Rate.Gb, Wanted: wanted[p]}
		if p.Node == "" {
			at.Port = fmt.Sprintf("port %d of %.64q", p.Number, p.Desc)
		}
		if p.Rate.Speed != "" {
			at.Rate = fmt.Sprintf("%dx %s", p.Rate.Width, p.Rate.Speed)
		}
		if p.Switch != nil {
			at.Leaf, at.LeafPort, at.Spines = p.Switch.Name(), p.SwitchPort, spines[p.Switch]
		}
		t.Ports = append(t.Ports, at)
	}
	slices.SortStableFunc(t.Ports, func(a, b PortPlace) int { return natural(a.Node+" "+a.Port, b.Node+" "+b.Port) })
	for _, gr := range groups {
		t.Groups = append(t.Groups, gr.place())
	}
	slices.SortFunc(
		t.Groups,
		func(a, b GroupPlace) int { return natural(a.Name+" "+a.Nodes[0], b.Name+" "+b.Nodes[0]) },
	)
	t.nodes(g, tree, groups, hosts)
}

func (g *Group) place() GroupPlace {
	var p GroupPlace
	for _, h := range g.Nodes {
		p.Nodes = append(p.Nodes, h.Name)
	}
	for _, r := range g.Rails {
		leaf := ""
		if s := g.Want[r]; s != nil {
			leaf = s.Name()
			if p.Name == "" {
				p.Name = leaf
			}
		}
		p.Rails = append(p.Rails, RailLeaf{r, leaf})
	}
	return p
}

// nodes finds the domains of each node.
func (t *Topology) nodes(g *Graph, tree Tree, groups []*Group, hosts []*Host) {
	levels := g.domains(tree, groups)
	for _, h := range hosts {
		leaves := h.Group.leaves()
		if len(leaves) == 0 {
			continue
		}
		n := NodePlace{Node: h.Name, Inventory: true}
		for _, p := range h.Ports {
			n.Inventory = n.Inventory && p.Inventory
		}
		for i := range levels {
			at := levels[i].of(leaves[0])
			n.Tiers = append(n.Tiers, Tier{at.Name(), at.ID})
		}
		t.Nodes = append(t.Nodes, n)
	}
}
