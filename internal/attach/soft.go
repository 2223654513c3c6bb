package attach

import (
	"fmt"
	"strings"
)

// Soft is a soft RDMA device: the drivers rxe and siw make them on a netdev, without any hardware.
type Soft struct {
	Name   string
	Netdev string // that it is on; empty: not known
}

// softSelected refuses a soft RDMA device: the kernel ends it when its netdev moves, and it has nothing else to move.
func (f *Facts) softSelected() *Refusal {
	field, value := Selected(f.Config)
	on := "a netdev"
	if f.Soft.Netdev != "" {
		on = f.Soft.Netdev
	}
	return &Refusal{
		Reason: NoDevice,
		Message: fmt.Sprintf("%s %q: RDMA device %s is a soft one (rxe, siw) on %s, without hardware: it can't be "+
			"moved, the kernel destroys it when %s moves", field, value, f.Soft.Name, on, on),
		Hint: "select an RDMA device with hardware, see: fabricctl discover",
	}
}

// noHardware refuses mode rdma for an interface in the pod that no device is behind: there is no RDMA device to move.
func (f *Facts) noHardware() *Refusal {
	what := "it has no RDMA device"
	if f.Soft != nil {
		what = fmt.Sprintf("its RDMA device %s is a soft one (rxe, siw), which can't be moved", f.Soft.Name)
	}
	return &Refusal{
		Reason:  NoDevice,
		Message: fmt.Sprintf("interface %s in the pod has no hardware: %s", f.Chained.NoHardware, what),
		Hint:    "leave this plugin out of the chain, or put an interface with hardware into the pod before it",
	}
}

// refuseSoftRDMA refuses a netdev that soft RDMA devices of the host are on: the kernel destroys them when the netdev
// leaves its network namespace, in both RDMA modes and without a message, and they are not made again. See kernel fact
// 45.
func (d *decider) refuseSoftRDMA() {
	if len(d.SoftRDMA) == 0 {
		return
	}
	name, devices := d.Device.Netdev.Name, "device"
	if len(d.SoftRDMA) > 1 {
		devices = "devices"
	}
	d.refuse(&Refusal{
		Reason: InUse,
		Message: fmt.Sprintf("%s carries the soft RDMA %s %s of the host (rxe, siw), which the kernel destroys when "+
			"%s moves", name, devices, strings.Join(d.SoftRDMA, ", "), name),
		Hint: "remove it first (rdma link delete " + d.SoftRDMA[0] + "), or select a device that carries none",
	})
}
