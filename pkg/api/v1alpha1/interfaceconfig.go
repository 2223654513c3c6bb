package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InterfaceConfig is what a ResourceClaim or a DeviceClass may say of the interfaces of its devices: opaque parameters
// of the driver fabric.dev. Each setting that is given replaces that of the Fabric. It is no object of the API server:
// the driver reads it strictly when it prepares the claim, and a pod with a wrong one does not start.
//
// +kubebuilder:object:root=true
type InterfaceConfig struct {
	metav1.TypeMeta `json:",inline"`

	// The name of the interface in the pod, such as ib0. For several devices one that ends with %d, such as ib%d: ib0,
	// ib1 and so on, in the order of rails. Without it they are net1, net2 and so on.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
	// The MTU of the interface in bytes, 68 to 65520.
	//
	// +optional
	MTU *int32 `json:"mtu,omitempty"`
	// The name of the RDMA device in the pod; auto: mlx5_0 for the pod's first, mlx5_1 for its second, and so on.
	//
	// +optional
	RDMAName string `json:"rdmaName,omitempty"`
	// RoCE: the type of service of connections that rdma_cm makes and that ask for no other, 0 to 255.
	//
	// +optional
	TOS *int32 `json:"tos,omitempty"`
	// RoCE: the version of such connections: V1 or V2.
	//
	// +optional
	RoCEMode RoCEMode `json:"roceMode,omitempty"`
	// RoCE: the traffic class of all queue pairs, 0 to 255; needs NVIDIA's driver package (DOCA-OFED).
	//
	// +optional
	TrafficClass *int32 `json:"trafficClass,omitempty"`
	// A routing table and rules for the addresses of each interface, so that each rail answers from its own interface.
	//
	// +optional
	SourceBasedRouting *bool `json:"sourceBasedRouting,omitempty"`
	// Asks on the network whether the address is in use, before the pod gets it.
	//
	// +optional
	DetectConflicts *bool `json:"detectConflicts,omitempty"`
	// The partition: of an IPoIB child, of fabrics with attachment IPoIBChild; otherwise the one that the subnet
	// manager must have put the port into.
	//
	// +optional
	PKey string `json:"pkey,omitempty"`
	// The mode of an IPoIB child, of fabrics with attachment IPoIBChild: Datagram or Connected.
	//
	// +optional
	IPoIBMode IPoIBMode `json:"ipoibMode,omitempty"`
	// Whether the kernel ignores the multicast of an IPoIB child, of fabrics with attachment IPoIBChild.
	//
	// +optional
	Umcast *bool `json:"umcast,omitempty"`
}
