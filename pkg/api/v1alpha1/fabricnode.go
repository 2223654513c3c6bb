package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FabricNode is what one node has of the fabrics. It has the name of the Node. The node's agent writes
// its status, the controller its spec; people only read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=fabn,categories=fabric-cni
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="RDMA-Mode",type=string,JSONPath=`.status.rdmaMode`
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.status.devices.total`
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.devices.healthy`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.devices.attached`
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.status.plugin.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
type FabricNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the controller has given to the node.
	//
	// +optional
	Spec FabricNodeSpec `json:"spec,omitzero"`
	// What the agent of the node has found and done.
	//
	// +optional
	Status FabricNodeStatus `json:"status,omitzero"`
}

// FabricNodeList is a list of FabricNodes.
//
// +kubebuilder:object:root=true
type FabricNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []FabricNode `json:"items"`
}

// FabricNodeSpec is what the controller has given to a node.
type FabricNodeSpec struct {
	// The node's ranges of the fabrics with nodeRanges. A node uses a range only while it stands here.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Ranges []AssignedRange `json:"ranges,omitempty"`
	// Ranges that the node had before. No other node gets them until the node reports that it works with this spec, and
	// that it holds none of their addresses.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Former []AssignedRange `json:"former,omitempty"`
	// Since when the cluster has no Node of this name. Its ranges stay its own for the time reclaim of the Fabric: pods
	// may outlive their Node.
	//
	// +optional
	Gone *metav1.Time `json:"gone,omitempty"`
	// Fabrics with a nodeSelector that selects the node, by name. The node uses no other Fabric that has one.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=50
	// +optional
	Selected []string `json:"selected,omitempty"`
	// Which term of the controller last wrote here.
	//
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Allocator string `json:"allocator,omitempty"`
}

// AssignedRange is a node's range of a fabric. With ranges of both families there are two.
type AssignedRange struct {
	// The name of the Fabric.
	//
	// +kubebuilder:validation:MaxLength=50
	Fabric string `json:"fabric"`
	// The subnet of the interfaces, which is the range of the whole fabric: 10.0.0.0/16.
	//
	// +kubebuilder:validation:MaxLength=43
	Subnet string `json:"subnet"`
	// The range of the node: 10.0.4.0/26.
	//
	// +kubebuilder:validation:MaxLength=43
	Range string `json:"range"`
}

// FabricNodeStatus is what the agent of a node has found and done. It is written when it changes, at most every 10 s.
type FabricNodeStatus struct {
	// The generation of the spec that the node works with.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The version of the agent.
	//
	// +optional
	Agent string `json:"agent,omitempty"`
	// The installed plugin.
	//
	// +optional
	Plugin Plugin `json:"plugin,omitzero"`
	// The mode of the RDMA subsystem: exclusive or shared.
	//
	// +optional
	RDMAMode string `json:"rdmaMode,omitempty"`
	// All devices of the node that are in a fabric.
	//
	// +kubebuilder:default={}
	// +optional
	Devices DeviceCounts `json:"devices"`
	// What the node has of each fabric.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Fabrics []NodeFabric `json:"fabrics,omitempty"`
	// The addresses that interfaces of the node's pods hold, of nodeRanges. The controller gives none of them to
	// another node, and a node that has lost its spec gets the ranges again that hold them. Absent: an older agent,
	// which does not say.
	//
	// +optional
	Held *HeldAddresses `json:"held,omitempty"`
	// Ready, and those of the others that are False: PluginReady, FabricsKnown, FabricsUsed, PortsHealthy,
	// PortsConnected, RDMAModeFits, DevicesAvailable, WritesConfined, UninstallPossible.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// HCAs, ports, interfaces and GPUs, as `fabricctl discover -o json` prints them, without what other fields tell;
	// 256 KiB at most.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	// +optional
	Inventory *runtime.RawExtension `json:"inventory,omitempty"`
}

// Plugin is the installed plugin.
type Plugin struct {
	// Its version.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Its checksum in hex.
	//
	// +optional
	SHA256 string `json:"sha256,omitempty"`
}

// NodeFabric is what a node has of a fabric.
type NodeFabric struct {
	// The name of the Fabric.
	Name string `json:"name"`
	// The generation of the Fabric that the node works with.
	//
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// The devices.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +optional
	Devices []FabricDevice `json:"devices,omitempty"`
	// How many addresses of the node's range are given, with nodeRanges.
	//
	// +optional
	Addresses int64 `json:"addresses,omitempty"`
}

// HeldAddresses are the addresses that pods of a node hold.
type HeldAddresses struct {
	// By Fabric; also of those that are gone.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Fabrics []HeldOfFabric `json:"fabrics,omitempty"`
}

// HeldOfFabric are the addresses that pods of a node hold of one Fabric.
type HeldOfFabric struct {
	// The name of the Fabric.
	//
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name"`
	// The addresses, neighbours joined: 10.0.4.1/32, 10.0.4.2/31. If they are more than 256, gaps between them are
	// closed.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +optional
	Prefixes []string `json:"prefixes,omitempty"`
}

