package nccl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Slow is a port whose link has trained down: it runs slower than those of the same kind of card in its fabric.
type Slow struct {
	Port   string // mlx5_0:1
	HCA    *node.HCA
	Netdev string
	RateGb float64 // Gb/s
	Rate   string  // as the kernel says it: 200 Gb/sec (2X NDR)
	Best   float64 // Gb/s of the others
	Peers  []string
}

func gb(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) + " Gb/s" }

// String says it in a sentence without the port's name.
func (s Slow) String() string {
	return fmt.Sprintf("runs at %s, and %s of the same kind (%s) at %s: its link has trained down",
		cmp.Or(s.Rate, gb(s.RateGb)), few(s.Peers), cmp.Or(s.HCA.Model, s.HCA.ID), gb(s.Best))
}

// alike is what ports have in common that should have one rate: the same card, in the same fabric.
type alike struct {
	id, board, kind string
	layer           device.LinkLayer
	prefix          device.SubnetPrefix
	sm              uint16
}

// SlowPorts finds ports that are Active and have trained down, however many they are.
func SlowPorts(n *node.Node) (out []Slow) {
	groups, cards, several := map[alike][]Slow{}, map[alike][]Slow{}, false
	var order []alike
	n.EachPort(func(h *node.HCA, p *node.Port) {
		if !p.Active() || p.RateGb == 0 || h.ID == "" || h.Bond != "" {
			return
		}
		s := Slow{Port: h.PortName(p), HCA: h, Netdev: p.Netdev, RateGb: p.RateGb, Rate: p.Rate}
		k := alike{id: h.ID, board: h.Board, kind: h.Kind, layer: p.LinkLayer}
		cards[k] = append(cards[k], s)
		order = append(order, k)
		if p.LinkLayer == device.InfiniBand {
			k.prefix, k.sm = p.Prefix, p.SMLID
		}
		groups[k] = append(groups[k], s)
		several = several || len(groups[k]) > 1
		order = append(order, k)
	})
	if !several { // each rail is a fabric of its own
		groups = cards
	}
	for _, k := range order {
		out = append(out, slowOf(groups[k])...)
		delete(groups, k)
	}
	return out
}

func slowOf(ports []Slow) (out []Slow) {
	best, peers := 0.0, []string{}
	for _, p := range ports {
		best = max(best, p.RateGb)
	}
	for _, p := range ports {
		if p.RateGb == best {
			peers = append(peers, p.Port)
		}
	}
	for _, p := range ports {
		if p.RateGb < best {
			p.Best, p.Peers = best, peers
			out = append(out, p)
		}
	}
	return out
}

// Paced are the ports among these of the kind of a slow one that are used together, at the rate of the slowest (least,
// in Gb/s): where they carry more so than the fast ones alone. There are none where the slow ones are left out.
func (s *Slow) Paced(slow []Slow, ports []topology.Port) (all []string, least float64) {
	fast := 0
	least = s.Best
	for i := range ports {
		name := ports[i].Name()
		is := slices.IndexFunc(slow, func(o Slow) bool { return o.Port == name && slices.Equal(o.Peers, s.Peers) })
		if slices.Contains(s.Peers, name) {
			fast, all = fast+1, append(all, name)
		} else if is >= 0 {
			all, least = append(all, name), min(least, slow[is].RateGb)
		}
	}
	if least*float64(len(all)) <= s.Best*float64(fast) {
		return nil, 0
	}
	return all, least
}

// pace gives ports that are used together the rate of the slowest of them, so that they count as one fabric.
func pace(ports []topology.Port, slow []Slow) {
	for i := range slow {
		all, least := slow[i].Paced(slow, ports)
		for j := range ports {
			if slices.Contains(all, ports[j].Name()) {
				ports[j].RateGb = least
			}
		}
	}
}
