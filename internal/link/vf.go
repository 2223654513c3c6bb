package link

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"net"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const (
	extMaskVF  = 1         // RTEXT_FILTER_VF: without it the kernel leaves the VFs out
	vfMACBytes = 32        // struct ifla_vf_mac, MAX_ADDR_LEN
	unknown32  = 1<<32 - 1 // what the kernel says for a setting that the driver does not tell (rtnl_fill_vfinfo)
)

// VF returns the settings of a virtual function, as the driver of its PF, the netdev with this ifindex, has them. It
// returns fs.ErrNotExist when the PF has no such VF.
func (c *Conn) VF(pf, vf int) (*device.VFAttrs, error) {
	all, err := c.VFs(pf)
	if err != nil {
		return nil, err
	}
	if vf < 0 || vf >= len(all) {
		return nil, fmt.Errorf("get VF %d of netdev with index %d, which has %d: %w", vf, pf, len(all), fs.ErrNotExist)
	}
	return &all[vf], nil
}

// VFs returns the settings of all virtual functions of a PF, in their order.
func (c *Conn) VFs(pf int) ([]device.VFAttrs, error) {
	b, err := c.nl.Get(
		unix.RTM_GETLINK,
		nlmsg.Body(ifinfomsg(pf, 0, 0)).Uint32(unix.IFLA_EXT_MASK, extMask|extMaskVF).Bytes(),
	)
	if err != nil {
		return nil, notFound(fmt.Errorf("get VFs of netdev with index %d: %w", pf, err))
	}
	return decodeVFs(b)
}

func decodeVFs(b []byte) ([]device.VFAttrs, error) {
	n, err := decode(b)
	if err != nil {
		return nil, err
	}
	var out []device.VFAttrs
	for a := range nlmsg.Attrs(b[unix.SizeofIfInfomsg:]) {
		if a.Type != unix.IFLA_VFINFO_LIST {
			continue
		}
		for info := range nlmsg.Attrs(a.Value) {
			if info.Type == unix.IFLA_VF_INFO {
				out = append(out, decodeVF(info.Value, len(n.HWAddr)))
			}
		}
	}
	return out, nil
}

// decodeVF reads one IFLA_VF_INFO. Each attribute is a struct that starts with the VF's number
// (include/uapi/linux/if_link.h).
func decodeVF(b []byte, addrLen int) device.VFAttrs {
	var v device.VFAttrs
	for a := range nlmsg.Attrs(b) {
		word := func(i int) uint32 {
			if w := a.Uint32s(); i < len(w) {
				return w[i]
			}
			return unknown32
		}
		flag := func() *bool {
			if w := word(1); w != unknown32 {
				on := w != 0
				return &on
			}
			return nil
		}
		switch a.Type {
		case unix.IFLA_VF_MAC:
			if addrLen <= 6 && len(a.Value) >= 4+addrLen { // of an IPoIB netdev it means nothing
				v.MAC = append(net.HardwareAddr(nil), a.Value[4:4+addrLen]...)
			}
		case unix.IFLA_VF_VLAN_LIST:
			for i := range nlmsg.Attrs(a.Value) {
				if w := i.Uint32s(); len(w) >= 4 {
					v.VLAN, v.QoS, v.Proto = int(w[1]), int(w[2]), binary.BigEndian.Uint16(i.Value[12:])
				}
			}
		case unix.IFLA_VF_RATE:
			v.MinTxRate, v.MaxTxRate = word(1), word(2)
		case unix.IFLA_VF_SPOOFCHK:
			v.SpoofChk = flag()
		case unix.IFLA_VF_TRUST:
			v.Trust = flag()
		case unix.IFLA_VF_LINK_STATE:
			v.LinkState = word(1)
		case unix.IFLA_VF_IB_NODE_GUID:
			v.NodeGUID = vfGUID(a.Value)
		case unix.IFLA_VF_IB_PORT_GUID:
			v.PortGUID = vfGUID(a.Value)
		}
	}
	return v
}

// vfGUID reads struct ifla_vf_guid: 64 bits after the VF's number and four bytes of padding.
func vfGUID(b []byte) *device.GUID {
	if len(b) < 16 {
		return nil
	}
	g := device.GUID(binary.NativeEndian.Uint64(b[8:]))
	return &g
}

// SetVF changes one setting of a virtual function. It fails with unix.EOPNOTSUPP where the PF's driver has none.
func (c *Conn) SetVF(pf, vf int, attr device.VFAttr, to *device.VFAttrs) error {
	m := nlmsg.Body(ifinfomsg(pf, 0, 0)).Nest(unix.IFLA_VFINFO_LIST, func(m *nlmsg.Builder) {
		m.Nest(unix.IFLA_VF_INFO, func(m *nlmsg.Builder) { encodeVF(m, uint32(vf), attr, to) })
	})
	if _, err := c.nl.Do(unix.RTM_SETLINK, 0, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("set %s of VF %d: %w", to.Text(attr), vf, err))
	}
	return nil
}

func encodeVF(m *nlmsg.Builder, vf uint32, attr device.VFAttr, to *device.VFAttrs) {
	words := func(typ uint16, w ...uint32) {
		b := binary.NativeEndian.AppendUint32(nil, vf)
		for _, x := range w {
			b = binary.NativeEndian.AppendUint32(b, x)
		}
		m.Put(typ, b)
	}
	guid := func(typ uint16, g *device.GUID) {
		b := append(binary.NativeEndian.AppendUint32(nil, vf), 0, 0, 0, 0)
		m.Put(typ, binary.NativeEndian.AppendUint64(b, uint64(*g)))
	}
	switch attr {
	case device.VFLinkState:
		words(unix.IFLA_VF_LINK_STATE, to.LinkState)
	case device.VFMAC:
		b := make([]byte, 4+vfMACBytes)
		binary.NativeEndian.PutUint32(b, vf)
		copy(b[4:], to.MAC)
		m.Put(unix.IFLA_VF_MAC, b)
	case device.VFVLAN:
		if to.Proto == device.Proto8021AD {
			m.Nest(unix.IFLA_VF_VLAN_LIST, func(m *nlmsg.Builder) {
				b := binary.NativeEndian.AppendUint32(nil, vf)
				b = binary.NativeEndian.AppendUint32(b, uint32(to.VLAN))
				b = binary.NativeEndian.AppendUint32(b, uint32(to.QoS))
				m.Put(unix.IFLA_VF_VLAN_INFO, append(binary.BigEndian.AppendUint16(b, to.Proto), 0, 0))
			})
			return
		}
		words(unix.IFLA_VF_VLAN, uint32(to.VLAN), uint32(to.QoS))
	case device.VFRate:
		words(unix.IFLA_VF_RATE, to.MinTxRate, to.MaxTxRate)
	case device.VFSpoofChk:
		words(unix.IFLA_VF_SPOOFCHK, number(to.SpoofChk))
	case device.VFTrust:
		words(unix.IFLA_VF_TRUST, number(to.Trust))
	case device.VFNodeGUID:
		guid(unix.IFLA_VF_IB_NODE_GUID, to.NodeGUID)
	case device.VFPortGUID:
		guid(unix.IFLA_VF_IB_PORT_GUID, to.PortGUID)
	}
}

func number(b *bool) uint32 {
	if b != nil && *b {
		return 1
	}
	return 0
}
