package attach

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// AllocatedDevices are those of one resource that kubelet has given to a pod. It does not say which network gets which:
// Multus takes them as kubelet lists them, and that is in no order.
type AllocatedDevices struct {
	Devices []AllocatedDevice
	// Keep is set where the network has to get the device that Multus names: nobody wants another one, or the pod's
	// network-status would name the wrong one.
	Keep bool
}

// AllocatedDevice is one of these devices.
type AllocatedDevice struct {
	ID      string // as kubelet calls it
	Address device.Address
	PCI     string // PCI address of the device or of the function below it; empty without one
	Named   bool   // by Multus, for this network
	Taken   bool   // another interface of the container has it
	Lacking bool   // it lacks an interface or an RDMA device that the named one has: another plugin has moved it
}

// Sort puts devices into rail order: that of their PCI addresses, which is the same on nodes of one make, whatever the
// devices are called. Devices of one function are in the order of their own addresses.
func (r *AllocatedDevices) Sort() {
	slices.SortFunc(r.Devices, func(a, b AllocatedDevice) int {
		pci := func(d AllocatedDevice) device.Address { return device.Address{Bus: "pci", Name: d.PCI} }
		if c := pci(a).Compare(pci(b)); c != 0 {
			return c
		}
		return a.Address.Compare(b.Address)
	})
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
