package attach

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// NeedsPartition says whether a configuration depends on a partition of an InfiniBand port: a child does, and a device
// whose pod is promised one.
func NeedsPartition(c *netconf.Config) bool {
	return c.PKey != 0 && NeedsPorts(c) && (c.Mode == netconf.ModeIPoIB || !c.AllowDown)
}

// refusePartition refuses a PKey that no port has, or that of a device without InfiniBand.
func (d *decider) refusePartition() {
	h := d.Device.HCA
	if h == nil || !NeedsPartition(d.Config) {
		return
	}
	if d.Config.Mode == netconf.ModeDevice && !h.Has(device.InfiniBand) {
		d.refuse(&Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("field \"pkey\": value %s: RDMA device %s has no InfiniBand port",
				d.Config.PKey, h.Name),
			Hint: "remove the field, or select another device",
		})
		return
	}
	if d.PKeysKnown {
		d.refuse(JudgePartition(d.Config.PKey, h.Name, d.PKeys))
	}
}

// JudgePartition refuses an RDMA device whose port does not have a PKey, as full or limited member: no packet of that
// partition would reach the pod, and a child would never get carrier. The subnet manager writes the port's table, soon
// after the port has come up or its own configuration has changed.
func JudgePartition(pkey device.PKey, hca string, held []device.PKey) *Refusal {
	for _, k := range held {
		if k|device.FullMember == pkey|device.FullMember {
			return nil
		}
	}
	return &Refusal{
		Reason: PortDown,
		Message: fmt.Sprintf("field \"pkey\": value %s: %s port 1 is not a member of this partition, it has %v",
			pkey, hca, held),
		Hint:    "add the port's GUID to the partition at the subnet manager",
		Awaited: true,
	}
}
