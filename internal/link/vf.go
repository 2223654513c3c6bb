package link

import (
	"encoding/binary"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

const extMaskVF = 1 // RTEXT_FILTER_VF: without it the kernel leaves the VFs out

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
		for _, c := range vfCodecs {
			if c.reads == a.Type {
				c.decode(&v, vfValue{a, addrLen})
			}
		}
	}
	return v
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

// encodeVF writes one setting into an IFLA_VF_INFO.
func encodeVF(m *nlmsg.Builder, vf uint32, attr device.VFAttr, to *device.VFAttrs) {
	if c, ok := vfCodecs[attr]; ok {
		c.encode(m, binary.NativeEndian.AppendUint32(nil, vf), to)
	}
}
