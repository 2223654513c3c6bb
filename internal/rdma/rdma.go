// Package rdma reads and changes RDMA devices through the kernel's RDMA netlink (nldev), in the network namespace its
// Conn was opened in. In exclusive mode a Conn sees only the devices of its namespace.
package rdma

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/internal/nlmsg"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Commands and attributes of nldev (include/uapi/rdma/rdma_netlink.h). A message type is client<<10 + command.
const (
	client = 5 << 10 // RDMA_NL_NLDEV

	cmdGet     = 1
	cmdSet     = 2
	cmdPortGet = 5
	cmdSysGet  = 6
	cmdStatSet = 16
	cmdStatGet = 17

	attrDevIndex    = 1
	attrDevName     = 2
	attrPortIndex   = 3
	attrNodeGUID    = 6
	attrLID         = 9
	attrSMLID       = 10
	attrPortState   = 12
	attrPortPhys    = 13
	attrNetdevIndex = 50
	attrNetnsMode   = 66
	attrProtocol    = 67
	attrNetnsFD     = 68
	attrStatMode    = 74
	attrStatRes     = 75
	attrStatMask    = 76 // RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK
	attrDIM         = 84 // RDMA_NLDEV_ATTR_DEV_DIM
)

// ErrNoRDMA says that the kernel has no RDMA subsystem, or that its module is not loaded.
var ErrNoRDMA = errors.New("the kernel has no RDMA subsystem: module ib_core is not loaded")

// Conn speaks nldev in one network namespace. It is not safe for concurrent use.
type Conn struct{ nl *nlmsg.Conn }

// Dial opens a Conn in the calling thread's namespace. It returns ErrNoRDMA where there is no RDMA.
func Dial() (*Conn, error) {
	c, err := nlmsg.Dial(unix.NETLINK_RDMA)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, ErrNoRDMA
	}
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// Close releases the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// NetnsMode returns how RDMA devices relate to network namespaces. It returns ErrNoRDMA when the kernel has no RDMA.
func (c *Conn) NetnsMode() (device.NetnsMode, error) {
	b, err := c.nl.Get(client|cmdSysGet, nil)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, ErrNoRDMA
	}
	if err != nil {
		return 0, fmt.Errorf("get RDMA network namespace mode: %w", err)
	}
	mode := device.NetnsShared // kernels before 5.2 know only this one, and do not say so
	for a := range nlmsg.Attrs(b) {
		if a.Type == attrNetnsMode {
			if a.Uint8() == 0 { // the kernel sends ib_devices_shared_netns, a boolean
				mode = device.NetnsExclusive
			}
		}
	}
	return mode, nil
}

// ByIndex returns the HCA with this index. It returns fs.ErrNotExist when it is not in the namespace. Unlike a dump
// this can't miss a device while another one moves.
func (c *Conn) ByIndex(index uint32) (*device.HCA, error) {
	b, err := c.nl.Get(client|cmdGet, nlmsg.Body(nil).Uint32(attrDevIndex, index).Bytes())
	if err != nil {
		return nil, notFound(fmt.Errorf("get RDMA device with index %d: %w", index, err))
	}
	return decodeHCA(b), nil
}

// List returns the HCAs of the namespace, without their ports' states. The kernel's dump can skip a device while
// another one changes namespace, with no error (drivers/infiniband/core/nldev.c numbers by position): a caller that
// misses one asks again. See kernel fact 7 in docs/kernel.md.
func (c *Conn) List() ([]device.HCA, error) {
	msgs, err := c.nl.Dump(client|cmdGet, nil)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNoRDMA
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	out := make([]device.HCA, 0, len(msgs))
	for _, b := range msgs {
		out = append(out, *decodeHCA(b))
	}
	return out, nil
}

// Ports reads the state of every port of h into h.Ports.
func (c *Conn) Ports(h *device.HCA) error {
	for i := range h.Ports {
		p := &h.Ports[i]
		b, err := c.nl.Get(client|cmdPortGet,
			nlmsg.Body(nil).Uint32(attrDevIndex, h.Index).Uint32(attrPortIndex, p.Number).Bytes())
		if err != nil {
			return notFound(fmt.Errorf("get port %d of RDMA device %s: %w", p.Number, h.Name, err))
		}
		decodePort(p, b)
	}
	return nil
}

// Rename gives the HCA another name: unix.EEXIST when it is taken, up to Linux 7.2 by any device of the system, since
// 7.3 by one of the same network namespace. See kernel fact 26 in docs/kernel.md.
func (c *Conn) Rename(index uint32, name string) error {
	m := nlmsg.Body(nil).Uint32(attrDevIndex, index).String(attrDevName, name)
	if _, err := c.nl.Do(client|cmdSet, 0, m.Bytes()); err != nil {
		return fmt.Errorf("rename RDMA device with index %d to %s: %w", index, name, err)
	}
	return nil
}

// SetDIM switches the adaptive moderation of an HCA's completion interrupts (RDMA_NLDEV_ATTR_DEV_DIM) on or off. Who
// has the HCA in a network namespace can change it.
func (c *Conn) SetDIM(index uint32, on bool) error {
	v := uint8(0)
	if on {
		v = 1
	}
	m := nlmsg.Body(nil).Uint32(attrDevIndex, index).Uint8(attrDIM, v)
	if _, err := c.nl.Do(client|cmdSet, 0, m.Bytes()); err != nil {
		return notFound(fmt.Errorf("set adaptive moderation of RDMA device with index %d: %w", index, err))
	}
	return nil
}

