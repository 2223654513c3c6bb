package node

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// portName is a port as NCCL, UCX and rdma(8) write it: mlx5_0:1, which they call mlx5_0/1.
func portName(hca string, port uint32) string {
	return hca + ":" + strconv.FormatUint(uint64(port), 10)
}

// faces connects an HCA's ports with their interfaces and tells its bond.
func (n *Node) faces(h *HCA, live *Live) {
	for i := range h.Ports {
		p := &h.Ports[i]
		if own, asked := live.RDMANetdevs[portName(h.Name, p.Number)]; asked && p.LinkLayer == device.Ethernet {
			n.ownNetdev(p, own, live)
		}
		if p.Netdev == "" {
			p.Netdev = n.netdevOf(h, p)
		}
		d := n.Netdev(p.Netdev)
		switch {
		case d == nil:
		case d.Bond != nil:
			h.Bond = d.Name
		case d.Master != "":
			if m := n.Netdev(d.Master); m != nil && m.Bond != nil {
				h.Bond = d.Master
			}
		}
	}
}

// ownNetdev takes back the interface of a RoCE port, and those of its GIDs, that are in another network namespace.
// Sysfs shows the names that they have there, so that in shared mode the net1 of every pod looks like this one's. own
// is what nldev says that the port has here. A GID is of an interface here if it has the name and the address of one:
// those of VLANs, macvlans and bonds on the port are not in nldev.
func (n *Node) ownNetdev(p *Port, own string, live *Live) {
	bond := ""
	if d := n.Netdev(own); d != nil {
		bond = d.Master
	}
	p.Netdev = ""
	for i := range p.GIDs {
		g := &p.GIDs[i]
		d, here := live.Netdevs[g.Netdev]
		hasAddr := slices.ContainsFunc(d.Addrs, func(a netip.Prefix) bool { return a.Addr() == g.Addr() })
		// The default GID is made from the interface's address, whether or not that has this address.
		byDefault := g.Addr().IsLinkLocalUnicast() && (g.Netdev == own || g.Netdev == bond)
		if !here || !hasAddr && !byDefault {
			g.Netdev, g.Elsewhere = "", g.Netdev
		}
		p.Netdev = cmp.Or(p.Netdev, g.Netdev)
	}
	p.Netdev = cmp.Or(p.Netdev, own)
}

// netdevOf finds an interface by the function it is on, the port's number on it, and for IPoIB the GUID at the end of
// its address: sysfs shows VLANs under the same function. An IPoIB child is under none; where no other interface of the
// port is here it is the child.
func (n *Node) netdevOf(h *HCA, p *Port) string {
	if h.Address.IsZero() {
		return ""
	}
	child := ""
	for _, d := range n.Netdevs {
		isIPoIB := d.Type == 32
		switch {
		case isIPoIB && d.Address != h.Address && !d.Address.IsZero():
		case isIPoIB && p.HasGUID(d.HWAddr) && (d.Address.IsZero() || d.Parent != ""):
			child = cmp.Or(child, d.Name)
		case isIPoIB && p.HasGUID(d.HWAddr):
			return d.Name
		case isIPoIB || d.Address != h.Address || d.Parent != "" || p.LinkLayer == device.InfiniBand:
		case d.Port == int(p.Number)-1 || len(h.Ports) == 1:
			return d.Name
		}
	}
	return child
}

// HasGUID says whether the hardware address of an IPoIB interface, as sysfs prints it, is on this port: its bytes 4 to
// 19 are a GID (RFC 4391, section 9.1.1), and the second half of that the port's GUID.
func (p *Port) HasGUID(hwaddr string) bool {
	hex := strings.ReplaceAll(hwaddr, ":", "")
	return len(hex) == 40 && strings.EqualFold(strings.ReplaceAll(p.GUID.String(), ":", ""), hex[24:])
}
