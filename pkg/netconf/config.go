// Package netconf turns what the runtime hands to the plugin (the JSON on stdin and the CNI_* environment) into a
// validated Config. It does no I/O: the same bytes give the same Config on every machine.
//
// # Stability
//
// Other programs may import this package to check configurations before the plugin sees them. What it accepts is the
// interface of the plugin: a configuration that is accepted stays accepted, with the same meaning, for all later
// versions of one major version. Go names may change with a minor version before 1.0, and are then in CHANGELOG.md.
package netconf

import (
	"net"
	"net/netip"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Mode is what the plugin does to the device.
type Mode string

// The modes.
const (
	ModeDevice Mode = "device" // move a whole device: netdev, RDMA device, or both
	ModeIPoIB  Mode = "ipoib"  // create an IPoIB child of Master in the pod; the master stays
	ModeRDMA   Mode = "rdma"   // move the RDMA device only; chained after the plugin that moved the netdev
)

// RDMAPolicy is what happens to the device's RDMA face.
type RDMAPolicy string

// The policies.
const (
	RDMAAuto      RDMAPolicy = "auto"      // exclusive mode: move; shared mode: leave it, check that it exists
	RDMAExclusive RDMAPolicy = "exclusive" // move; an error where the system is in shared mode
	RDMAShared    RDMAPolicy = "shared"    // leave it; an error where the system is in exclusive mode
	RDMANone      RDMAPolicy = "none"      // do not look at it
)

// RDMANameAuto asks for names by the order of the attachments: mlx5_0 for the first RDMA device of a pod, and so on.
const RDMANameAuto = "auto"

// Domain is that of resources, DeviceClasses and API group, and the name of the DRA driver.
const Domain = "fabric.dev"

// AllocationDRA says that devices come from ResourceClaims of the pod, as the agent has prepared them.
const AllocationDRA = "DRA"

// SelectorKind names the field a device was selected by.
type SelectorKind string

// The selectors, by the name of their field in the configuration.
const (
	ByNothing    SelectorKind = ""           // mode rdma: derived from the prevResult's interface
	ByAddress    SelectorKind = "deviceID"   // runtimeConfig.deviceID, deviceID, pciBusID: a bus address
	ByName       SelectorKind = "device"     // netdev name or altname on the host
	ByHWAddr     SelectorKind = "hwaddr"     // 6 or 20 bytes, or the 8-byte GUID of an IPoIB address
	ByKernelPath SelectorKind = "kernelpath" // a path under /sys/devices/
	ByRDMADevice SelectorKind = "rdmaDevice" // name of the RDMA device
	ByGUID       SelectorKind = "guid"       // port or node GUID
)

// Selector picks exactly one device. Apart from Kind, Field and Value only what Kind names is set; ByHWAddr with 8
// bytes sets HWAddr and GUID to the same value.
type Selector struct {
	Kind    SelectorKind
	Field   string // the spelling the user wrote, with its path: "runtimeConfig.deviceID", "pciBusID"
	Value   string // as written
	Address device.Address
	HWAddr  net.HardwareAddr
	GUID    device.GUID
}

// Config is one attachment as asked for, complete and validated: every default is filled in, every alias resolved.
type Config struct {
	CNIVersion string
	Name       string // of the network
	Type       string

	Mode        Mode
	ModeDerived bool // not written but told from the other fields: after ADD what it recorded counts more
	RDMA        RDMAPolicy
	Selector    Selector

	Master    string // mode ipoib: netdev name or altname of the parent
	PKey      device.PKey
	IPoIBMode string // "datagram", "connected"; empty: the parent's
	Umcast    *bool  // nil: the kernel's default

	MTU         int    // bytes; 0: as it is (mode ipoib: the parent's)
	RDMAName    string // name of the RDMA device while in the pod; empty: unchanged; or RDMANameAuto
	TOS         *uint8 // type of service of connections of rdma_cm over a RoCE port; nil: the host's
	RoCEMode    string // of such connections: "v1", "v2"; empty: the host's
	Class       *uint8 // traffic class of all queue pairs over a RoCE port, of NVIDIA's driver; nil: the host's
	AllowDown   bool   // hand out a port that is not Active
	SourceBased bool   // a routing table and rule for this interface's own addresses

	// AllPorts says that the interfaces of the RDMA device's other ports go along: planes, or a card with two ports. In
	// the pod they are called as the first one, with pN after it for port N.
	AllPorts bool

	FromClaim bool   // the device is one that a ResourceClaim has given to the pod (allocation: DRA)
	DeviceID  string // if so: the one that Multus names, as written; empty: none
	Pod       Pod

	// Injected is the device that Multus has put into the configuration, of those that kubelet has given to the pod, as
	// written. It is empty if another one was written, or if the pod's annotation names it.
	Injected string
	Unsorted bool // use that one; otherwise the pod's devices go to its networks in the order of rails

	DetectConflicts bool // ask on the network whether another interface has the addresses, before they are used

	// HostAddresses asks for the addresses, routes and rules that the interface has on the host, instead of an IPAM
	// plugin's.
	HostAddresses bool
	// KeepLeases says that addresses which a DHCP server has given for a time go along without their lifetime: the
	// network gives the interface no others.
	KeepLeases bool
	// IgnoreRADefaultRoute says that a default route which the host has learnt from a router advertisement (RFC 4861)
	// does not make the interface an uplink of the node. Only a configuration that the agent has published may say it.
	IgnoreRADefaultRoute bool

	VF VF

	IPAM       IPAM
	DNS        DNS
	IPs        []netip.Prefix // runtimeConfig.ips, passed on to IPAM
	PrevResult []byte         // raw JSON; nil without one

	DeviceInfo string // runtimeConfig.CNIDeviceInfoFile: where the device is to be described; empty: nowhere

	LogLevel string // "error", "warning", "info", "debug"; empty: warning
	LogFile  string // absolute path; empty: stderr

	ValidAttachments []Attachment // GC only: cni.dev/valid-attachments; nil if the call has none
	Ignored          []string     // fields of a peer that mean nothing here, for one log line each

	Raw []byte // stdin as received: what the IPAM plugin gets
}

// IPAM names the delegate. Its own configuration stays in Config.Raw.
type IPAM struct {
	Type string // empty: no addresses
}

// DNS is merged with what IPAM returns.
type DNS struct {
	Nameservers []string
	Domain      string
	Search      []string
	Options     []string
}

// Attachment is one (container, interface) that the runtime knows.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// Env is the CNI_* environment of one call.
type Env struct {
	Command     string
	ContainerID string
	Netns       string
	IfName      string
	Args        string
	Path        string
}
