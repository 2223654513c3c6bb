// Package subnet reads what tools tell of a fabric's cabling, and judges it: which leaf and which spine each port of an
// HCA hangs on, which cable is in the wrong place, missing or slow. Values in, values out: the same input gives
// the same
// answer in any order.
package subnet

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Bounds of what is read: the largest InfiniBand subnet has 48,000 LIDs.
const (
	maxSwitches = 50_000
	maxPorts    = 500_000
	maxLinks    = 4_000_000
)

// Graph is the cabling, as the files say that were read into it.
type Graph struct {
	Switches []*Switch
	Ports    []*Port
	Files    int

	switches map[string]*Switch
	ports    map[string]*Port
	links    int
	sa       records
}

// New is an empty graph.
func New() *Graph {
	return &Graph{switches: map[string]*Switch{}, ports: map[string]*Port{}}
}

// Switch is one switch; of a director one of its chips.
type Switch struct {
	ID    string // GUID of InfiniBand, 0x and 16 digits; LLDP: the chassis' id
	Desc  string // NodeDescription, or the system's name
	Links []Link // to other switches, by own port
	Hosts []*Port

	name   string
	level  int // 1: leaf; 0: no HCA below it
	ranked bool
}

// Link is a cable between two switches, seen from one of them.
type Link struct {
	Port   int
	To     *Switch
	ToPort int
	Rate   Rate
}

// Port is one port of an HCA.
type Port struct {
	ID         string // port GUID, 0x and 16 digits; LLDP: node and interface
	GUID       device.GUID
	Desc       string
	Number     int
	Switch     *Switch // nil: no link was seen
	SwitchPort string
	Rate       Rate
	Node       string // node of the cluster; empty: not known
	HCA        string // mlx5_0; of LLDP the interface, unless the inventory knows better
	Inventory  bool   // node and HCA come from an inventory, not from the description
	Netdev     string

	rail     string // what corresponds between nodes
	ethernet bool
}

// Rate is how a link has been trained.
type Rate struct {
	Width int     // lanes; 0: not told
	Speed string  // EDR
	Gb    float64 // Gb/s of all lanes
}

// String is the rate as ibnetdiscover prints it, with the sum.
func (r Rate) String() string {
	switch {
	case r.Gb == 0:
		return "rate unknown"
	case r.Speed == "":
		return fmt.Sprintf("%g Gb/s", r.Gb)
	}
	return fmt.Sprintf("%g Gb/s (%dx %s)", r.Gb, r.Width, r.Speed)
}

// lanes are the speeds of one lane in Gb/s, by the names that the kernel and ibnetdiscover use.
var lanes = map[string]float64{
	"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14, "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200,
}

// rateOf is a rate of a width such as 4x and a speed such as EDR.
func rateOf(width, speed string) Rate {
	n := 0
	for _, w := range []int{1, 2, 4, 8, 12} {
		if strings.EqualFold(width, fmt.Sprintf("%dx", w)) {
			n = w
		}
	}
	lane := lanes[speed]
	if n == 0 || lane == 0 {
		return Rate{}
	}
	return Rate{Width: n, Speed: speed, Gb: float64(n) * lane}
}

// Name is the node's port: gpu-1 mlx5_0:1, or what else is known of it.
func (p *Port) Name() string {
	switch {
	case p.Node == "" && p.Desc != "":
		return fmt.Sprintf("%s (%.64s) port %d", p.ID, p.Desc, p.Number)
	case p.Node == "":
		return p.ID
	}
	return p.Node + " " + p.Local()
}

// Local is the port as its node calls it.
func (p *Port) Local() string {
	if p.ethernet && p.Number == 0 {
		return p.HCA
	}
	return fmt.Sprintf("%s:%d", p.HCA, p.Number)
}

// At is where the port hangs.
func (p *Port) At() string {
	if p.Switch == nil {
		return "no switch"
	}
	return p.Switch.Name() + " port " + p.SwitchPort
}

