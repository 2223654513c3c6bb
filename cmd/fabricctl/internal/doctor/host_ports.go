package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// iffUp is IFF_UP: the interface was brought up (include/uapi/linux/if.h).
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
	if len(f.Fabrics) == 0 && len(out) > 0 {
		for i := range out {
			out[i].Status = Fail
		}
		out[0].Evidence += "; no port can carry traffic: NCCL goes over TCP without an error"
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
		d.Cure = "cable, transceiver and switch port: mlxlink -d " + dev + " -m -c shows the module and why the link " +
			"is down" + unused
	}
}

// pfOf is the port of the physical function that a VF's port shares; nil if it is not in the picture.
func (h *Host) pfOf(p *topology.Port) *node.Port {
	for i := range h.Node.HCAs {
		d := &h.Node.HCAs[i]
		if d.Kind == "PF" && d.PCI != "" && d.PCI == p.Slot {
			if q := d.Port(p.Port); q != nil {
				return q
			}
		}
	}
	return nil
}

// hostRates finds ports that have trained down: nccl-env and doctor pod judge by the same rule.
func hostRates(h *Host, f topology.Fabrics) []Finding {
	out := trainedDown("host-rate", slices.DeleteFunc(nccl.SlowPorts(h.Node), func(s nccl.Slow) bool {
		return s.HCA.Kind != "PF"
	}))
	if len(f.Fabrics) == 0 {
		return out
	}
	return pass(out, "host-rate", "ports of one card model in one fabric have one rate")
}

// trainedDown is a finding for the ports of each kind that have trained down.
func trainedDown(id string, list []nccl.Slow) (out []Finding) {
	for len(list) > 0 {
		s := list[0]
		same := func(o nccl.Slow) bool { return slices.Equal(o.Peers, s.Peers) }
		var names []string
		for _, o := range list {
			if !same(o) {
				continue
			}
			name := o.Port
			if o.HCA.PCI != "" {
				name += " (" + o.HCA.PCI + ")"
			}
			names = append(names, name+" at "+cmp.Or(o.Rate, fmt.Sprintf("%g Gb/s", o.RateGb)))
		}
		f := finding(id, Warn, fmt.Sprintf("%s; %s of the same card model at %g "+
			"Gb/s", few(names), few(s.Peers), s.Best))
		if s.HCA.Driver != "mlx5_core" && s.Netdev != "" && s.HCA.PCI != "" {
			dev := quote.Shell(s.Netdev)
			f.Cure = "ethtool " + dev + ", ethtool -m " + dev + " show the speed and the module; " + f.Cure
		} else if len(names) == 1 && s.HCA.PCI != "" {
			f.Cure = strings.ReplaceAll(f.Cure, "ADDRESS", quote.Shell(s.HCA.PCI))
		}
		out = append(out, f)
		list = slices.DeleteFunc(list, same)
	}
	return out
}
