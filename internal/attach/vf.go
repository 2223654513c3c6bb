package attach

import (
	"fmt"
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// vf judges the device as a virtual function, and decides what the configuration changes of it.
func (d *decider) vf() {
	want, dev, vf := &d.Config.VF, d.Device, d.VF
	if want.IBKubernetes && want.IBKubernetesState != "configured" {
		d.refuse(&Refusal{
			Reason: NotYet,
			Message: fmt.Sprintf("ib-kubernetes has not configured the partition of this pod yet "+
				"(args.cni.mellanox.infiniband.app is %q)", want.IBKubernetesState),
			Hint: "try again; is ib-kubernetes running, and does it watch networks with a plugin of the type " +
				"\"ib-sriov\"?",
			Passing: true,
		})
	}
	if want.VFIO && !slices.Contains(userspace, dev.Driver) {
		d.refuse(&Refusal{
			Reason: BadConfig,
			Message: fmt.Sprintf("field \"vfioPciMode\": device %s is bound to driver %q, not to one of %v",
				dev.DeviceKey, dev.Driver, userspace),
			Hint: "bind it to vfio-pci, or remove the field",
		})
	}
	if vf == nil {
		d.refuse(d.noVF())
		return
	}
	if r := wrongKind(want, vf); r != nil {
		d.refuse(r)
		return
	}
	if vf.PFName == "" {
		asked := askedVF(want)
		if len(asked) > 0 {
			d.refuse(&Refusal{
				Reason: NoDevice,
				Message: fmt.Sprintf("field %q: PF %s of %s has no netdev on the host, through which its VFs are "+
					"configured", asked[0], vf.PF.Name, dev.DeviceKey),
				Hint: "return the PF to the host, load its driver (ib_ipoib for InfiniBand), or remove the field",
			})
		}
		if len(asked) > 0 || !d.OtherTenant {
			return
		}
	}
	a := d.decision.Attachment
	a.VF, a.Change = vf, plan.AttachVF(want, vf, dev.HCA, dev.Netdev, d.OtherTenant)
	if d.Policy != nil {
		d.refuse(byPolicy(d.Policy.SetVF(d.policyDevice(), &vf.VFAttrs, &a.Change.To, a.Change.Set)))
	}
	a.AwaitPort = a.Change.Rebind && !a.Change.Anew || slices.Contains(a.Change.Set, device.VFLinkState)
	if vf.PFName != "" {
		d.guid()
	}
}

// noVF refuses what only a VF has. A netdev that is no VF can have another hardware address all the same.
func (f *Facts) noVF() *Refusal {
	asked := askedVF(&f.Config.VF)
	if f.Device.Netdev != nil && !f.Device.Netdev.IsIPoIB() {
		asked = slices.DeleteFunc(asked, func(f string) bool { return f == "mac" })
	}
	if len(asked) == 0 {
		return nil
	}
	return &Refusal{
		Reason: BadConfig,
		Message: fmt.Sprintf("field %q: it is a setting of a virtual function, and device %s is not one",
			asked[0], f.Device.DeviceKey),
		Hint: "remove the field, or select a VF",
	}
}

// wrongKind refuses settings of the other kind of VF.
func wrongKind(want *netconf.VF, vf *device.VF) *Refusal {
	kind, others := "an Ethernet", device.InfiniBandVF
	if vf.IB {
		kind, others = "an InfiniBand", device.EthernetVF
	}
	for _, f := range want.Asked() {
		if f.Attrs[0].Kind() == others {
			return &Refusal{
				Reason: BadConfig,
				Message: fmt.Sprintf("field %q: VF %d of %s is %s one, which has no such setting",
					f.Name, vf.Index, vf.PFName, kind),
				Hint: "remove the field",
			}
		}
	}
	return nil
}

// askedVF names the settings of a VF that a configuration asks for.
func askedVF(want *netconf.VF) []string {
	var out []string
	for _, f := range want.Asked() {
		out = append(out, f.Name)
	}
	return out
}

// guid makes sure that an InfiniBand VF has a GUID of its own: the subnet manager knows a port by it, and gives it the
// partitions of the port that had it before.
func (d *decider) guid() {
	want, dev, vf := d.Config.VF.GUID, d.Device, d.VF
	switch {
	case !vf.IB:
	case want != nil && d.GUIDHolder != "":
		d.refuse(&Refusal{
			Reason:  InUse,
			Message: fmt.Sprintf("field \"guid\": value %s: the GUID is already in use by %s", want, d.GUIDHolder),
			Hint:    "choose another one: a GUID is unique in its fabric",
		})
	case want == nil && dev.HCA != nil && dev.HCA.NodeGUID.IsUnset():
		d.refuse(&Refusal{
			Reason: PortDown,
			Message: fmt.Sprintf("VF %d of %s (%s) has no GUID (%s), so no subnet manager brings its port up",
				vf.Index, vf.PFName, dev.DeviceKey, dev.HCA.NodeGUID),
			Hint: fmt.Sprintf("configure one: \"guid\", runtimeConfig.infinibandGUID (capability infinibandGUID), or "+
				"ip link set %s vf %d node_guid and port_guid", vf.PFName, vf.Index),
		})
	}
}
