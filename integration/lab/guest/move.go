package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Option adds to the request of MoveLink.
type Option func(*nl.IfInfomsg, *nl.NetlinkRequest)

// Up sets the link up in the same request.
func Up(msg *nl.IfInfomsg, _ *nl.NetlinkRequest) { msg.Flags |= unix.IFF_UP; msg.Change |= unix.IFF_UP }

// MTU sets the MTU in the same request.
func MTU(mtu int) Option {
	return func(_ *nl.IfInfomsg, req *nl.NetlinkRequest) {
		req.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))))
	}
}

// MoveLink moves a link of the calling thread's network namespace into the one at path, with a new name, in one
// RTM_NEWLINK: the netlink library has a request for each.
func MoveLink(index int, path, ifname string, options ...Option) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("move link %d: %w", index, err)
	}
	defer f.Close()
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(f.Fd()))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(ifname)))
	for _, o := range options {
		o(msg, req)
	}
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("move link %d to %s as %s: %w", index, path, ifname, err)
	}
	return nil
}

// HostPath is the host's network namespace.
const HostPath = "/proc/1/ns/net"

// Give moves the platform HCA mlx5_i with its netdev into a pod, in the order that works on every kernel: the RDMA
// device first, which destroys the netdev, then the new netdev, which is in the host or in the pod.
func Give(t testing.TB, pod *Pod, i int, ifname string) {
	t.Helper()
	if err := MoveRDMA(fmt.Sprintf("mlx5_%d", i), pod.Path); err != nil {
		t.Fatal(err)
	}
	h := pod.Handle(t)
	link, err := NetdevOf(h, BusAddress(i))
	if err == nil {
		if err := h.LinkSetName(link, ifname); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if link, err = NetdevOf(Host(t), BusAddress(i)); err != nil {
		t.Fatal(err)
	}
	if err := MoveLink(link.Attrs().Index, pod.Path, ifname); err != nil {
		t.Fatal(err)
	}
}

// TakeBack moves the RDMA device from a pod to the host. Its netdev follows by being made anew.
func TakeBack(t testing.TB, pod *Pod, hca string) {
	t.Helper()
	if err := pod.Do(func() error { return MoveRDMA(hca, HostPath) }); err != nil {
		t.Fatal(err)
	}
}

// MoveRDMA moves the RDMA device NAME from the calling thread's network namespace into the one at path. The kernel
// compares with the thread, not with the socket: call it in Pod.Do to take a device out of a pod.
func MoveRDMA(name, path string) error {
	h, err := netlink.NewHandle(unix.NETLINK_RDMA)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("move RDMA device %s: %w", name, err)
	}
	defer f.Close()
	l, err := RDMA(h, name)
	if err != nil {
		return err
	}
	if err := h.RdmaLinkSetNsFd(l, uint32(f.Fd())); err != nil {
		return fmt.Errorf("move RDMA device %s to %s: %w", name, path, err)
	}
	return nil
}

// RDMA returns the RDMA device NAME. The kernel's dump may skip a device while another one changes its network
// namespace, so a missing one is looked for again; the error is fs.ErrNotExist.
func RDMA(h *netlink.Handle, name string) (*netlink.RdmaLink, error) {
	for range 5 {
		links, err := dump(h.RdmaLinkList)
		if err != nil {
			return nil, fmt.Errorf("list RDMA devices: %w", err)
		}
		for _, l := range links {
			if l.Attrs.Name == name {
				return l, nil
			}
		}
	}
	return nil, fmt.Errorf("find RDMA device %s: %w", name, fs.ErrNotExist)
}

// Child makes a PKey child of an IPoIB netdev.
func Child(h *netlink.Handle, parent, name string, pkey uint16) error {
	p, err := h.LinkByName(parent)
	if err != nil {
		return fmt.Errorf("add child %s: %w", name, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, p.Attrs().Index
	if err := h.LinkAdd(&netlink.IPoIB{LinkAttrs: attrs, Pkey: pkey, Mode: netlink.IPOIB_MODE_DATAGRAM}); err != nil {
		return fmt.Errorf("add child %s of %s with PKey %#x: %w", name, parent, pkey, err)
	}
	return nil
}
