package node

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// Ports returns every port as internal/topology looks at it.
func (n *Node) Ports() (out []topology.Port) {
	for i := range n.HCAs {
		h := &n.HCAs[i]
		kept := n.KeptOnHost(h)
		for _, p := range h.Ports {
			f := topology.Port{
				Node:      n.Name,
				HCA:       h.Name,
				Port:      p.Number,
				Netdev:    p.Netdev,
				Address:   h.Location().Address,
				PCI:       h.PCI,
				Slot:      h.slot().ID(),
				Kind:      h.Kind,
				Device:    h.ID,
				LinkLayer: p.LinkLayer,
				State:     p.state(),
				Phys:      p.phys(),
				Idle:      n.idle(&p),
				RateGb:    p.RateGb,
				Prefix:    p.Prefix,
				LID:       p.LID,
				SMLID:     p.SMLID,
				GUID:      p.GUID,
				Bond:      h.Bond,
				InPod:     h.InPod,
			}
			if d := n.Netdev(p.Netdev); d != nil {
				f.Addrs, f.Primary = d.Addrs, d.Default
			}
			if kept == nil { // whatever it is part of
				f.Bond, f.Primary = "", false
			} else {
				f.Kept = kept.Error()
			}
			if h.InPod != "" && p.RateGb == 0 {
				continue // what the journal knows of it is not enough to place it
			}
			out = append(out, f)
		}
	}
	return out
}

// Fabrics groups the node's own ports.
func (n *Node) Fabrics() topology.Fabrics { return topology.Group(n.Ports()) }

// Usable groups the ports that a process here can use.
func (n *Node) Usable() topology.Fabrics { return Usable(n.Ports()) }

// Usable groups ports that are Active now: those of fabrics, and where there are none, those of soft RDMA devices,
// which are no rail to give to a pod, but work where they are.
func Usable(ports []topology.Port) topology.Fabrics {
	ports = slices.Clone(ports)
	for i := range ports {
		ports[i].Idle = false
	}
	f := topology.Group(ports)
	if len(f.Fabrics) > 0 {
		return f
	}
	for i := range ports {
		if ports[i].Kind == topology.Soft {
			ports[i].Kind = ""
		}
	}
	return topology.Group(ports)
}

// PortName is the name of one of its ports as NCCL and UCX spell it, mlx5_0:1.
func (h *HCA) PortName(p *Port) string { return portName(h.Name, p.Number) }

// EachPort calls f for every port.
func (n *Node) EachPort(f func(h *HCA, p *Port)) {
	for i := range n.HCAs {
		h := &n.HCAs[i]
		for j := range h.Ports {
			f(h, &h.Ports[j])
		}
	}
}
