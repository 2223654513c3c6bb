package link

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Change is what one RTM_NEWLINK message does to an existing netdev. Nil and zero fields are left alone.
//
// The kernel applies them in its own order and a late failure leaves the early ones applied
// (net/core/rtnetlink.c, rtnl_changelink and do_setlink: link info, namespace, MTU, name, flags, ...).
type Change struct {
	NetNS    int    // file descriptor of the target namespace, when Move is set
	Move     bool   // into NetNS
	Name     string // with Move: the name there
	HWAddr   []byte // most drivers want the netdev down for it
	Alias    *string
	MTU      int
	TxQueue  *int
	Group    *uint32
	Flags    uint32 // values of the IFF_* bits in Mask
	Mask     uint32
	Mode     *uint16 // IPoIB; only where there is no other way, see apply
	Umcast   *uint16 // IPoIB
	AddrGen  *uint8
	Token    netip.Addr     // the kernel takes it only while it accepts router advertisements
	IPv4Conf map[int]uint32 // by IPV4_DEVCONF_* (include/uapi/linux/ip.h), which count from 1
}

// Set applies one change.
func (c *Conn) Set(index int, ch Change) error {
	m := nlmsg.Body(ifinfomsg(index, ch.Flags&ch.Mask, ch.Mask)) // flags without a mask would mean all of them
	if ch.Move {
		m.Uint32(unix.IFLA_NET_NS_FD, uint32(ch.NetNS))
	}
	if ch.Name != "" {
		m.String(unix.IFLA_IFNAME, ch.Name)
	}
	if ch.HWAddr != nil {
		m.Put(unix.IFLA_ADDRESS, ch.HWAddr)
	}
	if ch.Alias != nil {
		m.Put(unix.IFLA_IFALIAS, []byte(*ch.Alias)) // no zero: the kernel takes the length as it is, 0 removes
	}
	if ch.MTU != 0 {
		m.Uint32(unix.IFLA_MTU, uint32(ch.MTU))
	}
	if ch.TxQueue != nil {
		m.Uint32(unix.IFLA_TXQLEN, uint32(*ch.TxQueue))
	}
	if ch.Group != nil {
		m.Uint32(unix.IFLA_GROUP, *ch.Group)
	}
	if ch.Mode != nil || ch.Umcast != nil {
		ipoibInfo(m, nil, ch.Mode, ch.Umcast)
	}
	if ch.AddrGen != nil || ch.Token.IsValid() || len(ch.IPv4Conf) > 0 {
		afSpec(m, ch)
	}
	if _, err := c.nl.Do(unix.RTM_NEWLINK, 0, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("change netdev with index %d: %w", index, err))
	}
	return nil
}

func ipoibInfo(m *nlmsg.Builder, pkey *device.PKey, mode, umcast *uint16) {
	m.Nest(unix.IFLA_LINKINFO, func(m *nlmsg.Builder) {
		m.String(unix.IFLA_INFO_KIND, "ipoib")
		m.Nest(unix.IFLA_INFO_DATA, func(m *nlmsg.Builder) {
			if pkey != nil {
				m.Uint16(ipoibPKey, uint16(*pkey))
			}
			if mode != nil {
				m.Uint16(ipoibMode, *mode)
			}
			if umcast != nil {
				m.Uint16(ipoibUmcast, *umcast)
			}
		})
	})
}

func afSpec(m *nlmsg.Builder, ch Change) {
	m.Nest(unix.IFLA_AF_SPEC, func(m *nlmsg.Builder) {
		if len(ch.IPv4Conf) > 0 {
			m.Nest(unix.AF_INET, func(m *nlmsg.Builder) {
				m.Nest(inetConf, func(m *nlmsg.Builder) {
					for k, v := range ch.IPv4Conf {
						m.Uint32(uint16(k), v)
					}
				})
			})
		}
		if ch.AddrGen == nil && !ch.Token.IsValid() {
			return
		}
		m.Nest(unix.AF_INET6, func(m *nlmsg.Builder) {
			if ch.AddrGen != nil {
				m.Uint8(inet6AddrMode, *ch.AddrGen)
			}
			if ch.Token.IsValid() {
				m.Put(inet6Token, ch.Token.AsSlice())
			}
		})
	})
}

