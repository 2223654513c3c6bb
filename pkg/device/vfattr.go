package device

import (
	"bytes"
	"fmt"
	"net"
	"slices"
)

// VFAttrs are the settings of a VF. What the driver does not report is nil. The journal keeps them as JSON: fields are
// added, never renamed.
type VFAttrs struct {
	MAC       net.HardwareAddr `json:"mac,omitempty"` // all zeros: the administrator has set none
	VLAN      int              `json:"vlan,omitempty"`
	QoS       int              `json:"qos,omitempty"`
	Proto     uint16           `json:"proto,omitempty"`     // EtherType: 0x8100, 0x88a8
	MinTxRate uint32           `json:"minTxRate,omitempty"` // Mb/s; 0: none
	MaxTxRate uint32           `json:"maxTxRate,omitempty"` // Mb/s; 0: no limit
	LinkState uint32           `json:"linkState"`           // IFLA_VF_LINK_STATE_*
	SpoofChk  *bool            `json:"spoofchk,omitempty"`
	Trust     *bool            `json:"trust,omitempty"`
	NodeGUID  *GUID            `json:"nodeGUID,omitempty"` // 0: not set
	PortGUID  *GUID            `json:"portGUID,omitempty"`
}

// VFAttr names one setting of a VF, the ones that go together as one.
type VFAttr string

// The settings.
const (
	VFLinkState VFAttr = "link-state"
	VFMAC       VFAttr = "mac"
	VFVLAN      VFAttr = "vlan"
	VFRate      VFAttr = "rate"
	VFSpoofChk  VFAttr = "spoofchk"
	VFTrust     VFAttr = "trust"
	VFNodeGUID  VFAttr = "node-guid"
	VFPortGUID  VFAttr = "port-guid"
)

// VFKind is the kind of VFs that have a setting.
type VFKind int

// The kinds.
const (
	AnyVF VFKind = iota
	EthernetVF
	InfiniBandVF
)

// vfAttr is one row of the table of settings: which VFs have it, the fields of VFAttrs that hold it, and how "ip link
// set PF vf INDEX" spells it.
type vfAttr struct {
	name VFAttr
	kind VFKind
	same func(a, b *VFAttrs) bool
	copy func(to, from *VFAttrs)
	text func(a *VFAttrs) string
}

// vfAttrs is the table of settings, in the order in which they are made; they are given back in reverse. What plan does
// between them, rebinding the driver for GUIDs and setting the VF's own MAC address, has its reasons there.
//
// A new setting is a field of VFAttrs and a row here, its codec in internal/link, and what asks for it in pkg/netconf.
var vfAttrs = []vfAttr{
	{
		VFLinkState, AnyVF,
		func(a, b *VFAttrs) bool { return a.LinkState == b.LinkState },
		func(to, from *VFAttrs) { to.LinkState = from.LinkState },
		func(a *VFAttrs) string { return "state " + name(int(a.LinkState), "auto", "enable", "disable") },
	},
	guid(VFNodeGUID, "node_guid", func(a *VFAttrs) **GUID { return &a.NodeGUID }),
	guid(VFPortGUID, "port_guid", func(a *VFAttrs) **GUID { return &a.PortGUID }),
	{
		VFVLAN, EthernetVF,
		func(a, b *VFAttrs) bool {
			return a.VLAN == b.VLAN && a.QoS == b.QoS && (a.VLAN == 0 || a.Proto == b.Proto)
		},
		func(to, from *VFAttrs) { to.VLAN, to.QoS, to.Proto = from.VLAN, from.QoS, from.Proto },
		vlanText,
	},
	{
		VFMAC, EthernetVF,
		func(a, b *VFAttrs) bool { return bytes.Equal(a.MAC, b.MAC) },
		func(to, from *VFAttrs) { to.MAC = from.MAC },
		func(a *VFAttrs) string { return "mac " + a.MAC.String() },
	},
	{
		VFRate, EthernetVF,
		func(a, b *VFAttrs) bool { return a.MinTxRate == b.MinTxRate && a.MaxTxRate == b.MaxTxRate },
		func(to, from *VFAttrs) { to.MinTxRate, to.MaxTxRate = from.MinTxRate, from.MaxTxRate },
		func(a *VFAttrs) string { return fmt.Sprintf("max_tx_rate %d min_tx_rate %d", a.MaxTxRate, a.MinTxRate) },
	},
	onOff(VFSpoofChk, "spoofchk", func(a *VFAttrs) **bool { return &a.SpoofChk }),
	onOff(VFTrust, "trust", func(a *VFAttrs) **bool { return &a.Trust }),
}

// onOff is the row of a setting that an Ethernet VF has on or off.
func onOff(attr VFAttr, word string, field func(*VFAttrs) **bool) vfAttr {
	return vfAttr{
		attr, EthernetVF,
		func(a, b *VFAttrs) bool { return equal(*field(a), *field(b)) },
		func(to, from *VFAttrs) { *field(to) = *field(from) },
		func(a *VFAttrs) string {
			if on := *field(a); on != nil && *on {
				return word + " on"
			}
			return word + " off"
		},
	}
}

// guid is the row of a GUID.
func guid(attr VFAttr, word string, field func(*VFAttrs) **GUID) vfAttr {
	return vfAttr{
		attr, InfiniBandVF,
		func(a, b *VFAttrs) bool { return equal(*field(a), *field(b)) },
		func(to, from *VFAttrs) { *field(to) = *field(from) },
		func(a *VFAttrs) string {
			if g := *field(a); g != nil {
				return word + " " + g.String()
			}
			return word + " " + GUID(0).String()
		},
	}
}

func vlanText(a *VFAttrs) string {
	s := fmt.Sprintf("vlan %d qos %d", a.VLAN, a.QoS)
	if a.Proto == Proto8021AD {
		s += " proto 802.1ad"
	}
	return s
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// unknown is the row of a setting that does not exist.
var unknown = vfAttr{
	same: func(_, _ *VFAttrs) bool { return false },
	copy: func(_, _ *VFAttrs) {},
}

func (attr VFAttr) row() vfAttr {
	if i := slices.IndexFunc(vfAttrs, func(r vfAttr) bool { return r.name == attr }); i >= 0 {
		return vfAttrs[i]
	}
	return unknown
}

// VFAttrNames lists all settings, in the order in which they are made.
func VFAttrNames() []VFAttr {
	out := make([]VFAttr, len(vfAttrs))
	for i, r := range vfAttrs {
		out[i] = r.name
	}
	return out
}

// Kind is the kind of VFs that have the setting.
func (attr VFAttr) Kind() VFKind { return attr.row().kind }

// IsGUID says whether the setting is one that counts only when the VF's driver starts.
func (attr VFAttr) IsGUID() bool { return attr == VFNodeGUID || attr == VFPortGUID }

// Same says whether one setting is equal in both.
func (a *VFAttrs) Same(attr VFAttr, b *VFAttrs) bool { return attr.row().same(a, b) }

// Set copies one setting.
func (a *VFAttrs) Set(attr VFAttr, from *VFAttrs) { attr.row().copy(a, from) }

// Text is a setting as "ip link set PF vf INDEX" spells it.
func (a *VFAttrs) Text(attr VFAttr) string {
	if text := attr.row().text; text != nil {
		return text(a)
	}
	return string(attr)
}
