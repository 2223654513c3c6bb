package node

import (
	"github.com/fabric-cni/fabric-cni/internal/topology"
)

// Ports returns every port as internal/topology looks at it.
func (n *Node) Ports() (out []topology.Port) {
	for i := range n.HCAs {
		h := &n.HCAs[i]
		for _, p := range h.Ports {
			f := topology.Port{
				Node:      n.Name,
				HCA:       h.Name,
				Port:      p.Number,
				Netdev:    p.Netdev,
				PCI:       h.PCI,
				Slot:      h.slot(),
				Kind:      h.Kind,
				Device:    h.ID,
				LinkLayer: p.LinkLayer,
				State:     p.state(),
				Phys:      p.phys(),
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

// Usable groups the ports that a process here can use: those of Fabrics, and where there are none, those of soft RDMA
// devices, which are no rail to give to a pod, but work where they are.
func (n *Node) Usable() topology.Fabrics {
	f := n.Fabrics()
	if len(f.Fabrics) > 0 {
		return f
	}
	ports := n.Ports()
	for i := range ports {
		if ports[i].Kind == topology.Soft {
			ports[i].Kind = ""
		}
	}
	return topology.Group(ports)
}
