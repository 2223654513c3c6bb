package node

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// KeptOnHost is why the node policy keeps an HCA on the host; nil: a pod may get it. That is what the node itself says.
// Of a picture that does not tell, such as an older recording, the built-in policy judges what the picture has.
func (n *Node) KeptOnHost(h *HCA) error {
	if n.Kept != nil {
		if why, ok := n.Kept[h.Name]; ok {
			return errors.New(why)
		}
		return nil
	}
	at := h.Location()
	on := func(d Netdev) bool {
		return d.Bond == nil && (!d.Address.IsZero() && d.Address == at.Address ||
			d.Address.IsZero() && d.PCI != "" && d.PCI == at.Address.PCI())
	}
	var d *Netdev
	if i := slices.IndexFunc(n.Netdevs, on); i >= 0 {
		d = &n.Netdevs[i]
	}
	for i := 0; d == nil && i < len(h.Ports); i++ {
		d = n.Netdev(h.Ports[i].Netdev)
	}
	if d == nil && h.Bond == "" {
		return nil
	}
	return policy.Default("").Move(n.asked(h, d))
}

// Keep notes why the node policy keeps an RDMA device: in one line without quotes, as text of a picture is.
func Keep(kept map[string]string, hca string, why error) {
	kept[hca] = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("\"\\`", r) {
			return '\''
		}
		return r
	}, why.Error())
}

// asked is what a policy looks at. d is the interface of the HCA; nil: it is in another network namespace.
func (n *Node) asked(h *HCA, d *Netdev) policy.Device {
	at := h.Location()
	out := policy.Device{
		Address: at.Address, PCI: at.PCI, HCA: &device.HCA{Name: h.Name}, Netdev: &device.Netdev{Name: h.Bond},
		Uplink: &device.Uplink{}, Shared: n.RDMAMode == device.NetnsShared.String(),
	}
	if d != nil {
		out.Netdev.Name, out.Netdev.AltNames = d.Name, d.AltNames
	}
	const someIndex = 1 // a picture has names
	if h.Bond != "" || d != nil && d.Master != "" {
		out.Netdev.Master = someIndex
	}
	for hops := 0; d != nil && hops < len(n.Netdevs); hops++ {
		c := device.Carrier{Name: d.Name}
		if d.Default {
			c.Routes = []device.Route{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Table: tableMain}}
		}
		out.Uplink.Interfaces = append(out.Uplink.Interfaces, c)
		d = n.Netdev(cmp.Or(d.Master, d.Parent))
	}
	return out
}

const tableMain = 254 // RT_TABLE_MAIN