// FabricDevice is one device of a fabric.
type FabricDevice struct {
	// The id by which kubelet knows the device: its PCI address.
	ID string `json:"id"`
	// The name of the RDMA device on the host.
	//
	// +optional
	HCA string `json:"hca,omitempty"`
	// The link layer, InfiniBand or Ethernet.
	//
	// +optional
	LinkLayer string `json:"linkLayer,omitempty"`
	// The rate in Gb/s.
	//
	// +optional
	RateGb int32 `json:"rateGb,omitempty"`
	// Why pods should not use it: PortDown, NotConnected, Flapping, CounterLimit; or why no new pod can be served with
	// it: NoRange, NoAddressLeft, NoConfiguration, IPAMMissing, WrongRDMAMode, InUseElsewhere, InUseByHost. Empty: it
	// is healthy.
	//
	// +optional
	Problem string `json:"problem,omitempty"`
	// The pods that have it, as namespace/name.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Pods []string `json:"pods,omitempty"`
}

// NodeAddressesAnnotation is the annotation of a FabricNode in which the controller writes which addresses its Node has
// beside those that kubelet tells pods: InternalIP and ExternalIP, with commas. The agent may read no Nodes.
const NodeAddressesAnnotation = "fabric.dev/node-addresses"

// Types of the conditions of a FabricNode. Those but Ready are there while they are False.
const (
	// FabricNodeReady says that pods can be served: it is False, with the reason of the worst, while one of the others
	// is, but for FabricsUsed and PortsConnected.
	FabricNodeReady = "Ready"
	// FabricNodePluginReady says that the agent's plugin is installed, and can work.
	FabricNodePluginReady = "PluginReady"
	// FabricNodeFabricsKnown says that the agent knows all Fabrics, and can read them.
	FabricNodeFabricsKnown = "FabricsKnown"
	// FabricNodeFabricsUsed says that pods can ask for the ports of each fabric that the node has, and that each Fabric
	// has devices here. A node is Ready without it.
	FabricNodeFabricsUsed = "FabricsUsed"
	// FabricNodePortsHealthy says that the ports of the devices carry traffic, without flaps and without errors.
	FabricNodePortsHealthy = "PortsHealthy"
	// FabricNodePortsConnected says that each port of the devices has been Active at some time. A node is Ready without
	// it: ports without a cable are the rule.
	FabricNodePortsConnected = "PortsConnected"
	// FabricNodeRDMAModeFits says that the node's RDMA mode gives pods what its Fabrics promise.
	FabricNodeRDMAModeFits = "RDMAModeFits"
	// FabricNodeDevicesAvailable says that each sound device can be given to a new pod, unless a pod has it.
	FabricNodeDevicesAvailable = "DevicesAvailable"
	// FabricNodeWritesConfined says that the API server refuses what this agent would write about other nodes.
	FabricNodeWritesConfined = "WritesConfined"
	// FabricNodeUninstallPossible says that no pod has devices of a node that is told to uninstall everything.
	FabricNodeUninstallPossible = "UninstallPossible"
)