// AddAltNames adds alternative names. It fails with unix.EEXIST when one of them is taken in the namespace, also by the
// netdev itself.
func (c *Conn) AddAltNames(index int, names []string) error {
	return c.altNames(unix.RTM_NEWLINKPROP, "add", index, names)
}

// DelAltNames removes alternative names.
func (c *Conn) DelAltNames(index int, names []string) error {
	return c.altNames(unix.RTM_DELLINKPROP, "remove", index, names)
}

func (c *Conn) altNames(typ uint16, verb string, index int, names []string) error {
	m := nlmsg.Body(ifinfomsg(index, 0, 0)).Nest(unix.IFLA_PROP_LIST, func(m *nlmsg.Builder) {
		for _, n := range names {
			m.String(unix.IFLA_ALT_IFNAME, n)
		}
	})
	flags := uint16(0)
	if typ == unix.RTM_NEWLINKPROP {
		flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_APPEND
	}
	if _, err := c.nl.Do(typ, flags, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("%s altnames %v of netdev with index %d: %w", verb, names, index, err))
	}
	return nil
}

// Child is an IPoIB netdev to create on a parent in this Conn's namespace.
type Child struct {
	Parent int // ifindex
	NetNS  int // file descriptor of the namespace it is created in
	Name   string
	PKey   device.PKey
	Umcast *uint16
	Group  uint32 // device group: marks the netdev from its first moment
	Up     bool
}

// NewChild creates an IPoIB child right in its namespace, in one message: there is no moment at which a kill would
// leave it nameless or on the host.
func (c *Conn) NewChild(ch Child) error {
	var flags uint32
	if ch.Up {
		flags = unix.IFF_UP
	}
	m := nlmsg.Body(ifinfomsg(0, flags, flags)).
		String(unix.IFLA_IFNAME, ch.Name).
		Uint32(unix.IFLA_LINK, uint32(ch.Parent)).
		Uint32(unix.IFLA_NET_NS_FD, uint32(ch.NetNS)).
		Uint32(unix.IFLA_GROUP, ch.Group)
	ipoibInfo(m, &ch.PKey, nil, ch.Umcast)
	if _, err := c.nl.Do(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m.Bytes()); err != nil {
		return fmt.Errorf("create IPoIB child %s with PKey %s: %w", ch.Name, ch.PKey, err)
	}
	return nil
}

// Delete removes a virtual netdev. It returns fs.ErrNotExist when it is gone already.
func (c *Conn) Delete(index int) error {
	if _, err := c.nl.Do(unix.RTM_DELLINK, 0, ifinfomsg(index, 0, 0)); err != nil {
		return notFound(fmt.Errorf("delete netdev with index %d: %w", index, err))
	}
	return nil
}

// DeleteAll removes virtual netdevs in the time that one takes: after each removal the kernel waits until no CPU uses
// the netdev any more. So they are put into a group that no other has, which is removed as a whole
// (net/core/rtnetlink.c, rtnl_group_dellink). One that is gone is no error. A failed DeleteAll has removed nothing, but
// may have changed the groups.
func (c *Conn) DeleteAll(indexes []int) error {
	all, err := c.List("")
	if err != nil {
		return err
	}
	random := func() uint32 { return 1 + rand.Uint32N(1<<30-1) } // 0 is the group of all that have none
	group := random()
	for slices.ContainsFunc(all, func(n device.Netdev) bool { return n.Group == group }) {
		group = random()
	}
	for _, index := range indexes {
		if err := c.Set(index, Change{Group: &group}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	m := nlmsg.Body(ifinfomsg(0, 0, 0)).Uint32(unix.IFLA_GROUP, group)
	if _, err := c.nl.Do(unix.RTM_DELLINK, 0, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("delete %d netdevs of group %d: %w", len(indexes), group, err))
	}
	return nil
}
