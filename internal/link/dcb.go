package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
)

// Messages and attributes of DCB (include/uapi/linux/dcbnl.h).
const (
	cmdIEEEGet   = 21 // DCB_CMD_IEEE_GET
	attrIfname   = 1  // DCB_ATTR_IFNAME
	attrIEEE     = 13 // DCB_ATTR_IEEE
	attrPFC      = 2  // DCB_ATTR_IEEE_PFC: struct ieee_pfc
	attrAppTable = 3  // DCB_ATTR_IEEE_APP_TABLE
	attrApp      = 1  // DCB_ATTR_IEEE_APP: struct dcb_app
	selectorDSCP = 5  // IEEE_8021QAZ_APP_SEL_DSCP
	pfcEnabled   = 1  // offset of pfc_en in struct ieee_pfc
	appBytes     = 4  // of struct dcb_app: selector, priority, protocol
)

// DCB is what an interface does with priorities: for which of them it pauses the sender (PFC), and which of them a
// packet with a DSCP has. Without entries the interface goes by the priority in the VLAN tag.
type DCB struct {
	PFC  uint8           // a bit for each priority
	DSCP map[uint8]uint8 // DSCP -> priority
}

// DCB asks an interface for its priorities. It returns nil if its driver has none.
func (c *Conn) DCB(name string) (*DCB, error) {
	header := []byte{unix.AF_UNSPEC, cmdIEEEGet, 0, 0} // struct dcbmsg
	b, err := c.nl.Get(unix.RTM_GETDCB, nlmsg.Body(header).String(attrIfname, name).Bytes())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, notFound(fmt.Errorf("get the priorities (DCB) of %s: %w", name, err))
	}
	if len(b) < len(header) {
		return nil, fmt.Errorf("get the priorities (DCB) of %s: %d bytes", name, len(b))
	}
	return decodeDCB(b[len(header):]), nil
}

// decodeDCB reads an answer. An attribute that is too short is left out.
func decodeDCB(b []byte) *DCB {
	d := &DCB{DSCP: map[uint8]uint8{}}
	for a := range nlmsg.Attrs(b) {
		if a.Type != attrIEEE {
			continue
		}
		for a := range nlmsg.Attrs(a.Value) {
			switch a.Type {
			case attrPFC:
				if len(a.Value) > pfcEnabled {
					d.PFC = a.Value[pfcEnabled]
				}
			case attrAppTable:
				d.apps(a.Value)
			}
		}
	}
	return d
}

// apps reads the table that gives priorities to protocols; of those only DSCPs matter here.
func (d *DCB) apps(b []byte) {
	for a := range nlmsg.Attrs(b) {
		if a.Type != attrApp || len(a.Value) < appBytes || a.Value[0] != selectorDSCP {
			continue
		}
		if dscp := binary.NativeEndian.Uint16(a.Value[2:]); dscp < 64 && a.Value[1] < 8 {
			d.DSCP[uint8(dscp)] = a.Value[1]
		}
	}
}
