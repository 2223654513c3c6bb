// Package link reads and changes network devices through rtnetlink, in the network namespace its Conn was opened in.
package link

import (
	"encoding/binary"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Conn speaks rtnetlink in one network namespace. It is not safe for concurrent use.
type Conn struct{ nl *nlmsg.Conn } //nolint:methods // one for each request of rtnetlink

// Dial opens a Conn in the calling thread's namespace.
func Dial() (*Conn, error) {
	c, err := nlmsg.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// Close releases the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// ifinfomsg is struct ifinfomsg (include/uapi/linux/rtnetlink.h).
func ifinfomsg(index int, flags, change uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], flags)
	binary.NativeEndian.PutUint32(b[12:], change)
	return b
}

// extMask leaves out the statistics, which are most of a reply and cost the driver work.
const extMask = 1 << 3 // RTEXT_FILTER_SKIP_STATS

// ByIndex returns the netdev with this ifindex, or fs.ErrNotExist.
func (c *Conn) ByIndex(index int) (*device.Netdev, error) {
	b, err := c.nl.Get(unix.RTM_GETLINK, nlmsg.Body(ifinfomsg(index, 0, 0)).Uint32(unix.IFLA_EXT_MASK, extMask).Bytes())
	if err != nil {
		return nil, notFound(fmt.Errorf("get netdev with index %d: %w", index, err))
	}
	return decode(b)
}

// At is ByIndex in the namespace that has the ID nsid in this one, as in device.Netdev's ParentIn; nil: in this one.
// IDs in the result are also those of this namespace. It returns fs.ErrNotExist if there is no such netdev, or if that
// namespace has ended.
func (c *Conn) At(nsid *int, index int) (*device.Netdev, error) {
	if nsid == nil {
		return c.ByIndex(index)
	}
	m := nlmsg.Body(ifinfomsg(index, 0, 0)).Uint32(unix.IFLA_EXT_MASK, extMask).
		Uint32(unix.IFLA_TARGET_NETNSID, uint32(*nsid))
	b, err := c.nl.Get(unix.RTM_GETLINK, m.Bytes())
	if nlErrno(err) == unix.EINVAL {
		return nil, missing{err}
	}
	if err != nil {
		return nil, notFound(fmt.Errorf("get netdev with index %d in namespace %d: %w", index, *nsid, err))
	}
	return decode(b)
}

// ByName returns the netdev with this name or altname, or fs.ErrNotExist.
func (c *Conn) ByName(name string) (*device.Netdev, error) {
	m := nlmsg.Body(ifinfomsg(0, 0, 0)).Uint32(unix.IFLA_EXT_MASK, extMask)
	if len(name) < unix.IFNAMSIZ {
		m.String(unix.IFLA_IFNAME, name) // since 5.5 the kernel looks among the altnames too
	} else {
		m.String(unix.IFLA_ALT_IFNAME, name)
	}
	b, err := c.nl.Get(unix.RTM_GETLINK, m.Bytes())
	if err != nil {
		return nil, notFound(fmt.Errorf("get netdev %s: %w", name, err))
	}
	return decode(b)
}

// List returns all netdevs of the namespace; with a kind ("ipoib"), only those: the kernel filters.
func (c *Conn) List(kind string) ([]device.Netdev, error) {
	m := nlmsg.Body(ifinfomsg(0, 0, 0)).Uint32(unix.IFLA_EXT_MASK, extMask)
	if kind != "" {
		m.Nest(unix.IFLA_LINKINFO, func(m *nlmsg.Builder) { m.String(unix.IFLA_INFO_KIND, kind) })
	}
	msgs, err := c.nl.Dump(unix.RTM_GETLINK, m.Bytes())
	if err != nil {
		return nil, fmt.Errorf("list netdevs: %w", err)
	}
	out := make([]device.Netdev, 0, len(msgs))
	for _, b := range msgs {
		n, err := decode(b)
		if err != nil {
			return nil, err
		}
		if kind == "" || n.Kind == kind {
			out = append(out, *n)
		}
	}
	return out, nil
}

// notFound makes the kernel's ENODEV match fs.ErrNotExist.
func notFound(err error) error {
	if nlErrno(err) == unix.ENODEV {
		return missing{err}
	}
	return err
}

type missing struct{ error }

func (m missing) Unwrap() []error { return []error{m.error, fs.ErrNotExist} }
