package netconf

import "github.com/fabric-cni/fabric-cni/pkg/device"

// VFField is a field, or several that go together, with which a configuration asks for settings of a VF.
type VFField struct {
	Name  string // as errors spell it
	Attrs []device.VFAttr
	Set   func(to *device.VFAttrs) // leaves what is not asked for
}

// Asked lists what the configuration asks for.
func (v *VF) Asked() []VFField {
	var out []VFField
	for _, f := range vfFields {
		if f.asked(v) {
			out = append(out, VFField{f.name, f.attrs, func(to *device.VFAttrs) { f.set(v, to) }})
		}
	}
	return out
}

var linkStates = map[string]uint32{
	"auto": device.VFLinkAuto, "enable": device.VFLinkEnable, "disable": device.VFLinkDisable,
}

// vfFields is the table of these fields: what asks, and what it means for the VF.
var vfFields = []struct {
	name  string
	attrs []device.VFAttr
	asked func(*VF) bool
	set   func(v *VF, to *device.VFAttrs)
}{
	{
		"guid", []device.VFAttr{device.VFNodeGUID, device.VFPortGUID},
		func(v *VF) bool { return v.GUID != nil },
		func(v *VF, to *device.VFAttrs) { to.NodeGUID, to.PortGUID = v.GUID, v.GUID },
	},
	{
		"linkState", []device.VFAttr{device.VFLinkState},
		func(v *VF) bool { return v.LinkState != "" },
		func(v *VF, to *device.VFAttrs) { to.LinkState = linkStates[v.LinkState] },
	},
	{
		"mac", []device.VFAttr{device.VFMAC},
		func(v *VF) bool { return v.MAC != nil },
		func(v *VF, to *device.VFAttrs) { to.MAC = v.MAC },
	},
	{
		"vlan", []device.VFAttr{device.VFVLAN},
		func(v *VF) bool { return v.VLAN != nil },
		setVLAN,
	},
	{
		"minTxRate, maxTxRate", []device.VFAttr{device.VFRate},
		func(v *VF) bool { return v.MinTxRate != nil || v.MaxTxRate != nil },
		setRates,
	},
	{
		"spoofchk", []device.VFAttr{device.VFSpoofChk},
		func(v *VF) bool { return v.SpoofChk != nil },
		func(v *VF, to *device.VFAttrs) { to.SpoofChk = v.SpoofChk },
	},
	{
		"trust", []device.VFAttr{device.VFTrust},
		func(v *VF) bool { return v.Trust != nil },
		func(v *VF, to *device.VFAttrs) { to.Trust = v.Trust },
	},
}

func setVLAN(v *VF, to *device.VFAttrs) {
	to.VLAN, to.QoS, to.Proto = *v.VLAN, 0, device.Proto8021Q
	if v.VLANQoS != nil {
		to.QoS = *v.VLANQoS
	}
	if v.VLANProto == "802.1ad" {
		to.Proto = device.Proto8021AD
	}
}

// setRates keeps the one that is not given.
func setRates(v *VF, to *device.VFAttrs) {
	if v.MinTxRate != nil {
		to.MinTxRate = uint32(*v.MinTxRate)
	}
	if v.MaxTxRate != nil {
		to.MaxTxRate = uint32(*v.MaxTxRate)
	}
}
