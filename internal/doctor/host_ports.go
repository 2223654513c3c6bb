package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// iffUp is IFF_UP: somebody has brought the interface up (include/uapi/linux/if.h).
const iffUp = 1

// Link is what sysfs says of an interface, beside what the node's picture has.
type Link struct {
	Flags uint64 // IFF_*; valid if Known
	Known bool
	Mode  string  // of IPoIB: datagram or connected
	Downs *uint64 // how often the carrier was lost since the interface exists; nil: not known
}

// up tells whether an interface is administratively up; known is false if that can't be seen.
func (h *Host) up(netdev string) (up, known bool) {
	l := h.Links[netdev]
	return l.Flags&iffUp != 0, l.Known
}

func hostPorts(h *Host, f topology.Fabrics) (out []Finding) {
	for _, l := range f.Inactive() {
		if l.Port.Kind == topology.Soft {
			continue
		}
		s := Warn
		if l.Port.State == device.PortInit {
			s = Fail
		}
		state, cause, _ := strings.Cut(l.Reason, ": ")
		d := finding("host-port-state", s, where(&l.Port)+" is "+state)
		d.Cause = cause
		h.mendPort(&l.Port, &d)
		out = append(out, d)
	}
	if len(h.Node.HCAs) == 0 {
		return nil
	}
	return pass(out, "host-port-state", "all ports are Active")
}

// where is a port and where its hardware is. A device of another bus than PCI has no such place.
func where(p *topology.Port) string {
	if p.PCI == "" {
		return p.Name()
	}
	return p.Name() + " (" + p.PCI + ")"
}

// mendPort says why this port is not Active and what to do, as far as its kind and its interface tell.
func (h *Host) mendPort(p *topology.Port, d *Finding) {
	const unused = "; a port that is not meant to be used: leave it out of the device plugin's selectors"
	up, known := h.up(p.Netdev)
	dev, netdev := quote.Shell(cmp.Or(p.PCI, "ADDRESS")), quote.Shell(p.Netdev)
	switch {
	case p.State == device.PortInit:
		d.Cure = "sminfo on this node says which subnet manager answers; it has to know the port GUID " +
			p.GUID.String()
		if p.Kind == "VF" {
			d.Cure += ", and to configure VFs (opensm: virt_enabled 2)"
		}
	case p.Kind == "VF":
		pf := h.pfOf(p)
		if pf != nil && pf.State != device.PortActive.String() {
			d.Cause = "the port of its PF is " + pf.State
			d.Cure = "see the PF's port"
			return
		}
		if p.LinkLayer == device.Ethernet && known && !up {
			d.Cause = "the interface " + p.Netdev + " is down: a RoCE port follows it"
			d.Cure = "ip link set " + netdev + " up; an idle VF may stay down: fabric brings it up in the pod"
			return
		}
		d.Cure = "ip link set PF vf N state auto, PF being the interface of " + cmp.Or(p.Slot, "its PF") +
			"; InfiniBand also needs a GUID (host-vf-guid)"
	case p.LinkLayer == device.Ethernet && p.InPod != "":
		d.Cause = "its interface is down or has no carrier in " + p.InPod
		d.Cure = "ip -d link in the pod; fabricctl doctor pod"
	case p.LinkLayer == device.Ethernet && known && !up:
		d.Cause = "the interface " + p.Netdev + " is down: a RoCE port follows it"
		d.Cure = "ip link set " + netdev + " up" + unused
	case p.LinkLayer == device.Ethernet && p.Netdev != "":
		if known {
			d.Cause = "the interface " + p.Netdev + " is up and has no carrier: cable, transceiver or switch port"
		}
		d.Cure = "ip link set " + netdev + " up; ethtool " + netdev + " (Link detected); the module: ethtool -m " +
			"" + netdev
		if known {
			_, d.Cure, _ = strings.Cut(d.Cure, "; ")
		}
		d.Cure += unused
	case p.Phys == device.PhysDisabled:
		d.Cure = "mlxlink -d " + dev + " --port_state UP; mlxconfig -d " + dev + " query" + unused
	case p.Phys == device.PhysLinkUp:
		d.Cure = "journalctl -k | grep " + dev + "; then reset the card (mlxfwreset), without pods on it"
	default:
		d.Cure = "cable, transceiver and switch port: mlxlink -d " + dev + " -m -c shows the module and why the " +
			"link " +
			"is down" + unused
	}
}

