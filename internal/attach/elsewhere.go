package attach

import (
	"fmt"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Place is where an interface was found that is not on the host. The pod there has chosen the name.
type Place struct{ Interface, Netns string }

// atHome refuses an InfiniBand HCA whose interface is somewhere else: another plugin has put it into a pod, and the
// move of the RDMA device would destroy it there (kernel fact 1). With the module ib_ipoib every InfiniBand port has
// one.
func (d *decider) atHome() {
	dev := d.Device
	if dev.Netdev != nil || dev.HCA == nil || !d.IPoIBLoaded || d.Owner != nil ||
		!slices.ContainsFunc(dev.HCA.Ports, func(p device.Port) bool { return p.LinkLayer == device.InfiniBand }) {
		return
	}
	where := "it was found in no network namespace"
	if p := d.Elsewhere; p != nil {
		where = fmt.Sprintf("it is %q in the network namespace %s", p.Interface, p.Netns)
	}
	d.refuse(&Refusal{
		Reason:  InUse,
		Message: fmt.Sprintf("the IPoIB interface of RDMA device %s is not on the host: %s", dev.HCA.Name, where),
		Hint: "another plugin or tool has moved it: end what uses it, or chain this plugin to that one " +
			"(\"mode\": \"rdma\")",
		Passing: d.Elsewhere != nil,
	})
}
