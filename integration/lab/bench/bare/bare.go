// Package bare makes the kernel calls without which a device does not get into a pod and back, and no others: nothing
// is checked, recorded or restored beyond the name and the up state. It is what the plugin is measured against, and
// uses the library that CNI plugins commonly use.
package bare

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace with the netlink sockets into it.
type Space struct {
	fd  netns.NsHandle
	nl  *netlink.Handle
	own map[int]*nl.SocketHandle // for messages the library has no function for
}

// Open opens the namespace at path; families are unix.NETLINK_ROUTE and, where an RDMA device moves, unix.NETLINK_RDMA.
func Open(path string, families ...int) (*Space, error) {
	fd, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	h, err := netlink.NewHandleAt(fd, families...)
	if err != nil {
		fd.Close()
		return nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	s, err := nl.GetNetlinkSocketAt(fd, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		fd.Close()
		return nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	return &Space{fd, h, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

// Close releases the sockets and the namespace.
func (s *Space) Close() {
	s.own[unix.NETLINK_ROUTE].Close()
	s.nl.Close()
	s.fd.Close()
}

// In runs f with the calling thread, which must be locked, in the namespace: the kernel lets an RDMA device leave only
// the namespace of the thread that asks. back is the namespace to return to.
func (s *Space) In(back *Space, f func() error) error {
	if err := netns.Set(s.fd); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err := f()
	return errors.Join(err, netns.Set(back.fd))
}

// MoveRDMA moves the RDMA device from s to another namespace.
func (s *Space) MoveRDMA(name string, to *Space) error {
	for range 10 { // the kernel's dump may skip a device while another one moves
		l, err := s.nl.RdmaLinkByName(name)
		if err == nil {
			return s.nl.RdmaLinkSetNsFd(l, uint32(to.fd))
		}
	}
	return fmt.Errorf("find RDMA device %s: %w", name, fs.ErrNotExist)
}

// OnBus finds the IPoIB parent at a bus address.
func (s *Space) OnBus(bus string) (int, error) {
	for {
		list, err := s.nl.LinkList()
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("list links: %w", err)
		}
		for _, l := range list {
			if a := l.Attrs(); a.ParentDev == bus && a.ParentIndex == 0 {
				return a.Index, nil
			}
		}
		return 0, fmt.Errorf("find netdev of %s: %w", bus, fs.ErrNotExist)
	}
}

// Named finds a link by name.
func (s *Space) Named(name string) (int, error) {
	l, err := s.nl.LinkByName(name)
	if err != nil {
		return 0, fmt.Errorf("find link %s: %w", name, err)
	}
	return l.Attrs().Index, nil
}

// Set names a link and sets it up, in one message that also moves it unless to is nil.
func (s *Space) Set(index int, to *Space, name string) error {
	req, msg := s.newLink(unix.NLM_F_ACK)
	msg.Index = int32(index)
	if to != nil {
		req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.fd))))
	}
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("set link %d: %w", index, err)
	}
	return nil
}

// Child creates an IPoIB child right in another namespace, up.
func (s *Space) Child(parent int, to *Space, name string, pkey uint16) error {
	return s.child(parent, to, name, pkey)
}

// child creates it in the namespace of the parent if to is nil.
func (s *Space) child(parent int, to *Space, name string, pkey uint16) error {
	req, _ := s.newLink(unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_EXCL)
	req.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parent))))
	if to != nil {
		req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.fd))))
	}
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("ipoib"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_IPOIB_PKEY, nl.Uint16Attr(pkey))
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("create child %s: %w", name, err)
	}
	return nil
}

func (s *Space) newLink(flags int) (*nl.NetlinkRequest, *nl.IfInfomsg) {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, flags)
	req.Sockets = s.own
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Flags, msg.Change = unix.IFF_UP, unix.IFF_UP
	req.AddData(msg)
	return req, msg
}

// Address gives a link an address.
func (s *Space) Address(index int, cidr string) error {
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("address %s: %w", cidr, err)
	}
	if err := s.nl.AddrAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}, a); err != nil {
		return fmt.Errorf("add address %s: %w", cidr, err)
	}
	return nil
}

// Delete removes a link.
func (s *Space) Delete(index int) error {
	if err := s.nl.LinkDel(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}); err != nil {
		return fmt.Errorf("delete link %d: %w", index, err)
	}
	return nil
}
