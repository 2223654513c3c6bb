package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// roceHeaders are the bytes that RoCE v2 adds to what a packet carries (drivers: iboe_get_mtu of rdma/ib_addr.h):
// global routing header, UDP, base transport header, XRC, atomic extension and check sum.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// roceMTU is the active MTU of a RoCE port (ibv_devinfo), which follows the MTU of its interface; 0 if it has no room
// for the least.
func roceMTU(netdev int) int {
	for mtu := 4096; mtu >= 256; mtu /= 2 {
		if netdev-roceHeaders >= mtu {
			return mtu
		}
	}
	return 0
}

// packets says how much an RDMA packet of the RoCE fabrics carries, with as few packets as the interfaces allow.
func (h *Host) packets(f topology.Fabrics) string {
	var out []string
	for i := range f.Fabrics {
		if f.Fabrics[i].LinkLayer != device.Ethernet {
			continue
		}
		for _, p := range f.Fabrics[i].On(h.Node.Name) {
			d := h.Node.Netdev(p.Netdev)
			if d == nil || p.Kind != "PF" {
				continue
			}
			text := fmt.Sprintf("; %s: MTU %d, RDMA packets of %d bytes", f.Fabrics[i].Name, d.MTU, roceMTU(d.MTU))
			if roceMTU(d.MTU) < 4096 {
				text += fmt.Sprintf(" (4096 take an MTU of %d, on the switches, too)", 4096+roceHeaders)
			}
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, "")
}

// modes finds InfiniBand fabrics whose interfaces on the node are in different modes of IPoIB: one in connected mode
// sends packets that the others can't take.
func (h *Host) modes(f topology.Fabrics) (out []Finding) {
	for i := range f.Fabrics {
		by := map[string][]string{}
		for _, p := range f.Fabrics[i].On(h.Node.Name) {
			if m := h.Links[p.Netdev].Mode; p.LinkLayer == device.InfiniBand && p.Kind == "PF" && m != "" {
				by[m] = append(by[m], p.Netdev)
			}
		}
		if len(by) > 1 {
			d := finding("host-mtu", Warn, f.Fabrics[i].Name+": mode of IPoIB "+apart(by))
			d.Cure = "echo datagram >/sys/class/net/NETDEV/mode on all rails, before the MTU"
			out = append(out, d)
		}
	}
	return out
}
