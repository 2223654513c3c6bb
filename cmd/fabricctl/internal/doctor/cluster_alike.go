package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// clusterFirmware finds cards of one board (PSID) that have other firmware on other nodes. host-firmware has those of
// one node.
func clusterFirmware(c *Cluster) (out []Finding) {
	boards := map[string]map[string][]string{}
	c.present(func(f *FabricNode) {
		for i := range f.Node.HCAs {
			d := &f.Node.HCAs[i]
			if d.Kind != "PF" || d.Firmware == "" || d.Board == "" {
				continue
			}
			board := cmp.Or(d.Model, d.ID) + " " + d.Board
			if boards[board] == nil {
				boards[board] = map[string][]string{}
			}
			if nodes := boards[board][d.Firmware]; !slices.Contains(nodes, f.Name) {
				boards[board][d.Firmware] = append(nodes, f.Name)
			}
		}
	})
	if len(boards) == 0 {
		return nil
	}
	for _, b := range slices.Sorted(maps.Keys(boards)) {
		if len(boards[b]) > 1 {
			out = append(out, finding("cluster-firmware", Warn, b+": "+spread(boards[b], 20)))
		}
	}
	return pass(out, "cluster-firmware", fmt.Sprintf("%d kinds of cards, each with one version", len(boards)))
}

// clusterRails compares the ports of one place on all nodes: those of a fabric have one MTU, and those of a place one
// rate. The interface of a device that is in a pod is not on its node, and not compared.
func clusterRails(c *Cluster) (out []Finding) {
	var ports []topology.Port
	mtu := map[string]int{} // "node HCA port" -> MTU
	mark := map[string]*node.Port{}
	cards := map[string]string{}
	c.present(func(f *FabricNode) {
		for _, p := range f.Node.Ports() {
			if p.Kind != "PF" {
				continue
			}
			ports = append(ports, p)
			if d := f.Node.Netdev(p.Netdev); d != nil {
				mtu[portOf(&p)] = d.MTU
			}
			if d := f.Node.HCA(p.HCA); d != nil {
				cards[portOf(&p)] = cmp.Or(d.Board, d.ID)
				mark[portOf(&p)] = d.Port(p.Port)
			}
		}
	})
	if len(ports) == 0 {
		return nil
	}
	all := topology.Group(ports)
	var unlike []Finding
	marked := false
	for i := range all.Fabrics {
		f := &all.Fabrics[i]
		mtus := map[string][]string{}
		for _, r := range f.Rails {
			for j := range r.Ports {
				p := &r.Ports[j]
				if m := mtu[portOf(p)]; m > 0 {
					addOnce(mtus, strconv.Itoa(m), p.Node)
				}
			}
		}
		if len(mtus) > 1 {
			out = append(out, finding("cluster-mtu", Warn, f.Name+": MTU "+spread(mtus, 20)))
		}
		known, list := unlikeMarks(f, mark)
		marked, unlike = marked || known, append(unlike, list...)
	}
	out = pass(out, "cluster-mtu", "one MTU in each fabric, as far as interfaces are on their nodes")
	if marked {
		out = append(out, pass(unlike, "cluster-roce-qos", "traffic is marked alike in each fabric")...)
	}
	return append(out, pass(slowPorts(all, cards), "cluster-rate", "the ports of one place have one rate")...)
}

// unlikeMarks compares how the ports of a fabric mark traffic. The type of service of a port that is on its node is
// known only while the port has a directory in configfs. known: at least one port's mark is known.
func unlikeMarks(f *topology.Fabric, mark map[string]*node.Port) (known bool, out []Finding) {
	tos, class := map[string][]string{}, map[string][]string{}
	for _, r := range f.Rails {
		for i := range r.Ports {
			p := &r.Ports[i]
			m, value := mark[portOf(p)], "none"
			if m != nil && m.TOS != nil {
				known = true
				addOnce(tos, strconv.Itoa(*m.TOS), p.Node)
			}
			if m != nil && m.TrafficClass != nil {
				known, value = true, strconv.Itoa(*m.TrafficClass)
			}
			addOnce(class, value, p.Node)
		}
	}
	if len(tos) > 1 {
		out = append(out, finding("cluster-roce-qos", Warn, f.Name+": default_roce_tos "+spread(tos, 60)))
	}
	if len(class) > 1 {
		out = append(out, finding("cluster-roce-qos", Warn, f.Name+": traffic_class "+spread(class, 60)))
	}
	return known, out
}

func addOnce(by map[string][]string, key, node string) {
	if !slices.Contains(by[key], node) {
		by[key] = append(by[key], node)
	}
}

func portOf(p *topology.Port) string {
	return p.Node + " " + p.HCA + " " + strconv.FormatUint(uint64(p.Port), 10)
}

// slowPorts finds ports that are slower than those in the same place, with the same card, on more other nodes.
func slowPorts(all topology.Fabrics, cards map[string]string) (out []Finding) {
	type place struct {
		layer, pci, card string
		port             uint32
	}
	rates := map[place]map[float64][]topology.Port{}
	for i := range all.Fabrics {
		for _, r := range all.Fabrics[i].Rails {
			for j := range r.Ports {
				p := r.Ports[j]
				k := place{string(p.LinkLayer), p.PCI, cards[portOf(&p)], p.Port}
				if p.PCI == "" || p.RateGb == 0 {
					continue
				}
				if rates[k] == nil {
					rates[k] = map[float64][]topology.Port{}
				}
				rates[k][p.RateGb] = append(rates[k][p.RateGb], p)
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(rates), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.pci, b.pci), cmp.Compare(a.port, b.port), cmp.Compare(a.card, b.card))
	}) {
		list := slices.Sorted(maps.Keys(rates[k]))
		fast := list[len(list)-1]
		for _, gb := range list[:len(list)-1] {
			if len(rates[k][gb]) >= len(rates[k][fast]) {
				continue
			}
			var nodes []string
			for _, p := range rates[k][gb] {
				nodes = append(nodes, p.Node)
			}
			slices.Sort(nodes)
			out = append(out, finding("cluster-rate", Warn, fmt.Sprintf("%s on %s: %g Gb/s, on %d other nodes %g",
				cmp.Or(rates[k][gb][0].Name(), k.pci)+" ("+k.pci+")", few(nodes), gb, len(rates[k][fast]), fast)))
		}
	}
	return out
}
