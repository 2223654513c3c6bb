// Package plan decides what has to be done, and in which order. It is pure: values in, steps out, no kernel, no disk,
// no clock. The ordering facts of the kernel live here, each with its reason.
//
// # Stability
//
// Other programs may import this package to print what the plugin would do. They can't carry a plan out with it. Steps,
// their order and their text follow the kernel, and change with any version: compare plans of one version only.
package plan

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Side is one of the two network namespaces a step works in.
type Side int

// The sides.
const (
	Host Side = iota
	Pod
)

func (s Side) String() string {
	if s == Pod {
		return "pod"
	}
	return "host"
}

// Other is the opposite side.
func (s Side) Other() Side { return 1 - s }

// Step is one change to the kernel. Printed, it is the equivalent ip or rdma command, with $POD for the pod's
// namespace.
type Step interface {
	fmt.Stringer
	// Kind is what the step does, as failpoints and metrics know it.
	Kind() string
}

// MoveRDMA moves the RDMA device to the other side. With a Name it does so under that name, in one message where the
// kernel can (since 7.3); older ones are told to rename it first.
type MoveRDMA struct {
	HCA  device.HCA
	To   Side
	Name string // empty: as it is
}

// RenameRDMA renames the RDMA device.
type RenameRDMA struct {
	In       Side
	HCA      device.HCA
	From, To string
}

// SetDIM switches the adaptive moderation of the RDMA device on the host on or off.
type SetDIM struct {
	HCA device.HCA
	On  bool
}

// SetAutoCounters has the kernel count the queue pairs of a port of the RDMA device on the host by these properties.
type SetAutoCounters struct {
	HCA        device.HCA
	Port, Mask uint32
}

// SetCM gives a port of the RDMA device the connection manager's defaults that it had on the host, or others.
type SetCM struct {
	In   Side
	HCA  device.HCA
	Port uint32
	To   device.CM
}

// SetTrafficClass gives all queue pairs over a port of the RDMA device a traffic class; -1: none.
type SetTrafficClass struct {
	In   Side
	HCA  device.HCA
	Port uint32
	To   int
}

// AwaitNetdev waits until the netdev that an RDMA move has destroyed is there again, on whichever side the kernel
// recreates it (the host up to 6.16, the RDMA device's own namespace since 6.17, upstream f1208b05574f).
type AwaitNetdev struct{ Netdev device.Netdev }

// Revive makes the kernel recreate the IPoIB netdev of an RDMA device that is on the host without one: another move,
// through a namespace made for it, lets ib_ipoib try again.
type Revive struct{ HCA device.HCA }

// MoveNetdev moves the netdev to the other side under a new name, in one message.
type MoveNetdev struct {
	Netdev device.Netdev
	To     Side
	Name   string
	Up     bool
}

// CreateChild creates an IPoIB child of the master right in the pod.
type CreateChild struct {
	Master device.Netdev
	Name   string
	PKey   device.PKey
	Mode   *uint16
	Umcast *uint16
	Group  uint32
}

// DeleteChild removes an IPoIB child.
type DeleteChild struct {
	In     Side
	Netdev device.Netdev
}

// DeleteUpper removes a virtual netdev that sits on the netdev: a VLAN, a macvlan, an IPoIB child, which the pod has
// made.
type DeleteUpper struct {
	In     Side
	Netdev device.Netdev
}

// Aside renames a netdev that has come to the host under a name that the pod chose: to its own name, or to a temporary
// one if another netdev has that. It also removes altnames that are not its own.
type Aside struct {
	In   Side
	Name string   // its own; empty: it has it
	Del  []string // altnames
}

// SetLink changes attributes of the netdev.
type SetLink struct {
	In Side
	Attrs
}

// Attrs are the attributes SetLink can change; zero means: leave it.
type Attrs struct {
	Name     string
	HWAddr   net.HardwareAddr
	Alias    *string
	MTU      int
	TxQueue  *int
	Group    *uint32
	Flags    uint32
	Mask     uint32
	Mode     *uint16
	Umcast   *uint16
	AddrGen  *uint8
	Token    netip.Addr // of IPv6 addresses from router advertisements
	IPv4Conf map[int]uint32
	IPv6Conf map[string]int32 // by file name under /proc/sys/net/ipv6/conf/IF/
}

// AltNames adds and removes alternative names of the netdev.
type AltNames struct {
	In       Side
	Add, Del []string
}

// Probe asks on the network whether another interface has addresses that the netdev in the pod is about to get.
type Probe struct{ Addrs []netip.Addr }

// AddAddr adds an address to the netdev.
type AddAddr struct {
	In   Side
	Addr device.Addr
}

// DelAddr removes an address of the netdev.
type DelAddr struct {
	In   Side
	Addr device.Addr
}

// AddRoute adds a route through the netdev.
type AddRoute struct {
	In    Side
	Route device.Route
}

// DelRoute removes a route through the netdev.
type DelRoute struct {
	In    Side
	Route device.Route
}

// AddRule adds a policy routing rule in the pod.
type AddRule struct{ Rule device.Rule }

// DelRule removes one.
type DelRule struct{ Rule device.Rule }

// Announce sends the netdev's new addresses to the neighbours: gratuitous ARP and unsolicited NA.
type Announce struct{ Addrs []device.Addr }

// SetVF changes one setting of a virtual function, through its PF.
type SetVF struct {
	VF   device.VF
	Attr device.VFAttr
	To   device.VFAttrs
}

// Rebind unbinds the driver of a device and binds it again: a VF takes its GUIDs when its driver starts. Faces that the
// device had have to come back.
type Rebind struct {
	Device device.Address
	Driver string
	HCA    *device.HCA
	Netdev bool
	ForPod bool // the pod has been given the character devices already: they have to stay the same
	Reset  bool // the function is reset while no driver is bound to it
}

// The kinds of steps.
func (MoveRDMA) Kind() string        { return "move-rdma" }
func (RenameRDMA) Kind() string      { return "rename-rdma" }
func (SetDIM) Kind() string          { return "set-dim" }
func (SetAutoCounters) Kind() string { return "set-auto-counters" }
func (SetCM) Kind() string           { return "set-cm" }
func (SetTrafficClass) Kind() string { return "set-traffic-class" }
func (AwaitNetdev) Kind() string     { return "await-netdev" }
func (Revive) Kind() string          { return "revive-netdev" }
func (MoveNetdev) Kind() string      { return "move-netdev" }
func (CreateChild) Kind() string     { return "create-child" }
func (DeleteChild) Kind() string     { return "delete-child" }
func (DeleteUpper) Kind() string     { return "delete-upper" }
func (SetLink) Kind() string         { return "set-link" }
func (Aside) Kind() string           { return "step-aside" }
func (AltNames) Kind() string        { return "altnames" }
func (Probe) Kind() string           { return "probe-addresses" }
func (AddAddr) Kind() string         { return "add-address" }
func (DelAddr) Kind() string         { return "remove-address" }
func (AddRoute) Kind() string        { return "add-route" }
func (DelRoute) Kind() string        { return "remove-route" }
func (AddRule) Kind() string         { return "add-rule" }
func (DelRule) Kind() string         { return "remove-rule" }
func (Announce) Kind() string        { return "announce" }
func (s SetVF) Kind() string         { return "set-vf-" + string(s.Attr) }
func (Rebind) Kind() string          { return "rebind-driver" }

// Print writes steps one per line.
func Print(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.String())
		b.WriteByte('\n')
	}
	return b.String()
}
