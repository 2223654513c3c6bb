package link

import (
	"encoding/binary"
	"net"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const (
	vfMACBytes = 32        // struct ifla_vf_mac, MAX_ADDR_LEN
	unknown32  = 1<<32 - 1 // what the kernel says for a setting that the driver does not report (rtnl_fill_vfinfo)
)

// vfCodec is how the kernel spells one setting of a VF: as an attribute of IFLA_VF_INFO, whose value begins with the
// VF's number in both directions.
type vfCodec struct {
	reads  uint16 // type of the attribute to read
	decode func(*device.VFAttrs, vfValue)
	encode func(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) // vf: the number, to which the value is appended
}

// vfCodecs has one codec for each row of the table in pkg/device.
var vfCodecs = map[device.VFAttr]vfCodec{
	device.VFLinkState: {
		unix.IFLA_VF_LINK_STATE,
		func(v *device.VFAttrs, a vfValue) { v.LinkState = a.word(1) },
		func(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) {
			m.Put(unix.IFLA_VF_LINK_STATE, words(vf, to.LinkState))
		},
	},
	device.VFMAC: {
		unix.IFLA_VF_MAC,
		func(v *device.VFAttrs, a vfValue) {
			if n := a.addrLen; n <= 6 && len(a.Value) >= 4+n { // of an IPoIB netdev it means nothing
				v.MAC = append(net.HardwareAddr(nil), a.Value[4:4+n]...)
			}
		},
		func(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) {
			m.Put(unix.IFLA_VF_MAC, append(append(vf, to.MAC...), make([]byte, vfMACBytes-len(to.MAC))...))
		},
	},
	device.VFVLAN: {unix.IFLA_VF_VLAN_LIST, decodeVLAN, encodeVLAN},
	device.VFRate: {
		unix.IFLA_VF_RATE,
		func(v *device.VFAttrs, a vfValue) { v.MinTxRate, v.MaxTxRate = a.word(1), a.word(2) },
		func(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) {
			m.Put(unix.IFLA_VF_RATE, words(vf, to.MinTxRate, to.MaxTxRate))
		},
	},
	device.VFSpoofChk: onOff(unix.IFLA_VF_SPOOFCHK, func(v *device.VFAttrs) **bool { return &v.SpoofChk }),
	device.VFTrust:    onOff(unix.IFLA_VF_TRUST, func(v *device.VFAttrs) **bool { return &v.Trust }),
	device.VFNodeGUID: guid(unix.IFLA_VF_IB_NODE_GUID, func(v *device.VFAttrs) **device.GUID { return &v.NodeGUID }),
	device.VFPortGUID: guid(unix.IFLA_VF_IB_PORT_GUID, func(v *device.VFAttrs) **device.GUID { return &v.PortGUID }),
}

// vfValue is an attribute of IFLA_VF_INFO.
type vfValue struct {
	nlmsg.Attr
	addrLen int // of the PF's netdev
}

// word is the i-th 32 bits of the value; the VF's number is word 0.
func (a vfValue) word(i int) uint32 {
	if w := a.Uint32s(); i < len(w) {
		return w[i]
	}
	return unknown32
}

func words(b []byte, w ...uint32) []byte {
	for _, x := range w {
		b = binary.NativeEndian.AppendUint32(b, x)
	}
	return b
}

// onOff is the codec of a setting that is on or off, or that the driver does not report.
func onOff(typ uint16, field func(*device.VFAttrs) **bool) vfCodec {
	return vfCodec{
		typ,
		func(v *device.VFAttrs, a vfValue) {
			*field(v) = nil
			if w := a.word(1); w != unknown32 {
				*field(v) = new(w != 0)
			}
		},
		func(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) {
			var on uint32
			if b := *field(to); b != nil && *b {
				on = 1
			}
			m.Put(typ, words(vf, on))
		},
	}
}

// guid is the codec of struct ifla_vf_guid: 64 bits after the VF's number and four bytes of padding.
func guid(typ uint16, field func(*device.VFAttrs) **device.GUID) vfCodec {
	return vfCodec{
		typ,
		func(v *device.VFAttrs, a vfValue) {
			*field(v) = nil
			if len(a.Value) >= 16 {
				*field(v) = new(device.GUID(binary.NativeEndian.Uint64(a.Value[8:])))
			}
		},
		func(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) {
			m.Put(typ, binary.NativeEndian.AppendUint64(words(vf, 0), uint64(**field(to))))
		},
	}
}

func decodeVLAN(v *device.VFAttrs, a vfValue) {
	for i := range nlmsg.Attrs(a.Value) {
		if w := i.Uint32s(); len(w) >= 4 {
			v.VLAN, v.QoS, v.Proto = int(w[1]), int(w[2]), binary.BigEndian.Uint16(i.Value[12:])
		}
	}
}

// encodeVLAN uses the older attribute where that can say it: a driver may know no other.
func encodeVLAN(m *nlmsg.Builder, vf []byte, to *device.VFAttrs) {
	b := words(vf, uint32(to.VLAN), uint32(to.QoS))
	if to.Proto != device.Proto8021AD {
		m.Put(unix.IFLA_VF_VLAN, b)
		return
	}
	m.Nest(unix.IFLA_VF_VLAN_LIST, func(m *nlmsg.Builder) {
		m.Put(unix.IFLA_VF_VLAN_INFO, append(binary.BigEndian.AppendUint16(b, to.Proto), 0, 0))
	})
}
