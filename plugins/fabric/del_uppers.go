package fabric

import (
	"net"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// removedUppers is apply.Events' Removed. The pod has chosen the names, and their number: the log has the first ten.
func (s *session) removedUppers(all []device.Netdev) {
	for i := range all[:min(len(all), 10)] {
		s.log.Warn("removed what the pod had made on the device", "interface", all[i].Name, "kind", all[i].Kind,
			"removed", len(all))
	}
}

// keptChildren are the IPoIB children that other attachments have in the pod of this one. They are read only where a
// child could be taken for one on this device: where its IPoIB netdev has moved without the RDMA device.
func (s *session) keptChildren(e *journal.Entry) []plan.KeptChild {
	if e.Kind != journal.KindDevice || e.MoveRDMA || e.Netdev == nil || !e.Netdev.IsIPoIB() {
		return nil
	}
	var out []plan.KeptChild
	for _, o := range s.store.Of(e.ContainerID) {
		if o.Child != nil {
			hw, _ := net.ParseMAC(o.Child.HWAddr) // not known yet: then the group has to do
			out = append(out, plan.KeptChild{HWAddr: hw, Group: o.Child.Group})
		}
	}
	return out
}
