package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func (d *discoverer) table(n *node.Node, f topology.Fabrics, wide bool) {
	d.stdout.Printf("node %s, %s, RDMA mode %s, %s\n\n", n.Name, count(len(n.HCAs), "RDMA device"),
		cmp.Or(n.RDMAMode, "unknown"), count(len(n.GPUs), "GPU"))
	if len(n.HCAs) == 0 {
		d.stdout.Println(
			"no RDMA device: no such hardware, its driver is not loaded (modprobe mlx5_ib), or all are in pods")
		return
	}
	p := portTable{wide: wide, kinds: hasFunctions(n), rails: railsOf(f)}
	t := newTable(p.header()...)
	t.spare = p.spare()
	p.rows(n, func(cells []any) { t.add(cells...) })
	t.print(&d.console)
	d.fabrics(f)
}

// spare are the columns that a narrow terminal can do without.
func (t *portTable) spare() []string {
	if t.wide {
		return nil
	}
	return []string{"POD", "NUMA", "PCI", "GPUS", "KIND", "LINK", "PORT"}
}

// portTable is the table of ports.
type portTable struct {
	wide  bool // everything, a line for each port
	kinds bool // not only PFs are in it
	rails map[string]string
}

// hasFunctions tells whether there is anything but PFs.
func hasFunctions(nodes ...*node.Node) bool {
	return slices.ContainsFunc(nodes, func(n *node.Node) bool {
		return slices.ContainsFunc(n.HCAs, func(h node.HCA) bool { return h.Kind != "PF" })
	})
}

func (t *portTable) header() []string {
	out := []string{"HCA", "PORT", "NETDEV", "LINK", "STATE", "RATE", "PCI", "NUMA", "GPUS", "RAIL", "POD"}
	switch {
	case t.wide:
		out = append(out, "PHYS", "MTU", "ACTIVE-MTU", "LID", "SMLID", "PORT-GUID", "PREFIX", "PKEYS", "ID", "MODEL",
			"FIRMWARE", "KIND", "PARENT", "BOND", "DRIVER", "PCIE", "ALTNAMES")
	case t.kinds:
		out = slices.Insert(out, 1, "KIND")
	}
	return out
}

// rows are the rows of a node, one for each port; of the many functions of a PF one for all.
func (t *portTable) rows(n *node.Node, add func(cells []any)) {
	for _, b := range n.Bundles() {
		if b.Many() && !t.wide {
			add(t.many(n, &b))
			continue
		}
		for _, h := range b.HCAs {
			ports := h.Ports
			if len(ports) == 0 {
				ports = []node.Port{{}}
			}
			for _, p := range ports {
				add(t.row(n, h, &p))
			}
		}
	}
}

func (t *portTable) row(n *node.Node, h *node.HCA, p *node.Port) []any {
	row := []any{h.Name, p.Number, p.Netdev, linkLayer(p.LinkLayer), state(p), rate(p), h.PCI, number(h.NUMA),
		gpus(h.GPUs), t.rails[portKey(n.Name, h.Name, p.Number)], h.InPod}
	switch {
	case t.wide:
		row = append(row, wideCells(n, h, p)...)
	case t.kinds:
		row = slices.Insert(row, 1, any(h.Kind))
	}
	return row
}

// many is the row of many functions. What differs between them is left out.
func (t *portTable) many(n *node.Node, b *node.Bundle) []any {
	states, active := b.State()
	at := cell{states, warn}
	if active {
		at.colour = good
	}
	var all []node.Port
	var rails []string
	for _, h := range b.HCAs {
		for _, p := range h.Ports {
			all, rails = append(all, p), append(rails, t.rails[portKey(n.Name, h.Name, p.Number)])
		}
	}
	pods := ""
	if n := b.InPods(); n > 0 {
		pods = fmt.Sprintf("%d in pods", n)
	}
	row := []any{b.Name(), same(all, func(p node.Port) string { return strconv.FormatUint(uint64(p.Number), 10) }), "",
		same(all, func(p node.Port) string { return linkLayer(p.LinkLayer) }), at,
		same(all, func(p node.Port) string { return rate(&p) }), b.PCI(),
		same(b.HCAs, func(h *node.HCA) string { return number(h.NUMA) }),
		same(b.HCAs, func(h *node.HCA) string { return gpus(h.GPUs) }), same(rails, func(r string) string { return r }),
		pods}
	return slices.Insert(row, 1, any(b.HCAs[0].Kind))
}

// same is what all have in common, and those that have nothing do not count.
func same[T any](list []T, of func(T) string) (out string) {
	for _, e := range list {
		switch s := of(e); {
		case s == "":
		case out == "":
			out = s
		case out != s:
			return ""
		}
	}
	return out
}

