package doctor

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// QoS is what a RoCE port does with priorities, beside the DCB of its interface.
type QoS struct {
	*node.Port
	NP    []int // priorities for which ECN is on as notification point; nil: not known
	RP    []int // and as reaction point
	Known bool  // the driver says for which priorities ECN is on
}

// collectQoS reads the settings of RoCE ports. NVIDIA's driver package has ecn in sysfs, which the kernel's own driver
// has not.
func (h *Host) collectQoS(root fs.FS) {
	h.QoS = map[string]QoS{}
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		for j := range d.Ports {
			p := &d.Ports[j]
			if p.LinkLayer != device.Ethernet || d.Kind != "PF" {
				continue
			}
			q := QoS{Port: p}
			if dir := node.Real(root, path.Join("sys/class/net", p.Netdev)); dir != "" && p.Netdev != "" {
				q.NP, q.Known = enabled(root, path.Join(dir, "ecn/roce_np/enable"))
				q.RP, _ = enabled(root, path.Join(dir, "ecn/roce_rp/enable"))
			}
			h.QoS[d.Name+":"+strconv.FormatUint(uint64(p.Number), 10)] = q
		}
	}
}

// enabled are the priorities whose file says 1.
func enabled(root fs.FS, dir string) (out []int, known bool) {
	for p := range 8 {
		text := read(root, path.Join(dir, strconv.Itoa(p)))
		known = known || text != ""
		if text == "1" {
			out = append(out, p)
		}
	}
	return out, known
}

// hostRoCE compares what the rails of a RoCE fabric do with priorities, and whether what connections are marked with is
// what the interface protects. Which priority a fabric uses, if any, is not visible here: a fabric may do without
// PFC.
func hostRoCE(h *Host, f topology.Fabrics) (out []Finding) {
	var seen []string
	for i := range f.Fabrics {
		fab := &f.Fabrics[i]
		if fab.LinkLayer != device.Ethernet {
			continue
		}
		by := map[string][]string{}
		for _, p := range fab.On(h.Node.Name) {
			d := h.Node.Netdev(p.Netdev)
			if p.Kind != "PF" || d == nil {
				continue
			}
			name := p.HCA + ":" + strconv.FormatUint(uint64(p.Port), 10)
			q, ok := h.QoS[name]
			if !ok || d.DCB == nil && !q.Known && q.TOS == nil && q.TrafficClass == nil {
				continue
			}
			text := q.text(d.DCB)
			by[text] = append(by[text], name)
			if why := q.unprotected(d.DCB); why != "" {
				out = append(out, finding("host-roce-qos", Warn, name+" ("+d.Name+"): "+why))
			}
		}
		if len(by) > 1 {
			out = append(out, finding("host-roce-qos", Warn, fab.Name+": the rails differ: "+apart(by)))
		}
		for _, text := range slices.Sorted(maps.Keys(by)) {
			seen = append(seen, fab.Name+": "+text)
		}
	}
	if len(seen) == 0 {
		return nil // no RoCE, or nothing is known
	}
	return pass(out, "host-roce-qos", several(seen))
}

// apart is what there is, each with the ports that have it; the usual first.
func apart(by map[string][]string) string {
	keys := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if len(by[a]) != len(by[b]) {
			return len(by[b]) - len(by[a])
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, k := range keys {
		parts = append(parts, k+" on "+few(by[k]))
	}
	return several(parts)
}

// text says what a port does with priorities.
func (q *QoS) text(d *node.DCB) string {
	var parts []string
	if d != nil {
		parts = append(parts, "PFC for "+priorities(d.PFC))
		trust := "priority by VLAN tag"
		if len(d.DSCP) > 0 {
			trust = "priority by DSCP"
			for _, m := range d.DSCP {
				if m.Priority != m.DSCP>>3 { // which is where the driver begins
					trust += fmt.Sprintf(" (%d: %d)", m.DSCP, m.Priority)
				}
			}
		}
		parts = append(parts, trust)
	}
	parts = append(parts, marks(q.Port)...)
	if q.Known {
		parts = append(parts, "ECN for "+priorities(q.NP)+" (notification) and "+priorities(q.RP)+" (reaction)")
	}
	return strings.Join(parts, ", ")
}

// marks are what traffic over a port is marked with.
func marks(p *node.Port) (out []string) {
	if p.TOS != nil {
		out = append(out, fmt.Sprintf("default_roce_tos %d", *p.TOS))
	}
	if p.TrafficClass != nil {
		out = append(out, fmt.Sprintf("traffic_class %d", *p.TrafficClass))
	}
	return out
}

func priorities(list []int) string {
	if len(list) == 0 {
		return "none"
	}
	var out []string
	for _, p := range list {
		out = append(out, strconv.Itoa(p))
	}
	return strings.Join(out, "+")
}

// unprotected finds a mark that leads to a priority without PFC, on an interface that has PFC for another one.
func (q *QoS) unprotected(d *node.DCB) string {
	if d == nil || len(d.PFC) == 0 {
		return ""
	}
	for _, m := range []struct {
		what string
		tos  *int
	}{{"default_roce_tos", q.TOS}, {"traffic_class", q.TrafficClass}} {
		if m.tos == nil || *m.tos == 0 {
			continue
		}
		i := slices.IndexFunc(d.DSCP, func(p node.DSCPPriority) bool { return p.DSCP == *m.tos>>2 })
		if i >= 0 && !slices.Contains(d.PFC, d.DSCP[i].Priority) {
			return fmt.Sprintf("%s %d is DSCP %d, which has priority %d here, and PFC is on for %s only", m.what,
				*m.tos, *m.tos>>2, d.DSCP[i].Priority, priorities(d.PFC))
		}
	}
	return ""
}
