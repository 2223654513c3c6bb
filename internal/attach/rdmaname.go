package attach

import (
	"fmt"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// rdmaName decides under which name the RDMA device goes into the pod. The attachment exists.
func (d *decider) rdmaName() {
	a := d.decision.Attachment
	if !a.MoveRDMA {
		return
	}
	if o := d.RDMANameHolder; o != "" {
		d.refuse(&Refusal{
			Reason: InUse,
			Message: fmt.Sprintf("field \"rdmaName\": value %q is the name of %s: before Linux 7.3 names of RDMA "+
				"devices are unique in the whole system, and that device could not return under its own",
				d.Config.RDMAName, o),
			Hint:    "choose a name that no device has on any host, like mlx5_rail0",
			Passing: true,
		})
	}
	if d.Config.RDMAName == netconf.RDMANameAuto {
		cfg := *a.Config
		cfg.RDMAName = d.freeRDMAName()
		a.Config = &cfg
	}
}

// freeRDMAName is the lowest mlx5_N that no device in the pod has: the first rail of a pod is mlx5_0, the second
// mlx5_1, whatever they are called on the host. Where names are unique in the whole system a device keeps its own: any
// other could be one that a device, which is elsewhere now, needs when it returns to the host.
func (f *Facts) freeRDMAName() string {
	if !f.RDMANamesPerNetns {
		return ""
	}
	for n := 0; ; n++ {
		if name := fmt.Sprintf("mlx5_%d", n); !slices.Contains(f.RDMANamesInPod, name) {
			return name
		}
	}
}
