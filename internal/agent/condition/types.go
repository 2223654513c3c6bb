package condition

import (
	"slices"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Reason is one thing that can be wrong, and how it is reported. Events, metrics and the problem of a device go by its
// name.
type Reason struct {
	Name  string
	Event bool // reported as an Event on the Node
	Gate  bool // the agent is not ready while it lasts
	// Once says that another message is not reported again, and Recovered is the reason of the Event with which it ends
	// when its object has no other finding; empty: none.
	Once      bool
	Recovered string
}

// The reasons.
var (
	// PluginMissing says that the installed CNI binary is not the agent's.
	PluginMissing = Reason{Name: "PluginMissing", Gate: true}
	// StateNotWritable says that the plugin can't write its journal.
	StateNotWritable = Reason{Name: "StateNotWritable", Gate: true}
	// Uninstalled says that fabric-cni is uninstalled from this node.
	Uninstalled = Reason{Name: "Uninstalled", Event: true, Gate: true}
	// FabricsUnknown says that neither the API server nor an earlier agent has told which Fabrics there are.
	FabricsUnknown = Reason{Name: "FabricsUnknown", Event: true, Gate: true}
	// FabricUnreadable says that this version of the agent can't read a Fabric.
	FabricUnreadable = Reason{Name: "FabricUnreadable", Event: true}
	// FabricUnused says that the node has a fabric with ports that no pod can ask for.
	FabricUnused = Reason{Name: "FabricUnused", Event: true}
	// FabricUnmatched says that a Fabric has no devices on a node that has some.
	FabricUnmatched = Reason{Name: "FabricUnmatched", Event: true}
	// PortDown says that the port of a device is not Active.
	PortDown = Reason{Name: "PortDown", Event: true, Once: true, Recovered: DeviceRecovered}
	// Flapping says that the port of a device has come and gone of late.
	Flapping = Reason{Name: "Flapping", Event: true, Once: true, Recovered: DeviceRecovered}
	// CounterLimit says that a counter of a device rises faster than its Fabric allows.
	CounterLimit = Reason{Name: "CounterLimit", Event: true, Once: true, Recovered: DeviceRecovered}
	// NotConnected says that the port of a device has never been Active, most likely for want of a cable.
	NotConnected = Reason{Name: "NotConnected", Once: true}
	// RefusedRDMAMode says that ADD fails in the node's RDMA mode.
	RefusedRDMAMode = Reason{Name: wrongRDMAMode, Event: true, Gate: true}
	// WrongRDMAMode says that the node's RDMA mode does not give pods what the mode of a Fabric promises.
	WrongRDMAMode = Reason{Name: wrongRDMAMode, Event: true}
	// NoRange says that this node has no addresses of its own in a Fabric with nodeRanges.
	NoRange = Reason{Name: "NoRange", Event: true}
	// NoAddressLeft says that the node's own range has fewer addresses than there are devices or shares on offer.
	NoAddressLeft = Reason{Name: "NoAddressLeft", Event: true}
	// NoConfiguration says that Multus finds no configuration of a Fabric's network on this node.
	NoConfiguration = Reason{Name: "NoConfiguration", Event: true}
	// IPAMMissing says that the IPAM plugin of a Fabric is not on this node.
	IPAMMissing = Reason{Name: "IPAMMissing", Event: true}
	// InUseElsewhere says that a pod has a device that was not offered to it.
	InUseElsewhere = Reason{Name: "InUseElsewhere", Event: true, Once: true, Recovered: DeviceRecovered}
	// InUseByHost says that the host uses the RDMA device of a device, and would lose its connections by a move.
	InUseByHost = Reason{Name: "InUseByHost", Event: true, Once: true, Recovered: DeviceRecovered}
	// NoAllocation says that ResourceClaims get no device of this node's Fabrics with allocation DRA.
	NoAllocation = Reason{Name: "NoAllocation", Event: true}
	// NotOffered says that a device of a Fabric with allocation DRA has a name that no ResourceSlice can have.
	NotOffered = Reason{Name: "NotOffered", Event: true}
	// WritesUnconfined says that the API server lets this agent write about other nodes.
	WritesUnconfined = Reason{Name: "WritesUnconfined", Event: true}
	// UninstallRefused says that pods have devices of a node that is told to uninstall everything.
	UninstallRefused = Reason{Name: "UninstallRefused", Event: true, Gate: true}
)

// wrongRDMAMode is one name for two reasons: people do the same about both, and only one of them stops the agent.
const wrongRDMAMode = "WrongRDMAMode"

// The reasons of Events that say what has happened, and is over.
const (
	// DeviceRecovered says that nothing is wrong with a device any more.
	DeviceRecovered = "DeviceRecovered"
	// DeviceRepaired says that the agent has reclaimed a device that a dead pod left behind.
	DeviceRepaired = "DeviceRepaired"
	// PortTaken says that something else listens at the agent's address for probes or metrics.
	PortTaken = "PortTaken"
)

// Type is a condition of a FabricNode. It is there while there is one of its reasons, with status False.
type Type struct {
	Name    string
	Note    bool     // it may well be meant so: the FabricNode is Ready all the same
	Reasons []Reason // the worst first
}

// Types are the conditions of a FabricNode but Ready, the worst first.
var Types = []Type{
	{Name: v1alpha1.FabricNodePluginReady, Reasons: []Reason{PluginMissing, StateNotWritable, Uninstalled}},
	{Name: v1alpha1.FabricNodeFabricsKnown, Reasons: []Reason{FabricsUnknown, FabricUnreadable}},
	{Name: v1alpha1.FabricNodeFabricsUsed, Note: true, Reasons: []Reason{FabricUnused, FabricUnmatched}},
	{Name: v1alpha1.FabricNodePortsHealthy, Reasons: []Reason{PortDown, Flapping, CounterLimit}},
	{Name: v1alpha1.FabricNodePortsConnected, Note: true, Reasons: []Reason{NotConnected}},
	{Name: v1alpha1.FabricNodeRDMAModeFits, Reasons: []Reason{RefusedRDMAMode, WrongRDMAMode}},
	{Name: v1alpha1.FabricNodeDevicesAvailable, Reasons: []Reason{
		NoRange, NoAddressLeft, NoConfiguration, IPAMMissing, InUseElsewhere, InUseByHost, NoAllocation, NotOffered,
	}},
	{Name: v1alpha1.FabricNodeWritesConfined, Reasons: []Reason{WritesUnconfined}},
	{Name: v1alpha1.FabricNodeUninstallPossible, Reasons: []Reason{UninstallRefused}},
}

// condition is the condition that a reason is one of.
func (r Reason) condition() string {
	for _, t := range Types {
		if slices.Contains(t.Reasons, r) {
			return t.Name
		}
	}
	return ""
}
