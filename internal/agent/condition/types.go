package condition

import "github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"

// Type is a kind of condition, and how it is reported when its status is False. The names are positive, so that False
// is always the state that needs attention.
type Type struct {
	Name   string
	Reason string // of the status False
	Event  bool   // reported as an Event on the Node
	Gate   bool   // the agent is not ready while its status is False
	Note   bool   // it may well be meant so: the FabricNode is Ready all the same
	// Once says that another message is not reported again, and Recovered is the reason of the Event with which it ends
	// when its object has no other condition; empty: none.
	Once      bool
	Recovered string
}

// recovered is the reason of the Event that says that a device is healthy again.
const recovered = "DeviceRecovered"

// The types. Their reasons are listed in docs/kubernetes.md.
var (
	// FabricReadable says that this version of the agent can read a Fabric.
	FabricReadable = Type{Name: "FabricReadable", Reason: "FabricUnreadable", Event: true}
	// FabricsKnown says that the API server, or an earlier agent, has told which Fabrics there are.
	FabricsKnown = Type{Name: "FabricsKnown", Reason: "FabricsUnknown", Event: true, Gate: true}
	// FabricUsed says that pods can ask for all ports of a discovered fabric.
	FabricUsed = Type{Name: "FabricUsed", Reason: "FabricUnused", Event: true, Note: true}
	// FabricMatched says that a fabric has devices on a node that has any.
	FabricMatched = Type{Name: "FabricMatched", Reason: "FabricUnmatched", Event: true, Note: true}
	// PortActive says that a device of a fabric carries traffic.
	PortActive = Type{Name: "PortActive", Reason: "PortDown", Event: true, Once: true, Recovered: recovered}
	// PortConnected says that the port of a device has been Active at some time. Nodes with more ports than cables are
	// the rule.
	PortConnected = Type{Name: "PortConnected", Reason: "NotConnected", Note: true, Once: true}
	// PortStable says that the port of a device has not come and gone of late.
	PortStable = Type{Name: "PortStable", Reason: "Flapping", Event: true, Once: true, Recovered: recovered}
	// CountersWithinLimits says that no counter of a device rises faster than its fabric allows.
	CountersWithinLimits = Type{
		Name: "CountersWithinLimits", Reason: "CounterLimit", Event: true, Once: true, Recovered: recovered,
	}
	// AllocationServed says that the node's devices of Fabrics with allocation DRA can be allocated by ResourceClaims.
	AllocationServed = Type{Name: "AllocationServed", Reason: "NoAllocation", Event: true}
	// DeviceOffered says that a device of a Fabric with allocation DRA has a name that a ResourceSlice can have.
	DeviceOffered = Type{Name: "DeviceOffered", Reason: "NotOffered", Event: true}
	// NodeRangeAllocated says that this node has addresses of its own in a fabric with nodeRanges.
	NodeRangeAllocated = Type{Name: "NodeRangeAllocated", Reason: "NoRange", Event: true}
	// AddressesLeft says that the node's own range has an address for each unit of a fabric that is on offer.
	AddressesLeft = Type{Name: "AddressesLeft", Reason: "NoAddressLeft", Event: true}
	// NetworkConfigured says that Multus finds the configuration of a fabric's network on this node.
	NetworkConfigured = Type{Name: "NetworkConfigured", Reason: "NoConfiguration", Event: true}
	// IPAMInstalled says that the IPAM plugin of a fabric is on this node.
	IPAMInstalled = Type{Name: "IPAMInstalled", Reason: "IPAMMissing", Event: true}
	// DeviceFree says that only pods that a device was offered to have it.
	DeviceFree = Type{Name: "DeviceFree", Reason: "InUseElsewhere", Event: true, Once: true, Recovered: recovered}
	// HostIdle says that nothing on the host uses the RDMA device of a device, which would lose its connections.
	HostIdle = Type{Name: "HostIdle", Reason: "InUseByHost", Event: true, Once: true, Recovered: recovered}
	// RDMAModeFits says that the node's RDMA mode gives pods what a fabric's mode promises.
	RDMAModeFits = Type{Name: "RDMAModeFits", Reason: "WrongRDMAMode", Event: true}
	// RDMAModeUsable says that the node's RDMA mode does not make ADD fail.
	RDMAModeUsable = Type{Name: "RDMAModeUsable", Reason: "WrongRDMAMode", Event: true, Gate: true}
	// Installed says that fabric-cni is not uninstalled from this node.
	Installed = Type{Name: "Installed", Reason: "Uninstalled", Event: true, Gate: true}
	// UninstallPossible says that nothing keeps a node, which is told to, from uninstalling it.
	UninstallPossible = Type{
		Name: v1alpha1.FabricNodeUninstallPossible, Reason: "UninstallRefused", Event: true, Gate: true,
	}
	// WritesConfined says that the API server refuses what this agent would write about other nodes.
	WritesConfined = Type{Name: "WritesConfined", Reason: "WritesUnconfined", Event: true}
	// PluginInstalled says that the installed CNI binary is the agent's.
	PluginInstalled = Type{Name: "PluginInstalled", Reason: "PluginMissing", Gate: true}
	// StateWritable says that the plugin can write its journal.
	StateWritable = Type{Name: "StateWritable", Reason: "StateNotWritable", Gate: true}
)
