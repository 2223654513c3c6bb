package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Attributes of an IPoIB netdev (include/uapi/linux/if_link.h).
const (
	ipoibPKey   = 1
	ipoibMode   = 2
	ipoibUmcast = 3
)

// decode reads an RTM_NEWLINK payload.
func decode(b []byte) (*device.Netdev, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("link message of %d bytes: %w", len(b), unix.EBADMSG)
	}
	n := &device.Netdev{
		ARPType: binary.NativeEndian.Uint16(b[2:]),
		Index:   int(binary.NativeEndian.Uint32(b[4:])),
		Flags:   binary.NativeEndian.Uint32(b[8:]),
	}
	for a := range nlmsg.Attrs(b[unix.SizeofIfInfomsg:]) {
		decodeAttr(n, a)
	}
	if n.Parent == n.Index && n.ParentIn == nil { // some drivers name themselves
		n.Parent = 0
	}
	return n, nil
}

func decodeAttr(n *device.Netdev, a nlmsg.Attr) {
	switch a.Type {
	case unix.IFLA_IFNAME:
		n.Name = a.String()
	case unix.IFLA_IFALIAS:
		n.Alias = a.String()
	case unix.IFLA_ADDRESS:
		n.HWAddr = hwaddr(a.Value)
	case unix.IFLA_BROADCAST:
		n.Broadcast = hwaddr(a.Value)
	case unix.IFLA_PERM_ADDRESS:
		n.PermAddr = hwaddr(a.Value)
	case unix.IFLA_MTU:
		n.MTU = int(a.Uint32())
	case unix.IFLA_TXQLEN:
		n.TxQueue = int(a.Uint32())
	case unix.IFLA_CARRIER:
		n.Carrier = a.Uint8() != 0
	case unix.IFLA_GROUP:
		n.Group = a.Uint32()
	case unix.IFLA_MASTER:
		n.Master = int(a.Uint32())
	case unix.IFLA_LINK:
		n.Parent = int(a.Uint32()) // in another namespace (ParentIn) it may well be the netdev's own number
	case unix.IFLA_LINK_NETNSID:
		id := int(int32(a.Uint32()))
		n.ParentIn = &id
	case unix.IFLA_PHYS_PORT_NAME:
		n.PortName = a.String()
	case unix.IFLA_PARENT_DEV_NAME:
		n.Address.Name = a.String()
	case unix.IFLA_PARENT_DEV_BUS_NAME:
		n.Address.Bus = a.String()
	case unix.IFLA_PROP_LIST:
		for p := range nlmsg.Attrs(a.Value) {
			if p.Type == unix.IFLA_ALT_IFNAME {
				n.AltNames = append(n.AltNames, p.String())
			}
		}
	case unix.IFLA_LINKINFO:
		decodeInfo(n, a.Value)
	case unix.IFLA_AF_SPEC:
		decodeAF(n, a.Value)
	default:
		decodeKept(&n.Kept, a)
	}
}

func decodeInfo(n *device.Netdev, b []byte) {
	var data []byte
	for a := range nlmsg.Attrs(b) {
		switch a.Type {
		case unix.IFLA_INFO_KIND:
			n.Kind = a.String()
		case unix.IFLA_INFO_DATA:
			data = a.Value
		}
	}
	if n.Kind != "ipoib" {
		return
	}
	n.IPoIB = &device.IPoIB{}
	for a := range nlmsg.Attrs(data) {
		switch a.Type {
		case ipoibPKey:
			n.IPoIB.PKey = device.PKey(a.Uint16())
		case ipoibMode:
			n.IPoIB.Mode = a.Uint16()
		case ipoibUmcast:
			n.IPoIB.Umcast = a.Uint16()
		}
	}
}

// Attributes inside IFLA_AF_SPEC (include/uapi/linux/if_link.h).
const (
	inetConf      = 1 // IFLA_INET_CONF
	inet6Conf     = 2 // IFLA_INET6_CONF
	inet6Token    = 7 // IFLA_INET6_TOKEN
	inet6AddrMode = 8 // IFLA_INET6_ADDR_GEN_MODE
)

func decodeAF(n *device.Netdev, b []byte) {
	for af := range nlmsg.Attrs(b) {
		for a := range nlmsg.Attrs(af.Value) {
			switch {
			case af.Type == unix.AF_INET && a.Type == inetConf:
				n.IPv4Conf = a.Uint32s()
			case af.Type == unix.AF_INET6 && a.Type == inet6Conf:
				for _, v := range a.Uint32s() {
					n.IPv6Conf = append(n.IPv6Conf, int32(v))
				}
			case af.Type == unix.AF_INET6 && a.Type == inet6Token:
				if t := addrOf(a.Value); t.IsValid() && !t.IsUnspecified() {
					n.Token = t
				}
			case af.Type == unix.AF_INET6 && a.Type == inet6AddrMode:
				n.AddrGenMode = a.Uint8()
			}
		}
	}
}

func hwaddr(b []byte) net.HardwareAddr { return append(net.HardwareAddr(nil), b...) }

func nlErrno(err error) unix.Errno {
	var e *nlmsg.Error
	if errors.As(err, &e) {
		return e.Errno
	}
	return 0
}