// pfOf is the port of the physical function that a VF's port shares; nil if it is not in the picture.
func (h *Host) pfOf(p *topology.Port) *node.Port {
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if d.Kind == "PF" && d.PCI != "" && d.PCI == p.Slot {
			if j := slices.IndexFunc(d.Ports, func(q node.Port) bool { return q.Number == p.Port }); j >= 0 {
				return &d.Ports[j]
			}
		}
	}
	return nil
}

// alike is what ports have in common that should have one rate: the same card, for the same fabric.
type alike struct {
	layer  device.LinkLayer
	id     string
	board  string
	prefix device.SubnetPrefix
	sm     uint16
}

// merged puts the ports of a card model together where each rail is a subnet of its own.
func merged(groups map[alike][]ratedPort, order []alike) (all map[alike][]ratedPort, cards []alike) {
	all = map[alike][]ratedPort{}
	for _, k := range order {
		card := alike{layer: k.layer, id: k.id, board: k.board}
		if all[card] == nil {
			cards = append(cards, card)
		}
		all[card] = append(all[card], groups[k]...)
	}
	return all, cards
}

// ratedPort is a port with its rate, as the kernel spells it.
type ratedPort struct {
	name, pci, text string
	netdev, driver  string
	gb              float64
}

// hostRates finds ports that have trained down: of one card model, in one fabric, and slower than at least as many
// others. Where most are slow, they are meant to be.
func hostRates(h *Host, f topology.Fabrics) (out []Finding) {
	groups, order := map[alike][]ratedPort{}, []alike{}
	active := map[string]bool{} // in a fabric: neither down nor in a bond
	for i := range f.Fabrics {
		for _, p := range f.Fabrics[i].On(h.Node.Name) {
			active[p.Name()] = true
		}
	}
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		for _, p := range d.Ports {
			name := d.Name + ":" + strconv.FormatUint(uint64(p.Number), 10)
			if d.Kind != "PF" || d.ID == "" || !active[name] || p.RateGb == 0 {
				continue
			}
			k := alike{layer: p.LinkLayer, id: d.ID, board: d.Board}
			if p.LinkLayer == device.InfiniBand {
				k.prefix, k.sm = p.Prefix, p.SMLID
			}
			if groups[k] == nil {
				order = append(order, k)
			}
			groups[k] = append(groups[k], ratedPort{name, d.PCI, p.Rate, p.Netdev, d.Driver, p.RateGb})
		}
	}
	if !slices.ContainsFunc(order, func(k alike) bool { return len(groups[k]) > 1 }) {
		groups, order = merged(groups, order)
	}
	for _, k := range order {
		out = append(out, slow(groups[k], k.layer)...)
	}
	if len(groups) == 0 {
		return nil
	}
	return pass(out, "host-rate", "ports of one card model in one fabric have one rate")
}

func slow(ports []ratedPort, layer device.LinkLayer) (out []Finding) {
	fast := slices.MaxFunc(ports, func(a, b ratedPort) int { return cmp.Compare(a.gb, b.gb) })
	var peers []string
	for _, p := range ports {
		if p.gb == fast.gb {
			peers = append(peers, p.name)
		}
	}
	if len(ports)-len(peers) > len(peers) {
		return nil
	}
	for _, p := range ports {
		if p.gb == fast.gb {
			continue
		}
		f := finding("host-rate", Warn, fmt.Sprintf("%s (%s) runs at %s, %s of the same card model at %s",
			p.name, p.pci, spelled(p), few(peers), spelled(fast)))
		f.Cure = "mlxlink -d " + quote.Shell(p.pci) + " -m -c shows width, speed and errors of each lane, and the " +
			"module"
		if p.driver != "mlx5_core" && p.netdev != "" && layer == device.Ethernet {
			dev := quote.Shell(p.netdev)
			f.Cure = "ethtool " + dev + ", ethtool -m " + dev + " show the speed and the module"
		}
		f.Cure += "; clean and seat both ends, then swap cable or transceiver with a sound port's and see what the " +
			"rate follows; nccl-env leaves this port out as long"
		out = append(out, f)
	}
	return out
}

// spelled is a rate as the kernel spells it, with width and speed: 200 Gb/sec (2X NDR).
func spelled(p ratedPort) string {
	return cmp.Or(p.text, strconv.FormatFloat(p.gb, 'f', -1, 64)+" Gb/s")
}
