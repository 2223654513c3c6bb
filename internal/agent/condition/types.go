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

// The reasons. docs/reference/signals.md is made from these comments: the first paragraph is what a reason means, the
// second what to do.
var (
	// PluginMissing says that the installed CNI binary is not the agent's.
	//
	// The message has the error: space and permissions of the directory of CNI plugins.
	PluginMissing = Reason{Name: "PluginMissing", Gate: true}
	// StateNotWritable says that the plugin can't write its journal.
	//
	// Space, permissions and SELinux of /run/fabric-cni.
	StateNotWritable = Reason{Name: "StateNotWritable", Gate: true}
	// Uninstalled says that fabric-cni is uninstalled from this node.
	//
	// A new pod of the agent ends it, and so does `fabric-agent install` in the present one.
	Uninstalled = Reason{Name: "Uninstalled", Event: true, Gate: true}
	// FabricsUnknown says that neither the API server nor an earlier agent has told which Fabrics there are. No device
	// is offered to new pods.
	//
	// Can this node reach the API server, and may the agent list Fabrics?
	FabricsUnknown = Reason{Name: "FabricsUnknown", Event: true, Gate: true}
	// FabricUnreadable says that this version of the agent can't read a Fabric. What the agent could read last stays in
	// force on this node.
	//
	// Update fabric-agent.
	FabricUnreadable = Reason{Name: "FabricUnreadable", Event: true}
	// FabricUnused says that the node has ports that no Fabric has.
	//
	// The message has what to write to use them.
	FabricUnused = Reason{Name: "FabricUnused", Event: true}
	// FabricUnmatched says that a Fabric has no device on a node that has some.
	//
	// The message has the nearest device, and what keeps it out. It is normal for a Fabric that only other nodes have.
	FabricUnmatched = Reason{Name: "FabricUnmatched", Event: true}
	// PortDown says that the port of a device is not Active.
	//
	// Check its cable, its transceiver and the port of the switch: docs/health.md#fabricportdown
	PortDown = Reason{Name: "PortDown", Event: true, Once: true, Recovered: DeviceRecovered}
	// PortDegraded says that some ports of a device are not Active, and others are: of a Fabric whose pods get all of
	// them (allPorts). Pods still get the device, whose other ports carry traffic.
	//
	// Check the cable of the port that the message names, its transceiver and the port of the switch.
	PortDegraded = Reason{Name: "PortDegraded", Event: true, Once: true, Recovered: DeviceRecovered}
	// Flapping says that the port of a device has come and gone of late.
	//
	// As for a port that is down: docs/health.md#fabricdeviceflapping
	Flapping = Reason{Name: "Flapping", Event: true, Once: true, Recovered: DeviceRecovered}
	// CounterLimit says that an error counter of a device rises faster than its Fabric allows.
	//
	// The message names the counter: docs/health.md#fabricdevicecounterlimit
	CounterLimit = Reason{Name: "CounterLimit", Event: true, Once: true, Recovered: DeviceRecovered}
	// NotConnected says that the port of a device has never been Active: it has no cable, most likely.
	//
	// If it has one, check that, its transceiver and the port of the switch.
	NotConnected = Reason{Name: "NotConnected", Once: true}
	// RefusedRDMAMode says that the plugin refuses the node's RDMA mode: the network of a Fabric needs the other one.
	//
	// The message has the command. A reboot follows.
	RefusedRDMAMode = Reason{Name: wrongRDMAMode, Event: true, Gate: true}
	// WrongRDMAMode says that the node's RDMA mode does not give pods what a Fabric promises: with attachment
	// IPoIBChild a node in exclusive mode, which offers no device; with WholeDevice a node in shared mode, where every
	// pod sees the RDMA devices.
	//
	// The message has the command; or change rdmaMode of the Fabric: docs/exclusive-mode.md
	WrongRDMAMode = Reason{Name: wrongRDMAMode, Event: true}
	// NoRange says that the node has no range of a Fabric with nodeRanges, so Multus would find no network of that name
	// ("No networks found").
	//
	// The Fabric says whether its ranges are exhausted: docs/addresses.md. A node that is new has its range within
	// seconds.
	NoRange = Reason{Name: "NoRange", Event: true}
	// NoAddressLeft says that the node's own range has fewer addresses than the node has devices or shares. As many are
	// on offer as can have one, always the same.
	//
	// A shorter perNodePrefixLength in a new Fabric, or fewer shares. The message counts addresses of attachments that
	// are gone.
	NoAddressLeft = Reason{Name: "NoAddressLeft", Event: true}
	// NoConfiguration says that Multus finds no configuration of a Fabric's network here: no device of a Fabric with
	// attachment IPoIBChild has an interface on the host, or the file in Multus's directory could not be written.
	//
	// The message has the error.
	NoConfiguration = Reason{Name: "NoConfiguration", Event: true}
	// IPAMMissing says that the program of a Fabric's IPAM plugin is not on the node.
	//
	// Install it there, or correct the name: the message says which one is near.
	// docs/addresses.md#an-ipam-plugin-that-is-not-there
	IPAMMissing = Reason{Name: "IPAMMissing", Event: true}
	// InUseElsewhere says that a pod has a device without having been given it: one of a Fabric that has another name
	// now, one that uses it by a ResourceClaim or by IPoIB children, or one whose own NetworkAttachmentDefinition named
	// it.
	//
	// The message names pod and network. The device is on offer again when that pod has ended. Keep tenants from naming
	// devices: docs/policy.md
	InUseElsewhere = Reason{Name: "InUseElsewhere", Event: true, Once: true, Recovered: DeviceRecovered}
	// InUseByHost says that a module of the host's kernel or a process of the host uses the RDMA device of a device, in
	// exclusive RDMA mode: a move would cut its connections.
	//
	// The message names it: docs/policy.md#what-the-host-uses. A device that is meant for the host belongs in no
	// Fabric.
	InUseByHost = Reason{Name: "InUseByHost", Event: true, Once: true, Recovered: DeviceRecovered}
	// NoAllocation says that ResourceClaims get no device of this node's Fabrics with allocation DRA.
	//
	// The message has the cause: docs/dra.md
	NoAllocation = Reason{Name: "NoAllocation", Event: true}
	// NotOffered says that a device of a Fabric with allocation DRA has a name that no ResourceSlice can have.
	//
	// The message has the name.
	NotOffered = Reason{Name: "NotOffered", Event: true}
	// WritesUnconfined says that the API server lets this agent write about other nodes.
	//
	// Apply the admission policies of this version: docs/security.md
	WritesUnconfined = Reason{Name: "WritesUnconfined", Event: true}
	// UninstallRefused says that pods have devices of a node that is told to uninstall everything.
	//
	// Delete the pods that the message names.
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
	{Name: v1alpha1.FabricNodeRDMAModeFits, Reasons: []Reason{RefusedRDMAMode, WrongRDMAMode}},
	{Name: v1alpha1.FabricNodeDevicesAvailable, Reasons: []Reason{
		NoRange, NoAddressLeft, NoConfiguration, IPAMMissing, InUseElsewhere, InUseByHost, NoAllocation, NotOffered,
	}},
	{Name: v1alpha1.FabricNodePortsHealthy, Reasons: []Reason{PortDown, PortDegraded, Flapping, CounterLimit}},
	{Name: v1alpha1.FabricNodeUninstallPossible, Reasons: []Reason{UninstallRefused}},
	{Name: v1alpha1.FabricNodeWritesConfined, Reasons: []Reason{WritesUnconfined}},
	{Name: v1alpha1.FabricNodePortsConnected, Note: true, Reasons: []Reason{NotConnected}},
	{Name: v1alpha1.FabricNodeFabricsUsed, Note: true, Reasons: []Reason{FabricUnused, FabricUnmatched}},
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
