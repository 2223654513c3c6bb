package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FabricStatus is what the controller has made of a Fabric.
type FabricStatus struct {
	// The generation of the spec that the conditions are about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The spec that is in force: the last one that was accepted. Agents work with this one.
	//
	// +optional
	InForce *FabricInForce `json:"inForce,omitempty"`
	// The link layer of the devices; "mixed" if they have several.
	//
	// +optional
	LinkLayer string `json:"linkLayer,omitempty"`
	// The rate of the devices: 200G, or 100G-200G.
	//
	// +optional
	Rate string `json:"rate,omitempty"`
	// How many nodes have devices of the fabric.
	//
	// +kubebuilder:default=0
	// +optional
	Nodes int32 `json:"nodes"`
	// How many devices there are.
	//
	// +kubebuilder:default={}
	// +optional
	Devices DeviceCounts `json:"devices"`
	// How many addresses there are.
	//
	// +optional
	Addresses AddressCounts `json:"addresses,omitzero"`
	// In which namespaces the network is published.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	// +optional
	Published []string `json:"published,omitempty"`
	// Ready, Accepted, AddressesSufficient, AddressesUnique, Published, Degraded.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FabricInForce is a spec that was accepted.
type FabricInForce struct {
	// The generation that had it.
	Generation int64 `json:"generation"`
	// The spec.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +structType=atomic
	Spec FabricSpec `json:"spec"`
}

// DeviceCounts is how many devices there are.
type DeviceCounts struct {
	// All devices.
	//
	// +kubebuilder:default=0
	// +optional
	Total int32 `json:"total"`
	// Those that pods may use: the port is Active, and nothing is wrong with it.
	//
	// +kubebuilder:default=0
	// +optional
	Healthy int32 `json:"healthy"`
	// Those whose port is not Active and has never been, as where there is no cable. They make nothing Degraded, and a
	// node not less Ready.
	//
	// +kubebuilder:default=0
	// +optional
	NotConnected int32 `json:"notConnected"`
	// Those that are in pods; with attachment IPoIBChild the interfaces on them.
	//
	// +kubebuilder:default=0
	// +optional
	Attached int32 `json:"attached"`
}

// AddressCounts is how many addresses there are. What the IPAM plugin does not tell is left out.
type AddressCounts struct {
	// How many there are to give.
	//
	// +optional
	Capacity int64 `json:"capacity,omitempty"`
	// How many are given.
	//
	// +optional
	Allocated int64 `json:"allocated,omitempty"`
	// Both: 1536/15872.
	//
	// +optional
	Summary string `json:"summary,omitempty"`
}

// Types of the conditions of a Fabric.
const (
	// FabricReady says that pods can use the fabric: it is accepted, published, and has healthy devices.
	FabricReady = "Ready"
	// FabricAccepted says that the present generation of the spec is in force. While it is False, the last one that was
	// accepted is.
	FabricAccepted = "Accepted"
	// FabricAddressesSufficient says that there are as many addresses as the devices need.
	FabricAddressesSufficient = "AddressesSufficient"
	// FabricAddressesUnique says that nothing else in the cluster has addresses of the fabric's ranges: no Service, no
	// pod's first interface, no node and no pool of an IPAM plugin, as far as the controller may read them.
	FabricAddressesUnique = "AddressesUnique"
	// FabricPublished says that the network is in each of its namespaces as the spec has it.
	FabricPublished = "Published"
	// FabricDegraded says that some of its devices are unhealthy.
	FabricDegraded = "Degraded"
)
