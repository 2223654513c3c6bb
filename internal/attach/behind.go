package attach

import (
	"fmt"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Before is what the plugin before this one in the chain has attached, if that is this plugin too: a chain of another
// project, in which one plugin moved the interface and the next one the RDMA device, with both types changed.
type Before struct {
	Device   bool   // a whole device, and the one that this configuration means
	HCA      string // its RDMA device on the host; empty: it has none
	MoveRDMA bool   // which went along
	RDMAName string // under this name; empty: its own
}

const dropChained = `drop {"type": "fabric", "mode": "rdma"} from the chain`

// refuseDuplicateAdd judges an ADD of an attachment that is there, and complete. The runtime has to call DEL first,
// unless it is the second plugin of a chain, whose work the first one has done.
func (d *decider) refuseDuplicateAdd(o *Owner) {
	b := d.Before
	switch {
	case b == nil:
		d.refuse(&Refusal{
			Reason: InUse,
			Message: fmt.Sprintf("device %s is attached already, as %s of this very container (network %s)",
				o.DeviceKey, o.IfName, o.Network),
			Hint:    "DEL of that attachment returns it",
			Passing: true,
		})
	case !b.Device:
		d.refuse(&Refusal{
			Reason: InUse,
			Message: fmt.Sprintf("%s of this very container has device %s already, by the plugin before this one in "+
				"the chain", o.IfName, o.DeviceKey),
			Hint: dropChained + ": each attachment has one device, and type fabric moves its RDMA device along",
		})
	case b.HCA == "":
		d.refuse(&Refusal{
			Reason: NoDevice,
			Message: fmt.Sprintf("device %s, which the plugin before this one in the chain has attached, has no RDMA "+
				"device", o.DeviceKey),
			Hint: "load its RDMA driver, or " + dropChained,
		})
	case !b.MoveRDMA && d.NetnsMode == device.NetnsExclusive:
		d.refuse(&Refusal{
			Reason: InUse,
			Message: fmt.Sprintf("the plugin before this one in the chain has attached device %s without its RDMA "+
				"device (\"rdma\": \"none\")", o.DeviceKey),
			Hint: `leave "rdma" and "rdmaIsolation" out there, so that it moves both, and ` + dropChained,
		})
	case d.Config.RDMAName != "" && d.Config.RDMAName != b.RDMAName &&
		(d.Config.RDMAName != netconf.RDMANameAuto || b.RDMAName == ""):
		d.refuse(&Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("field \"rdmaName\": value %q: the plugin before this one in the chain has moved "+
				"RDMA device %s", d.Config.RDMAName, b.HCA),
			Hint: `write "rdmaName" there, and ` + dropChained,
		})
	default:
		if r := JudgeMode(d.Config.RDMA, d.NetnsMode, d.RDMA, b.HCA); r != nil {
			d.refuse(r)
			return
		}
		d.decision.Done = true
		d.decision.Warnings = append(d.decision.Warnings, fmt.Sprintf("nothing is left to do: the plugin before this "+
			"one in the chain has attached device %s with its RDMA device; %s", o.DeviceKey, dropChained))
	}
}
