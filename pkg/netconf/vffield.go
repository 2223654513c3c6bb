package netconf

import (
	"net"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// VF holds the attributes of a virtual function. A nil pointer means: leave it as it is.
type VF struct {
	// GUID is the node and port GUID: runtimeConfig.infinibandGUID, args.cni.guid, or "guid" beside another selector.
	GUID      *device.GUID
	LinkState string // "auto", "enable", "disable"; empty: as it is
	MAC       net.HardwareAddr
	VLAN      *int   // 0 to 4094
	VLANQoS   *int   // 0 to 7
	VLANProto string // "802.1q", "802.1ad"
	MinTxRate *int   // Mb/s
	MaxTxRate *int   // Mb/s
	SpoofChk  *bool
	Trust     *bool

	IBKubernetes      bool   // ibKubernetesEnabled: refuse until ib-kubernetes has configured the partition
	IBKubernetesState string // args.cni["mellanox.infiniband.app"]
	VFIO              bool   // vfioPciMode
}

// vfField is a row of the table of settings: the fields of a configuration that ask for a setting of a VF, how they are
// read into VF, and what they mean for the VF. A new setting is a field of VF and a row here, beside its row in
// pkg/device and its codec in internal/link.
type vfField struct {
	name  string // as errors spell it
	keys  []field
	attrs []device.VFAttr
	read  func(p *parser, v *VF)
	asked func(*VF) bool
	set   func(v *VF, to *device.VFAttrs)
}

var vfFields = []vfField{
	{
		"guid", nil, []device.VFAttr{device.VFNodeGUID, device.VFPortGUID}, // the key is a selector's, too
		(*parser).runtimeGUID,
		func(v *VF) bool { return v.GUID != nil },
		func(v *VF, to *device.VFAttrs) { to.NodeGUID, to.PortGUID = v.GUID, v.GUID },
	},
	{
		"linkState", []field{{"linkState", ours}, {"link_state", peer}}, []device.VFAttr{device.VFLinkState},
		func(p *parser, v *VF) {
			f := p.get("linkState", "link_state")
			v.LinkState = p.choice(f, false, "auto", "enable", "disable")
			p.askedBy(f, v.LinkState != "")
		},
		func(v *VF) bool { return v.LinkState != "" },
		func(v *VF, to *device.VFAttrs) { to.LinkState = linkStates[v.LinkState] },
	},
	{
		"mac", []field{{"mac", peer}}, []device.VFAttr{device.VFMAC},
		(*parser).mac,
		func(v *VF) bool { return v.MAC != nil },
		func(v *VF, to *device.VFAttrs) { to.MAC = v.MAC },
	},
	{
		"vlan", []field{{"vlan", peer}, {"vlanQoS", peer}, {"vlanProto", peer}}, []device.VFAttr{device.VFVLAN},
		(*parser).vlan,
		func(v *VF) bool { return v.VLAN != nil },
		setVLAN,
	},
	{
		"minTxRate, maxTxRate",
		[]field{{"minTxRate", ours}, {"maxTxRate", ours}, {"min_tx_rate", peer}, {"max_tx_rate", peer}},
		[]device.VFAttr{device.VFRate},
		(*parser).rates,
		func(v *VF) bool { return v.MinTxRate != nil || v.MaxTxRate != nil },
		setRates,
	},
	vfOnOff("spoofchk", device.VFSpoofChk, func(v *VF) **bool { return &v.SpoofChk },
		func(to *device.VFAttrs) **bool { return &to.SpoofChk }),
	vfOnOff("trust", device.VFTrust, func(v *VF) **bool { return &v.Trust },
		func(to *device.VFAttrs) **bool { return &to.Trust }),
}

// vfOnOff is the row of a setting that is "on" or "off".
func vfOnOff(name string, attr device.VFAttr, of func(*VF) **bool, in func(*device.VFAttrs) **bool) vfField {
	return vfField{
		name, []field{{name, peer}}, []device.VFAttr{attr},
		func(p *parser, v *VF) {
			f := p.get(name)
			*of(v) = p.onOff(f)
			p.askedBy(f, *of(v) != nil)
		},
		func(v *VF) bool { return *of(v) != nil },
		func(v *VF, to *device.VFAttrs) { *in(to) = *of(v) },
	}
}

// vfKeys are the top-level fields of the table.
func vfKeys() (keys []field) {
	for _, f := range vfFields {
		keys = append(keys, f.keys...)
	}
	return keys
}

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