// Name is what people call the switch, if no other is called the same, else its GUID.
func (s *Switch) Name() string { return s.name }

// Level is 1 for a leaf, 2 for what is above leaves, and so on; 0 if there is nothing below.
func (s *Switch) Level() int { return s.level }

// called is the name in a description: that of a managed switch is MF0;NAME:MODEL/U1.
func called(desc string) string {
	name := strings.TrimSpace(desc)
	if rest, ok := strings.CutPrefix(name, "MF0;"); ok {
		if before, _, ok := strings.Cut(rest, ":"); ok && before != "" {
			name = before
		}
	}
	return name
}

func (g *Graph) sw(id string) (*Switch, error) {
	if s := g.switches[id]; s != nil {
		return s, nil
	}
	if len(g.Switches) == maxSwitches {
		return nil, fmt.Errorf("there are more than %d switches", maxSwitches)
	}
	s := &Switch{ID: id}
	g.switches[id] = s
	g.Switches = append(g.Switches, s)
	return s, nil
}

func (g *Graph) port(id string) (*Port, error) {
	if p := g.ports[id]; p != nil {
		return p, nil
	}
	if len(g.Ports) == maxPorts {
		return nil, fmt.Errorf("there are more than %d ports of HCAs", maxPorts)
	}
	p := &Port{ID: id}
	g.ports[id] = p
	g.Ports = append(g.Ports, p)
	return p, nil
}

// connect notes a cable between switches, from one of its ends.
func (g *Graph) connect(from *Switch, port int, to *Switch, toPort int, r Rate) error {
	if g.links++; g.links > maxLinks {
		return fmt.Errorf("there are more than %d links", maxLinks)
	}
	from.Links = append(from.Links, Link{Port: port, To: to, ToPort: toPort, Rate: r})
	return nil
}

// finish makes of what was read one picture: links that only one end told of are told by both.
func (g *Graph) finish() {
	g.resolve()
	slices.SortFunc(g.Switches, func(a, b *Switch) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(g.Ports, func(a, b *Port) int { return strings.Compare(a.ID, b.ID) })
	type end struct {
		s    *Switch
		port int
	}
	seen := map[end]Link{}
	for _, s := range g.Switches {
		for _, l := range s.Links {
			if l.To == s && l.ToPort == l.Port {
				continue // a loop back on itself tells nothing
			}
			seen[end{s, l.Port}] = l
		}
	}
	for e, l := range seen {
		back := end{l.To, l.ToPort}
		if _, ok := seen[back]; !ok {
			seen[back] = Link{Port: l.ToPort, To: e.s, ToPort: e.port, Rate: l.Rate}
		}
	}
	for _, s := range g.Switches {
		s.Links, s.Hosts = nil, nil
	}
	for e, l := range seen {
		e.s.Links = append(e.s.Links, l)
	}
	for _, s := range g.Switches {
		slices.SortFunc(s.Links, func(a, b Link) int { return a.Port - b.Port })
	}
	g.Ports = slices.DeleteFunc(g.Ports, func(p *Port) bool { return aggregation(p.Desc) })
	for _, p := range g.Ports {
		if p.Switch != nil {
			p.Switch.Hosts = append(p.Switch.Hosts, p)
		}
	}
	g.nameSwitches()
}

// aggregation recognises the HCA that a switch has inside for SHARP: it is no host's.
func aggregation(desc string) bool { return strings.Contains(desc, "Aggregation Node") }

// identifier is what a switch without a name of its own is called: none may take the name of another.
var identifier = regexp.MustCompile(`^(0x|lldp:|id-)`)

func (g *Graph) nameSwitches() {
	count := map[string]int{}
	for _, s := range g.Switches {
		count[called(s.Desc)]++
	}
	for _, s := range g.Switches {
		s.name = called(s.Desc)
		if s.name == "" || count[s.name] > 1 || len(s.name) > 64 || identifier.MatchString(s.name) {
			s.name = s.ID
		}
	}
}
