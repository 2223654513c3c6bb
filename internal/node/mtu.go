package node

import "github.com/fabric-cni/fabric-cni/pkg/device"

// mtus works out what the ports of RoCE devices carry.
func (n *Node) mtus(h *HCA) {
	for i := range h.Ports {
		p := &h.Ports[i]
		if d := n.Netdev(p.Netdev); d != nil && p.LinkLayer == device.Ethernet {
			p.ActiveMTU = roceMTU(d.MTU)
		}
	}
}

// roceMTU is the MTU of RDMA on an Ethernet interface with this MTU: the largest that InfiniBand knows which fits with
// all headers (include/rdma/ib_addr.h, iboe_get_mtu: GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4).
func roceMTU(netdev int) int {
	for m := 4096; m >= 256; m /= 2 {
		if netdev-96 >= m {
			return m
		}
	}
	return 0
}
