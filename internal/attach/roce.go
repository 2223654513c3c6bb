package attach

import (
	"fmt"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// refuseRoCE refuses what a configuration asks for a RoCE port, and the device does not have or does not take along.
func refuseRoCE(d *decider) {
	field, c := "", d.Config
	switch {
	case c.Class != nil:
		field = fmt.Sprintf("field \"trafficClass\": value %d", *c.Class)
	case c.TOS != nil:
		field = fmt.Sprintf("field \"tos\": value %d", *c.TOS)
	case c.RoCEMode != "":
		field = fmt.Sprintf("field \"roceMode\": value %q", c.RoCEMode)
	default:
		return
	}
	h := d.Device.HCA
	r := &Refusal{Reason: BadConfig, Hint: "remove the field, or select another device"}
	switch {
	case h == nil:
		r.Message = field + ": device " + d.Device.DeviceKey + " has no RDMA device"
	case !h.Has(device.Ethernet):
		r.Message = field + ": RDMA device " + h.Name + " has no RoCE port"
	case !d.decision.MoveRDMA:
		r.Message = field + ": RDMA device " + h.Name + " stays on the host, where all pods share it: the system's " +
			"RDMA network namespace mode is shared"
		r.Hint = "set it on the host, for all pods (cma_roce_tos -d " + h.Name + "), and remove the field"
	case c.Class != nil && !slices.ContainsFunc(h.Ports, func(p device.Port) bool { return p.TrafficClass != nil }):
		r.Message = field + ": the driver of RDMA device " + h.Name + " has no traffic class for all queue pairs: " +
			"that of NVIDIA's driver package has"
		r.Hint = "remove the field, and have programs set theirs (NCCL_IB_TC, UCX_IB_TRAFFIC_CLASS)"
	case h.Ports[0].CM == nil && !d.Namesake && (c.TOS != nil || c.RoCEMode != ""):
		r.Message = field + ": the connection manager's defaults of RDMA device " + h.Name + " can't be read"
		r.Hint = "mount configfs on /sys/kernel/config, and load the module rdma_cm"
	default:
		return
	}
	d.refuse(r)
}
