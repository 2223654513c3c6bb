package device

import "net"

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
