package device

import (
	"bytes"
	"net"
	"strconv"
)

// VF is a virtual function and what its PF's driver keeps for it: the settings that are made on the PF, in the PF's
// namespace, whoever has the VF.
type VF struct {
	PF     Address `json:"pf"`               // PCI function of its PF
	PFName string  `json:"pfName,omitempty"` // netdev of the PF when this was read
	Index  int     `json:"index"`            // of the VF on the PF, from 0: "ip link set PF vf INDEX"
	Driver string  `json:"driver"`           // bound to the VF; empty for none
	IB     bool    `json:"ib,omitempty"`
	VFAttrs
}

// VFAttrs are the settings of a VF. What the driver does not tell is nil.
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

// States of a VF's link (include/uapi/linux/if_link.h).
const (
	VFLinkAuto    uint32 = 0
	VFLinkEnable  uint32 = 1
	VFLinkDisable uint32 = 2
)

// EtherTypes of a VLAN.
const (
	Proto8021Q  uint16 = 0x8100
	Proto8021AD uint16 = 0x88a8
)

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

// Same tells whether one setting is equal in both.
func (a *VFAttrs) Same(attr VFAttr, b *VFAttrs) bool {
	switch attr {
	case VFLinkState:
		return a.LinkState == b.LinkState
	case VFMAC:
		return bytes.Equal(a.MAC, b.MAC)
	case VFVLAN:
		return a.VLAN == b.VLAN && a.QoS == b.QoS && (a.VLAN == 0 || a.Proto == b.Proto)
	case VFRate:
		return a.MinTxRate == b.MinTxRate && a.MaxTxRate == b.MaxTxRate
	case VFSpoofChk:
		return equal(a.SpoofChk, b.SpoofChk)
	case VFTrust:
		return equal(a.Trust, b.Trust)
	case VFNodeGUID:
		return equal(a.NodeGUID, b.NodeGUID)
	case VFPortGUID:
		return equal(a.PortGUID, b.PortGUID)
	}
	return false
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// Text is a setting as "ip link set PF vf INDEX" spells it.
func (a *VFAttrs) Text(attr VFAttr) string {
	onOff := func(word string, b *bool) string {
		if b != nil && *b {
			return word + " on"
		}
		return word + " off"
	}
	guid := func(word string, g *GUID) string {
		if g == nil {
			g = new(GUID)
		}
		return word + " " + g.String()
	}
	switch attr {
	case VFLinkState:
		return "state " + name(int(a.LinkState), "auto", "enable", "disable")
	case VFMAC:
		return "mac " + a.MAC.String()
	case VFVLAN:
		s := "vlan " + strconv.Itoa(a.VLAN) + " qos " + strconv.Itoa(a.QoS)
		if a.Proto == Proto8021AD {
			s += " proto 802.1ad"
		}
		return s
	case VFRate:
		return "max_tx_rate " + strconv.FormatUint(
			uint64(a.MaxTxRate),
			10,
		) + " min_tx_rate " + strconv.FormatUint(
			uint64(a.MinTxRate),
			10,
		)
	case VFSpoofChk:
		return onOff("spoofchk", a.SpoofChk)
	case VFTrust:
		return onOff("trust", a.Trust)
	case VFNodeGUID:
		return guid("node_guid", a.NodeGUID)
	case VFPortGUID:
		return guid("port_guid", a.PortGUID)
	}
	return string(attr)
}
