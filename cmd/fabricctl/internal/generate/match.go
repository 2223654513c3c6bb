package generate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Match is the match of a Fabric that fits the devices of a network, and no other one of the nodes that were looked at.
type Match struct {
	LinkLayer device.LinkLayer
	RateGb    int // 0: any
	Prefix    string
	Rail      int      // -1: any
	Devices   []string // PCI addresses; none: any
	Doubts    []string // where it is not so
}

// maxPatterns is how many patterns a Fabric may have.
const maxPatterns = 64

// portsOf are the ports that may be given to pods, by node, in the order of their addresses: the agent looks at port 1
// of each device, and the node policy keeps bonds and the default route on the host.
type portsOf map[string][]topology.Port

func devices(nodes []*node.Node) portsOf {
	out := portsOf{}
	for _, n := range nodes {
		for _, p := range n.Ports() {
			if p.Kind != topology.Soft && p.Bond == "" && !p.Primary && p.Port <= 1 {
				out[n.Name] = append(out[n.Name], p)
			}
		}
		slices.SortFunc(out[n.Name], func(a, b topology.Port) int {
			return cmp.Or(strings.Compare(a.PCI, b.PCI), strings.Compare(a.HCA, b.HCA))
		})
	}
	return out
}

// match finds the match of a network: what a discovered fabric is called after, and more where that fits others too.
func (all portsOf) match(n *Network) Match {
	m := Match{LinkLayer: n.Fabric.LinkLayer, Rail: -1}
	if r := n.Fabric.RateGb; r == math.Trunc(r) {
		m.RateGb = int(r)
	}
	own := map[string]bool{}
	var addresses []string
	for _, r := range n.Rails {
		for _, p := range r.Ports {
			own[p.Node+" "+p.HCA] = true
			addresses = append(addresses, p.PCI)
		}
	}
	tries := []Match{m}
	if n.Fabric.LinkLayer == device.InfiniBand && n.Fabric.Prefix != 0 {
		m.Prefix = n.Fabric.Prefix.String()
		tries = append(tries, m)
	}
	if n.Fabric.Planes {
		tries = all.withRails(tries, own)
	}
	slices.Sort(addresses)
	if addresses = slices.Compact(addresses); addresses[0] != "" && len(addresses) <= maxPatterns {
		m = tries[0]
		m.Rail, m.Devices = -1, addresses
		tries = append(tries, m)
	}
	for i := range tries {
		if tries[i].Doubts = all.compare(&tries[i], own); len(tries[i].Doubts) == 0 {
			return tries[i]
		}
	}
	return tries[len(tries)-1]
}

// withRails are the tries with the rail on which all nodes have the devices; none if they have them on several.
func (all portsOf) withRails(tries []Match, own map[string]bool) (out []Match) {
	for _, m := range tries {
		rails := map[int]bool{}
		for _, ports := range all {
			for i, p := range m.counted(ports) {
				if own[p.Node+" "+p.HCA] {
					rails[i] = true
				}
			}
		}
		if r := slices.Collect(maps.Keys(rails)); len(r) == 1 {
			m.Rail = r[0]
		}
		out = append(out, m)
	}
	return out
}

// counted are the ports of a node that the agent counts for the rail: those that fit everything else, and those that
// are down, which can't be judged.
func (m *Match) counted(ports []topology.Port) (out []topology.Port) {
	for _, p := range ports {
		down := p.State != device.PortActive && p.LinkLayer == m.LinkLayer &&
			(len(m.Devices) == 0 || slices.Contains(m.Devices, p.PCI))
		if m.fits(&p) || down {
			out = append(out, p)
		}
	}
	return out
}

// fits reports whether everything but the rail fits.
func (m *Match) fits(p *topology.Port) bool {
	return m.LinkLayer == p.LinkLayer && (m.RateGb == 0 || float64(m.RateGb) == p.RateGb) &&
		(m.Prefix == "" || m.Prefix == p.Prefix.String()) &&
		(len(m.Devices) == 0 || slices.Contains(m.Devices, p.PCI))
}

// compare says which devices the match fits and should not, and the reverse.
func (all portsOf) compare(m *Match, own map[string]bool) (doubts []string) {
	var more, less []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rail := m.counted(all[name])
		for _, p := range all[name] {
			fits := m.fits(&p) && (m.Rail < 0 || slices.IndexFunc(rail, func(o topology.Port) bool {
				return o.HCA == p.HCA
			}) == m.Rail)
			switch mine := own[p.Node+" "+p.HCA]; {
			case fits && !mine:
				more = append(more, p.Node+" "+p.Name())
			case !fits && mine:
				less = append(less, p.Node+" "+p.Name())
			}
		}
	}
	if len(more) > 0 {
		doubts = append(doubts, fmt.Sprintf("this match also fits %s: add to it by hand", few(more)))
	}
	if len(less) > 0 {
		doubts = append(doubts, fmt.Sprintf("this match does not fit %s: change it by hand", few(less)))
	}
	return doubts
}
