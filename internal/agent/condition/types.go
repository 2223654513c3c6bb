package condition

// Type is a kind of condition, and how it is reported when its status is False. The names are positive, so that False
// is always the state that needs attention.
type Type struct {
	Name   string
	Reason string // of the status False
	Event  bool   // reported as an Event on the Node
	Gate   bool   // the agent is not ready while its status is False
}

// The types. Their reasons are listed in docs/kubernetes.md.
var (
	// SettingsAccepted says that the settings file is in force as it is.
	SettingsAccepted = Type{Name: "SettingsAccepted", Reason: "SettingsRefused", Event: true}
	// FabricUsed says that pods can ask for all ports of a discovered fabric.
	FabricUsed = Type{Name: "FabricUsed", Reason: "FabricUnused", Event: true}
	// FabricMatched says that a fabric of the settings has devices on a node that has any.
	FabricMatched = Type{Name: "FabricMatched", Reason: "FabricUnmatched", Event: true}
	// PortActive says that a device of a fabric carries traffic.
	PortActive = Type{Name: "PortActive", Reason: "PortDown", Event: true}
	// NetworkPublished says that a fabric's NetworkAttachmentDefinition is as the settings have it.
	NetworkPublished = Type{Name: "NetworkPublished", Reason: "NetworkConflict", Event: true}
	// NodeRangeAllocated says that this node has addresses of its own in a fabric with nodeRanges.
	NodeRangeAllocated = Type{Name: "NodeRangeAllocated", Reason: "RangeExhausted", Event: true}
	// AddressesSufficient says that a fabric has as many addresses as its devices need.
	AddressesSufficient = Type{Name: "AddressesSufficient", Reason: "RangeTooSmall", Event: true}
	// PoolAvailable says that a pool has addresses left to give.
	PoolAvailable = Type{Name: "PoolAvailable", Reason: "PoolNearlyExhausted", Event: true}
	// RDMAModeFits says that the node's RDMA mode gives pods what a fabric's mode promises.
	RDMAModeFits = Type{Name: "RDMAModeFits", Reason: "WrongRDMAMode", Event: true}
	// RDMAModeUsable says that the node's RDMA mode does not make ADD fail.
	RDMAModeUsable = Type{Name: "RDMAModeUsable", Reason: "WrongRDMAMode", Event: true, Gate: true}
	// PluginInstalled says that the installed CNI binary is the agent's.
	PluginInstalled = Type{Name: "PluginInstalled", Reason: "PluginMissing", Gate: true}
	// StateWritable says that the plugin can write its journal.
	StateWritable = Type{Name: "StateWritable", Reason: "StateNotWritable", Gate: true}
)
