// Package attach decides whether a device can be attached to a pod, and what has to be done for it: facts in, decision
// out. It is pure: it reads nothing and has no clock. The CNI plugin gathers the facts and carries the decision out,
// its STATUS asks it whether an ADD could be served, and "fabricctl plan" prints it.
package attach

import (
	"cmp"

	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
	"github.com/fabric-cni/fabric-cni/pkg/plan"
)

// Facts is everything that the decision depends on. Their gatherer makes no judgement: a fact that does not apply to
// the configuration is left zero.
type Facts struct {
	Config      *netconf.Config
	ContainerID string // of the pod
	IfName      string // of the interface in the pod
	ChildGroup  uint32 // device group that an IPoIB child is created with

	// The pod. STATUS has none: what depends on it is not judged then.
	Pod       bool
	Earlier   *Owner  // attachment of this very container and interface that the journal has; nil without one
	Before    *Before // if Earlier is of the plugin before this one in the chain
	NameTaken string  // interface in the pod that has IfName as its name or altname; empty without one

	// The node.
	Policy      *policy.Policy
	PolicyErr   error            // the policy can't be read
	RDMA        bool             // the kernel has the RDMA subsystem
	NetnsMode   device.NetnsMode // of the RDMA subsystem
	IPoIBLoaded bool             // the module ib_ipoib is loaded
	Parents     []string         // IPoIB parents on the host, for hints

	// Claims is what ResourceClaims give to the pod, if that has no device for this attachment. Nil: the configuration
	// names its device, or has one from a claim.
	Claims *Claims

	// The device that the configuration selects.
	Unselected bool  // the configuration names none: only STATUS and mode rdma may do so
	Chained    Chain // mode rdma
	Device     *Device
	Missing    error  // why Device is nil
	Ambiguous  bool   // Missing, because the selector fits several devices
	Soft       *Soft  // Missing, because it is a soft RDMA device; else nil
	Holder     *Owner // attachment that has the missing device; nil: the journal knows of none

	// What is known of Device.
	Owner *Owner // attachment that the device belongs to, nil: free
	// Promises are those devices that ResourceClaims or kubelet give to other pods and that are this one, its PF or its
	// VFs.
	Promises  []Promise
	Allotment Allotment  // what the pod has been given of it
	VF        *device.VF // nil: no virtual function
	// OtherTenant says that a pod of another namespace had this VF last, and that its driver is to be bound again.
	OtherTenant bool
	Namesake    bool // a device in a pod has the name that the RDMA device has on the host
	// The new name of the RDMA device, if the configuration asks for one.
	RDMANamesPerNetns bool     // names are unique per network namespace, not in the whole system
	RDMANamesInPod    []string // if so, and if a free one is to be chosen
	RDMANameHolder    string   // if not: which other device has the name on the host; empty: none

	MACHolder  *Duplicate // who has the MAC address that the configuration gives; nil: none
	AddrHolder *Duplicate // the same for an address that the configuration itself gives

	GUIDHolder string           // who has the GUID that the configuration asks for; empty: none
	PF         *device.Address  // of this VF; nil: no VF
	PFOwner    *Owner           // attachment that has the PF of this VF; nil: none
	VFs        []device.VFAttrs // what this PF has set for each of its VFs
	VFOwners   []VFOwner        // attachments that have VFs of this PF
	Children   []Child          // IPoIB children of its netdev
	Elsewhere  *Place           // of the interface that an HCA does not have on the host; nil: not known
	// StrayNetdev says that sysfs names an interface of a RoCE port, which is neither on the host nor in the pod.
	StrayNetdev bool
	Strays      []Place        // what of other network namespaces sits on its netdev, with its kind; mode device only
	Siblings    []string       // other netdevs that its RDMA device carries, of the same function
	Bond        string         // interface of its RDMA device that is a bond (RoCE LAG); empty: none
	OtherPorts  []OtherPort    // interfaces on the host of its RDMA device's other ports, of other functions
	Uppers      []device.Upper // what of the host sits on its netdev, however far up; mode device only
	Users       []string       // what on the host uses its RDMA device, in words; exclusive mode only
	SoftRDMA    []string       // soft RDMA devices of the host on its netdev; mode device only
	PKeys       []device.PKey  // partitions of the port, if PKeysKnown
	PKeysKnown  bool

	HostRules []device.Rule // of the host, that look at a source only; read for hostAddresses
	// Unpublished is why the configuration is not one that the agent has published for this node; nil if it is. It is
	// looked for if only such a one may say what it says.
	Unpublished error
}

// Device is a device with its netdev and RDMA device.
type Device struct {
	DeviceKey string         // its name in the journal: the bus address, or netdev/NAME
	Address   device.Address // zero for a virtual netdev
	PCI       string         // PCI address, empty without one
	Driver    string         // bound to it, empty for none
	Netdev    *device.Netdev // with addresses and routes; nil without one
	Side      plan.Side      // of Netdev: mode rdma finds it in the pod
	HCA       *device.HCA    // with its ports; nil without one on the host
	Uplink    *device.Uplink // of Netdev: what the host needs of it; nil unless it is on the host
}

// userspace are the drivers that give a function to a program in userspace: it has no netdev and no RDMA device then.
var userspace = []string{"vfio-pci", "uio_pci_generic", "igb_uio"}

// policyDevice is the device as the policy looks at it.
func (f *Facts) policyDevice() policy.Device {
	d := f.Device
	return policy.Device{
		Address: d.Address, PCI: d.PCI, Netdev: d.Netdev, HCA: d.HCA, Uplink: d.Uplink,
		InPod: d.Side == plan.Pod, Shared: f.NetnsMode == device.NetnsShared, IgnoreRA: f.Config.IgnoreRADefaultRoute,
	}
}

// isIPoIB says whether the device has an IPoIB netdev, which a move of the RDMA device destroys.
func (d *Device) isIPoIB() bool { return d.Netdev != nil && d.Netdev.IsIPoIB() }

// OtherPort is the interface of another port of the RDMA device: of a card with two ports, or of planes. It is a
// function of its own, which has no RDMA device.
type OtherPort struct {
	Number  uint32
	Netdev  string // its name on the host
	Address device.Address
}

// Owner is an attachment that has a device, as the journal knows it.
type Owner struct {
	ContainerID, IfName string
	Who                 string // for people: its pod, or its container
	Network             string
	NetnsPath           string
	DeviceKey           string // the device
	Alive               bool   // its pod may still exist
	Self                bool   // it is the attachment that is to be made
	Unreadable          error  // its journal entry is damaged; only ContainerID, IfName and DeviceKey are known
}

func (o *Owner) who() string { return cmp.Or(o.Who, "container "+o.ContainerID) }

// VFOwner is an attachment that has a virtual function of the PF.
type VFOwner struct {
	VF    string // PCI address
	Owner Owner
}

// Child is an IPoIB child of the device's netdev: the journal knows its owner, or it is the host's own.
type Child struct {
	Owner  *Owner
	Netdev string // its name on the host; empty if it is elsewhere
}

// Chain is what mode rdma has found in the pod, where an earlier plugin of the chain has put the netdev.
type Chain struct {
	Interfaces int       // of the prevResult that are in the pod; the device is derived from the only one
	NoHardware string    // interface in the pod that no device is behind; empty without one
	Side       plan.Side // where the netdev of the device was found
}
