package device

// VF is a virtual function and what its PF's driver keeps for it: the settings that are made on the PF, in the PF's
// namespace, wherever the VF is.
type VF struct {
	PF     Address `json:"pf"`               // PCI function of its PF
	PFName string  `json:"pfName,omitempty"` // netdev of the PF when this was read
	Index  int     `json:"index"`            // of the VF on the PF, from 0: "ip link set PF vf INDEX"
	Driver string  `json:"driver"`           // bound to the VF; empty for none
	IB     bool    `json:"ib,omitempty"`
	FLR    bool    `json:"-"` // it is to be reset for another tenant (PCIe function level reset), and can
	VFAttrs
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
