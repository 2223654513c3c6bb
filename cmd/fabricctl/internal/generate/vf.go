package generate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// vfIDs are the device ids of the virtual functions of a physical one, where there are none yet to look at (PCI ID
// database). Without the id a selector by rootDevices would take the PF itself, as long as it has no VFs.
var vfIDs = map[string]string{
	"1013": "1014",
	"1015": "1016",
	"1017": "1018",
	"1019": "101a",
	"101b": "101c",
	"101d": "101e",
	"101f": "101e",
	"1021": "101e",
	"1023": "101e",
	"a2d6": "101e",
	"a2dc": "101e",
}

// functions are the VFs of the ports of one rail.
type functions struct {
	perNode int // the most that a node has; without any, 0
	most    int // that the hardware allows
}

// virtual makes one network per rail, for VFs: any VF of a resource may be given, so one resource for all rails would
// put the interfaces of a pod on one port.
func virtual(f *topology.Fabric, nodes int, all []*node.Node) (out []Network) {
	for _, r := range f.Rails {
		var have functions
		for _, p := range r.Ports {
			if pf := hca(all, &p); pf != nil && p.Kind == "PF" {
				have.perNode, have.most = max(have.perNode, pf.VFs), max(have.most, pf.MaxVFs)
			}
		}
		if have.most == 0 {
			continue // it has no SR-IOV, or it is off in firmware
		}
		reason := fmt.Sprintf("VFs on rail %d of %s: %s; ", r.Index, f.Name, r.Reason)
		if have.perNode == 0 {
			reason += fmt.Sprintf("there are none yet, up to %d can be made", have.most)
		} else {
			reason += fmt.Sprintf("%d of %d on a node", have.perNode, have.most)
		}
		out = append(
			out,
			Network{
				Name:   fmt.Sprintf("%s-rail%d-vf", f.Name, r.Index),
				Fabric: f,
				Rails:  []topology.Rail{r},
				Need:   nodes * cmp.Or(have.perNode, have.most),
				Reason: reason,
				VFs:    true,
			},
		)
	}
	return out
}

// hca is the device of a port.
func hca(all []*node.Node, p *topology.Port) *node.HCA {
	for _, n := range all {
		if n.Name == p.Node {
			return n.HCA(p.HCA)
		}
	}
	return nil
}

// vfResource selects the VFs of a rail's port on one node: by the PF's address, which does not change when VFs are made
// again.
func vfResource(n *Network, r Resource, on *node.Node) Resource {
	for _, p := range n.Rails[0].Ports {
		pf := on.HCA(p.HCA)
		if p.Node != on.Name || p.Kind != "PF" || pf == nil || pf.MaxVFs == 0 {
			continue
		}
		vendor, dev, _ := strings.Cut(p.Device, ":")
		id := vfIDs[dev]
		for i := range on.HCAs {
			if v := &on.HCAs[i]; v.Kind == "VF" && v.Parent == p.PCI {
				_, id, _ = strings.Cut(v.ID, ":")
			}
		}
		r.Roots, r.Vendors = append(r.Roots, p.PCI), add(r.Vendors, vendor)
		r.Devices = add(r.Devices, id)
		if pf.VFs == 0 {
			r.Hints = append(r.Hints, fmt.Sprintf(
				"on %s: echo 8 >%s makes VFs (up to %d)",
				on.Name,
				quote.Shell("/sys/bus/pci/devices/"+p.PCI+"/sriov_numvfs"),
				pf.MaxVFs,
			))
		}
	}
	return r
}

// has tells whether the resource selects anything.
func (r *Resource) has() bool { return len(r.Addresses)+len(r.Roots) > 0 }

func add(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// InfiniBand tells which settings a VF of the network can have.
func (n *Network) InfiniBand() bool { return n.Fabric.LinkLayer == device.InfiniBand }
