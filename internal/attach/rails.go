package attach

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// AllocatedDevices are those of one resource that kubelet has given to a pod. It does not say which network gets which:
// Multus takes them as kubelet lists them, and that is in no order.
type AllocatedDevices struct {
	Devices []AllocatedDevice
	// Keep is set where the network has to get the device that Multus names: rail order is not wanted, or the pod's
	// network-status would name the wrong device.
	Keep bool
}

// AllocatedDevice is one of these devices.
type AllocatedDevice struct {
	device.Location
	ID      string // as kubelet calls it
	Named   bool   // by Multus, for this network
	Taken   bool   // another interface of the container has it
	Lacking bool   // it lacks an interface or an RDMA device that the named one has: another plugin has moved it
}

// Sort puts devices into rail order.
func (r *AllocatedDevices) Sort() {
	slices.SortFunc(r.Devices, func(a, b AllocatedDevice) int { return a.Compare(b.Location) })
}

// Choose returns which of the devices this interface gets: the first one in rail order that no other interface of the
// container has. So each of N networks gets one of N devices, whichever comes first, and one that is attached again
// gets what the others have left. It returns -1 if they have left nothing.
func (r *AllocatedDevices) Choose() int {
	if i := slices.IndexFunc(r.Devices, func(d AllocatedDevice) bool { return d.Named && !d.Taken }); i >= 0 && r.Keep {
		return i
	}
	return slices.IndexFunc(r.Devices, func(d AllocatedDevice) bool { return !d.Taken && !d.Lacking })
}
