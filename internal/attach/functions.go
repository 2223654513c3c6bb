package attach

import "fmt"

// refuseRelatedFunctions refuses a VF whose PF is in a pod, and a PF whose VFs are: the settings of a VF are made on
// its PF, by the PF's holder. The PF's pod could give the VF another GUID, MAC address or VLAN, and without the PF the
// VF could be neither configured nor returned in order.
func (d *decider) refuseRelatedFunctions() {
	if o := d.PFOwner; o != nil {
		d.refuseRelatedFunction(o, fmt.Sprintf("PF %s of VF %s", d.PF.Name, d.Device.DeviceKey))
	}
	for i := range d.VFOwners {
		v := &d.VFOwners[i]
		if d.refuseRelatedFunction(&v.Owner, fmt.Sprintf("VF %s of PF %s", v.VF, d.Device.DeviceKey)) {
			return
		}
	}
}

// refuseRelatedFunction judges the attachment that has a PF of this VF or a VF of this PF. One whose pod is gone is
// returned first.
func (d *decider) refuseRelatedFunction(o *Owner, what string) (refused bool) {
	if o.reclaimable() {
		d.reclaim(o, what)
		return false
	}
	whose := o.who()
	if o.ContainerID == d.ContainerID {
		whose = "this very container"
	}
	d.refuse(&Refusal{
		Reason:  InUse,
		Message: fmt.Sprintf("%s is in use by %s as %s", what, whose, o.IfName),
		Hint:    "delete that pod first: a PF and its VFs can't be in pods at the same time",
		Passing: true,
	})
	return true
}