func wideCells(n *node.Node, h *node.HCA, p *node.Port) []any {
	mtu, alt := "", ""
	if d := n.Netdev(p.Netdev); d != nil {
		mtu, alt = strconv.Itoa(d.MTU), strings.Join(d.AltNames, ",")
	}
	active := ""
	if p.ActiveMTU > 0 {
		active = strconv.Itoa(p.ActiveMTU)
	}
	guid := ""
	if p.GUID != 0 {
		guid = p.GUID.String()
	}
	pcie := h.PCIe
	if h.Slower != "" {
		pcie += " (of " + h.Slower + ")"
	}
	return []any{p.Phys, mtu, active, nonzero(p.LID), nonzero(p.SMLID), guid, p.Prefix,
		strings.Join(p.PKeys, ","), h.ID, h.Model, h.Firmware, h.Kind, h.Parent, h.Bond, h.Driver, pcie, alt}
}

func (d *discoverer) fabrics(f topology.Fabrics) {
	for _, f := range f.Fabrics {
		d.stdout.Printf("\nfabric %s: %s\n", f.Name, f.Reason)
		for _, r := range f.Rails {
			d.stdout.Printf("  rail %d  %s  (%s)\n", r.Index, strings.Join(portNames(r.Ports), " "), r.Reason)
		}
		if f.Planes {
			d.stdout.Println("  planes: the rails are subnets of their own; unless they are routed, pairing " +
				"two of them ends in a timeout")
		}
		for _, w := range f.Warnings {
			d.stdout.Println("  warning:", w)
		}
	}
	if len(f.Left) > 0 {
		d.stdout.Printf("\nin no fabric:\n")
	}
	reasons := map[string][]topology.Port{}
	for _, l := range f.Left {
		reasons[l.Reason] = append(reasons[l.Reason], l.Port)
	}
	for _, l := range f.Left {
		ports := reasons[l.Reason]
		delete(reasons, l.Reason)
		for _, name := range portNames(ports) {
			d.stdout.Printf("  %s  %s\n", name, l.Reason)
		}
	}
}

// portNames are the names of ports; of the many functions of a PF one for all.
func portNames(ports []topology.Port) (out []string) {
	type of struct{ kind, slot string }
	many, pf := map[of]int{}, map[string]string{}
	for i := range ports {
		p := &ports[i]
		if many[of{p.Kind, p.Slot}]++; p.Kind == "PF" {
			pf[p.Slot] = " of " + p.HCA
		}
	}
	for i := range ports {
		p := &ports[i]
		switch n := many[of{p.Kind, p.Slot}]; {
		case p.Kind == "PF" || n > 0 && n <= node.Few:
			out = append(out, p.Name())
		case n > node.Few:
			out = append(out, fmt.Sprintf("+ %d %ss%s", n, p.Kind, pf[p.Slot]))
			many[of{p.Kind, p.Slot}] = 0
		}
	}
	return out
}

// railsOf is FABRIC/RAIL of each port.
func railsOf(f topology.Fabrics) map[string]string {
	out := map[string]string{}
	for _, f := range f.Fabrics {
		for _, r := range f.Rails {
			for _, p := range r.Ports {
				out[portKey(p.Node, p.HCA, p.Port)] = f.Name + "/" + strconv.Itoa(r.Index)
			}
		}
	}
	return out
}

func portKey(node, hca string, port uint32) string {
	return node + " " + hca + " " + strconv.FormatUint(uint64(port), 10)
}

func linkLayer(l device.LinkLayer) string {
	switch l {
	case device.InfiniBand:
		return "IB"
	case device.Ethernet:
		return "Eth"
	}
	return string(l)
}

func state(p *node.Port) cell {
	c := cell{p.State, warn}
	switch {
	case p.Active():
		c.colour = good
	case p.State == device.PortDown.String():
		c.colour = bad
	}
	return c
}

func rate(p *node.Port) string {
	if p.RateGb == 0 || !p.Active() { // of a port that is down the kernel tells its slowest rate
		return ""
	}
	return strconv.FormatFloat(p.RateGb, 'f', -1, 64) + "G"
}

func number(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func nonzero(n uint16) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// gpus is the nearest GPUs and their distance: 0,1 PIX.
func gpus(near []node.Near) string {
	if len(near) == 0 || near[0].Distance == "SYS" {
		return ""
	}
	var list []string
	for _, g := range near {
		list = append(list, strconv.Itoa(g.GPU))
	}
	return strings.Join(list, ",") + " " + near[0].Distance
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