// The counters of queue pairs, and the mode that a mask of properties belongs to.
const (
	statOfQPs = 19 // RDMA_NLDEV_ATTR_RES_QP
	statAuto  = 1  // RDMA_COUNTER_MODE_AUTO
)

// AutoCounters reads by which properties the kernel counts queue pairs into the AutoCounters of h's ports: nil where it
// does not tell. They stay with a device that changes namespace.
func (c *Conn) AutoCounters(h *device.HCA) {
	for i := range h.Ports {
		p := &h.Ports[i]
		b, err := c.nl.Get(client|cmdStatGet, statBody(h.Index, p.Number).Bytes())
		if err != nil {
			p.AutoCounters = nil
			continue
		}
		p.AutoCounters = new(uint32)
		for a := range nlmsg.Attrs(b) {
			if a.Type == attrStatMask {
				*p.AutoCounters = a.Uint32()
			}
		}
	}
}

// SetAutoCounters has the kernel count queue pairs by the properties in mask; 0: not at all. Who has the HCA in a
// network namespace can change it. It returns unix.EBUSY while queue pairs have counters of their own.
func (c *Conn) SetAutoCounters(index, port, mask uint32) error {
	_, err := c.nl.Do(client|cmdStatSet, 0, statBody(index, port).Uint32(attrStatMask, mask).Bytes())
	if err != nil {
		err = fmt.Errorf("set automatic counters of port %d of RDMA device with index %d: %w", port, index, err)
		return notFound(err)
	}
	return nil
}

func statBody(index, port uint32) *nlmsg.Builder {
	return nlmsg.Body(nil).Uint32(attrDevIndex, index).Uint32(attrPortIndex, port).
		Uint32(attrStatMode, statAuto).Uint32(attrStatRes, statOfQPs)
}

// Move puts the HCA into the namespace behind fd. The calling thread must be in the namespace the HCA is in now, else
// ENODEV; EOPNOTSUPP means a shared system or a driver that can't be moved. EEXIST means that the name is taken there,
// since Linux 7.3.
func (c *Conn) Move(index uint32, fd int) error {
	m := nlmsg.Body(nil).Uint32(attrDevIndex, index).Uint32(attrNetnsFD, uint32(fd))
	if _, err := c.nl.Do(client|cmdSet, 0, m.Bytes()); err != nil {
		return fmt.Errorf("move RDMA device with index %d: %w", index, err)
	}
	return nil
}

// MoveAs puts the HCA into the namespace behind fd under another name, in one message. Only Linux 7.3 and newer do
// both, or fail and do neither. Older ones rename the HCA and take no notice of the namespace: then moved is false. The
// calling thread is where it has to be for Move. See kernel fact 27 in docs/kernel.md.
func (c *Conn) MoveAs(index uint32, name string, fd int) (moved bool, err error) {
	if err := c.setBoth(index, name, uint32(fd)); err != nil {
		return false, fmt.Errorf("move RDMA device with index %d as %s: %w", index, name, err)
	}
	_, err = c.ByIndex(index)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// PerNetns says whether names are unique per network namespace, and MoveAs works: since Linux 7.3. It asks for the name
// that h has, in a namespace that does not exist, and changes nothing: an older kernel does not look at the namespace.
func (c *Conn) PerNetns(h *device.HCA) bool {
	return errors.Is(c.setBoth(h.Index, h.Name, noFile), unix.EBADF)
}

const noFile = ^uint32(0)

func (c *Conn) setBoth(index uint32, name string, fd uint32) error {
	m := nlmsg.Body(nil).Uint32(attrDevIndex, index).String(attrDevName, name).Uint32(attrNetnsFD, fd)
	_, err := c.nl.Do(client|cmdSet, 0, m.Bytes())
	return err
}

func decodeHCA(b []byte) *device.HCA {
	h := &device.HCA{}
	var ports uint32
	var layer device.LinkLayer
	for a := range nlmsg.Attrs(b) {
		switch a.Type {
		case attrDevIndex:
			h.Index = a.Uint32()
		case attrDevName:
			h.Name = a.String()
		case attrPortIndex:
			ports = a.Uint32()
		case attrNodeGUID:
			h.NodeGUID = device.GUID(a.Uint64())
		case attrProtocol:
			layer = layerOf(a.String())
		case attrDIM:
			h.DIM = new(a.Uint8() != 0)
		}
	}
	for i := range min(ports, 255) {
		h.Ports = append(h.Ports, device.Port{Number: i + 1, LinkLayer: layer})
	}
	return h
}

// layerOf reads RDMA_NLDEV_ATTR_DEV_PROTOCOL (drivers/infiniband/core/nldev.c, fill_dev_info).
func layerOf(protocol string) device.LinkLayer {
	switch protocol {
	case "ib", "opa":
		return device.InfiniBand
	case "":
		return ""
	}
	return device.Ethernet
}

func decodePort(p *device.Port, b []byte) {
	for a := range nlmsg.Attrs(b) {
		switch a.Type {
		case attrLID:
			p.LID = uint16(a.Uint32())
		case attrSMLID:
			p.SMLID = uint16(a.Uint32())
		case attrPortState:
			p.State = device.PortState(a.Uint8())
		case attrPortPhys:
			p.Phys = device.PhysState(a.Uint8())
		case attrNetdevIndex:
			p.Netdev = a.Uint32()
		}
	}
}

type missing struct{ error }

func (m missing) Unwrap() []error { return []error{m.error, fs.ErrNotExist} }

// notFound makes the answers for a device that is not in the namespace match fs.ErrNotExist: nldev says EINVAL.
func notFound(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return missing{err}
	}
	return err
}
