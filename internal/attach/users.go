package attach

import (
	"fmt"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// MayMoveRDMA says whether an attachment could move the RDMA device of its device: then it matters what uses that.
func (f *Facts) MayMoveRDMA() bool {
	return f.NetnsMode == device.NetnsExclusive && f.Device != nil && f.Device.HCA != nil &&
		f.Config.Mode != netconf.ModeIPoIB && f.Config.RDMA != netconf.RDMANone
}

// AllowsHostUse says whether the node policy lets the device go although the host uses it.
func (f *Facts) AllowsHostUse() bool { return f.Policy != nil && f.Policy.HostUse(f.policyDevice()) }

// refuseHostUse refuses an RDMA device that the host uses: the move ends the connections of all its users, and with
// them the disks or file systems that are reached over it.
func (d *decider) refuseHostUse() {
	if !d.decision.MoveRDMA || len(d.Users) == 0 || d.AllowsHostUse() {
		return
	}
	d.refuse(&Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("RDMA device %s is in use by the host: %s; the move would cut its connections",
			d.Device.HCA.Name, strings.Join(d.Users, ", ")),
		Hint: "end that, select another device, or allow it: allowHostUse in " + policyPath,
	})
}
