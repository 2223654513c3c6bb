package attach

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Place is where an interface was found that is not on the host. The pod there has chosen the name.
type Place struct{ Interface, Netns string }

// refuseNotOnHost refuses an HCA whose interface is somewhere else: another plugin has put it into a pod, and the move
// of the RDMA device would destroy it there (InfiniBand, kernel fact 1) or take its RDMA (Ethernet). With the module
// ib_ipoib every InfiniBand port has an interface. A RoCE port may have none, as that of a subfunction without
// Ethernet: it is one whose interface was found, or that sysfs has a name of.
func (d *decider) refuseNotOnHost() {
	dev := d.Device
	if dev.Netdev != nil || dev.HCA == nil || d.Owner != nil {
		return
	}
	kind := ""
	switch {
	case dev.HCA.Has(device.InfiniBand) && d.IPoIBLoaded:
		kind = "IPoIB interface"
	case dev.HCA.Has(device.Ethernet) && (d.Elsewhere != nil || d.StrayNetdev):
		kind = "interface"
	default:
		return
	}
	where := "it was found in no network namespace"
	if p := d.Elsewhere; p != nil {
		where = fmt.Sprintf("it is %q in the network namespace %s", p.Interface, p.Netns)
	}
	d.refuse(&Refusal{
		Reason:  InUse,
		Message: fmt.Sprintf("the %s of RDMA device %s is not on the host: %s", kind, dev.HCA.Name, where),
		Hint: "another plugin or tool has moved it: end what uses it, or chain this plugin to that one " +
			"(\"mode\": \"rdma\")",
		Passing: d.Elsewhere != nil,
	})
}
