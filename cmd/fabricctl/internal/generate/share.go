package generate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/topology"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// SharedPrefix is that of the resources of the RDMA shared device plugin, unless its configuration says another.
const SharedPrefix = "rdma"

// onMasters makes a network for each rail, whose interfaces are on that of the host: what pods with the devices of the
// RDMA shared device plugin can have. Each has a range of its own.
func onMasters(list []Network) (out []Network, err error) {
	for i := range list {
		n := &list[i]
		for j, r := range n.Rails {
			called := map[string][]string{}
			for _, p := range r.Ports {
				if p.Kind == "PF" {
					called[p.Netdev] = append(called[p.Netdev], p.Node)
				}
			}
			names := slices.Sorted(maps.Keys(called))
			if len(names) != 1 || names[0] == "" {
				var text []string
				for _, name := range names {
					text = append(text, fmt.Sprintf("%q on %s", name, few(called[name])))
				}
				return nil, fmt.Errorf("rail %d of %s: a network of pods that share devices names one interface, and "+
					"this one is %s: give it one name on all nodes (udev, netplan), or write networks for some of "+
					"the nodes",
					r.Index, n.Fabric.Name, strings.Join(text, ", "))
			}
			one := *n
			one.Name, one.Master, one.Rails, one.Shared = railName(n, j), names[0], []topology.Rail{r}, true
			one.Need = n.Need / len(n.Rails)
			one.Reason = fmt.Sprintf("rail %d of %s: %s", r.Index, n.Fabric.Name, r.Reason)
			out = append(out, one)
		}
	}
	return out, nil
}

// railName is the network of one rail, if pods share devices.
func railName(n *Network, i int) string {
	if n.Fabric.Planes { // a network is one rail already
		return n.Name
	}
	return fmt.Sprintf("%s-rail%d", n.Name, n.Rails[i].Index)
}

// exclusive notes that the shared device plugin does not work on some nodes as they are.
func (d *data) exclusive(nodes []*node.Node) {
	var names []string
	for _, n := range nodes {
		if n.RDMAMode == "exclusive" {
			names = append(names, n.Name)
		}
	}
	if d.Shared && len(names) > 0 {
		d.Note = fmt.Sprintf("The RDMA mode is exclusive on %s: there the RDMA shared device plugin gives pods "+
			"devices that they can't see. It needs mode shared (options ib_core netns_mode=1, and "+
			"a reboot)", few(names))
	}
}

// sharedFabrics leaves one device to a pod of Fabrics that generate fabric would write with attachment IPoIBChild:
// there a second share may be one of the same device.
func (d *data) sharedFabrics(nodes []*node.Node) {
	for i := range d.Workload {
		x := Object{Network: d.Workload[i], Attachment: v1alpha1.WholeDevice}
		if x.mode(nodes); x.Attachment == v1alpha1.IPoIBChild {
			n := &d.Workload[i]
			n.Shared, n.Rails = true, n.Rails[:1]
		}
	}
}

// Count is how many of its resource a pod asks for. One of the shared device plugin is all devices of the resource.
func (d *data) Count(n Network) int {
	if d.Shared {
		return 1
	}
	return len(n.devices())
}

// SharedFabric tells whether the workload's pods share the devices of a Fabric.
func (d *data) SharedFabric() bool { return len(d.Workload) > 0 && d.Workload[0].Shared && !d.Shared }

// SharedRoCE tells whether pods have interfaces on those of the host, beside the shared device plugin's devices.
func (d *data) SharedRoCE() bool {
	return d.Shared && len(d.Workload) > 0 && !d.Workload[0].InfiniBand()
}
