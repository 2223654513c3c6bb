package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Fabric is one network of HCAs: which ports of which nodes belong to it, how pods get them, and where their addresses
// come from. Pods ask for it by its name: the network NAME in the annotation k8s.v1.cni.cncf.io/networks, and the
// resource fabric.dev/NAME.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=fab,categories=fabric-cni
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Attachment",type=string,JSONPath=`.spec.attachment`
// +kubebuilder:printcolumn:name="Link",type=string,JSONPath=`.status.linkLayer`
// +kubebuilder:printcolumn:name="Rate",type=string,JSONPath=`.status.rate`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.status.devices.total`
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.devices.healthy`
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=`.status.devices.attached`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.status.addresses.summary`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Allocation",type=string,priority=1,JSONPath=`.spec.allocation`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Namespaces",type=string,priority=1,JSONPath=`.status.published`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$')",message="metadata.name: want 1 to 50 of a-z, 0-9 and -, as in ib-200g: it is the name of the resource, of the network and of a file"
type Fabric struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the fabric should be. People write it.
	Spec FabricSpec `json:"spec"`
	// What the controller has made of it.
	//
	// +optional
	Status FabricStatus `json:"status,omitzero"`
}

// FabricList is a list of Fabrics.
//
// +kubebuilder:object:root=true
type FabricList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Fabric `json:"items"`
}

// FabricSpec is what the fabric should be.
//
// +kubebuilder:validation:XValidation:rule="self.attachment == 'IPoIBChild' || !has(self.shares)",fieldPath=".shares",message="shares is for attachment IPoIBChild only: remove it, or write attachment: IPoIBChild"
// +kubebuilder:validation:XValidation:rule="self.attachment == 'WholeDevice' || !has(self.network) || !has(self.network.rdmaName)",fieldPath=".network.rdmaName",message="rdmaName is for attachment WholeDevice only: with attachment IPoIBChild the RDMA device stays on the host"
// +kubebuilder:validation:XValidation:rule="self.attachment == 'WholeDevice' || !has(self.network) || !has(self.network.allPorts)",fieldPath=".network.allPorts",message="allPorts is for attachment WholeDevice only: an IPoIB child is on one port"
// +kubebuilder:validation:XValidation:rule="self.attachment == 'WholeDevice' || !has(self.network) || (!has(self.network.tos) && !has(self.network.roceMode) && !has(self.network.trafficClass))",fieldPath=".network",message="tos, roceMode and trafficClass are for attachment WholeDevice only: they are those of RoCE ports"
// +kubebuilder:validation:XValidation:rule="self.attachment == 'IPoIBChild' || !has(self.network) || (!has(self.network.ipoibMode) && !has(self.network.umcast))",fieldPath=".network",message="ipoibMode and umcast are for attachment IPoIBChild only"
type FabricSpec struct {
	// Which devices belong to the fabric. A device belongs to it if every given field fits.
	Match Match `json:"match"`
	// Labels of the Nodes whose devices belong to the fabric. Default: all Nodes.
	//
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// What a pod gets. WholeDevice: a device of its own, with its RDMA device and its interface. IPoIBChild: an IPoIB
	// child interface on a device that it shares with other pods, and the device files of the HCA.
	//
	// +kubebuilder:default=WholeDevice
	// +optional
	Attachment Attachment `json:"attachment,omitempty"`
	// How many pods may share a device, with attachment IPoIBChild. Default 8.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Shares *int32 `json:"shares,omitempty"`
	// Who hands the devices out. DevicePlugin: kubelet, to containers that ask for the resource fabric.dev/NAME.
	// DRA: the scheduler, to pods with a ResourceClaim of the DeviceClass NAME.fabric.dev; needs Kubernetes 1.34.
	//
	// +kubebuilder:default=DevicePlugin
	// +optional
	Allocation Allocation `json:"allocation,omitempty"`
	// Device files of the HCA that containers get beside uverbs and rdma_cm, which is all that verbs need. With UMAD a
	// container sends management datagrams: it can read and change what the subnet manager sets, if that uses no keys,
	// and reset counters. ISSM lets it tell the subnet that it is a subnet manager itself. Default: none.
	//
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	DeviceFiles []DeviceFile `json:"deviceFiles,omitempty"`
	// Settings of the interface that pods get.
	//
	// +optional
	Network Network `json:"network,omitzero"`
	// In which namespaces the network is published: a NetworkAttachmentDefinition of the fabric's name in each.
	// Default: the namespace default.
	//
	// +optional
	Namespaces Namespaces `json:"namespaces,omitzero"`
	// Where the addresses of the interfaces come from. Without it the interfaces have none.
	//
	// +optional
	Addresses *Addresses `json:"addresses,omitempty"`
	// When a port counts as unhealthy although it is Active.
	//
	// +optional
	Health Health `json:"health,omitzero"`
	// Which fabric gets a device that fits several: the one with the highest precedence, and among these the first by
	// name.
	//
	// +optional
	Precedence int32 `json:"precedence,omitempty"`
}

// Attachment is what a pod gets of a device.
//
// +kubebuilder:validation:Enum=WholeDevice;IPoIBChild
type Attachment string

// What a pod gets of a device.
const (
	WholeDevice Attachment = "WholeDevice" // the RDMA device and its interface
	IPoIBChild  Attachment = "IPoIBChild"  // an IPoIB interface on it
)

// Allocation is who hands devices out.
//
// +kubebuilder:validation:Enum=DevicePlugin;DRA
type Allocation string

// Who hands devices out.
const (
	DevicePlugin Allocation = "DevicePlugin" // kubelet's device manager
	DRA          Allocation = "DRA"          // the scheduler, by ResourceClaims
)

// DeviceFile is a kind of device file that not every container needs.
//
// +kubebuilder:validation:Enum=UMAD;ISSM
type DeviceFile string

// The device files that a Fabric has to allow.
const (
	UMAD DeviceFile = "UMAD" // management datagrams: /dev/infiniband/umadN
	ISSM DeviceFile = "ISSM" // the mark of a subnet manager: /dev/infiniband/issmN
)

// Match picks devices of nodes.
//
// +kubebuilder:validation:XValidation:rule="has(self.discovered) || has(self.linkLayer) || has(self.subnetPrefix) || has(self.rateGb) || has(self.rail) || has(self.driver) || has(self.devices)",message="must have a field: discovered: NAME takes the devices that `fabricctl discover` shows as fabric NAME"
// +kubebuilder:validation:XValidation:rule="!has(self.subnetPrefix) || !has(self.linkLayer) || self.linkLayer != 'Ethernet'",fieldPath=".subnetPrefix",message="Ethernet ports have no subnet prefix: remove it, or write linkLayer: InfiniBand"
type Match struct {
	// The name under which `fabricctl discover` shows the devices: ib-200g. It depends on link layer, rate and subnet
	// prefix.
	//
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of a fabric that `fabricctl discover` shows, as in ib-200g"
	// +optional
	Discovered string `json:"discovered,omitempty"`
	// The link layer of the ports.
	//
	// +kubebuilder:validation:Enum=InfiniBand;Ethernet
	// +optional
	LinkLayer string `json:"linkLayer,omitempty"`
	// The subnet prefix of port 1, as `fabricctl discover -o wide` prints it: "fe80::".
	//
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,3}::(/64)?|([0-9a-fA-F]{1,4}:){3}[0-9a-fA-F]{1,4}|0x[0-9a-fA-F]{16})$')",message="want the upper 64 bits of a GID, as `fabricctl discover -o wide` prints them: \"fe80::\""
	// +optional
	SubnetPrefix string `json:"subnetPrefix,omitempty"`
	// The rate of port 1 in Gb/s, as the kernel reports it: 25, 100, 200, 400. A port that has trained down to a lower
	// rate does not fit.
	//
	// +kubebuilder:validation:XValidation:rule="self in [5,10,14,20,25,28,30,40,50,56,60,80,100,112,120,168,200,300,400,600,800,1200,1600,2400]",message="no link has this rate: want one of 5, 10, 14, 20, 25, 28, 30, 40, 50, 56, 60, 80, 100, 112, 120, 168, 200, 300, 400, 600, 800, 1200, 1600, 2400"
	// +optional
	RateGb *int32 `json:"rateGb,omitempty"`
	// The rail: which of its node's devices it is, counted from 0 in the order of PCI addresses among the devices that
	// fit everything else. So rail 0 of each node is on the same leaf switch, if the nodes are cabled alike.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=63
	// +optional
	Rail *int32 `json:"rail,omitempty"`
	// The driver of the PCI function, as `fabricctl discover -o json` and `lspci -k` show it: mlx5_core, ice, bnxt_en,
	// ionic, erdma, efa, mana. It fits devices that no fabric is discovered of, without an interface or link layer.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="must be the name of a driver, as in mlx5_core"
	// +optional
	Driver string `json:"driver,omitempty"`
	// Patterns of names, any of which must fit: the PCI address ("0000:3b:*"), the name of the RDMA device, or a name
	// or altname of the interface on the host ("ibs1*").
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('[ \\\\t\\\\n]')",message="no name of a device has white space"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^[0-9a-fA-F]{2}:[0-9a-fA-F*?]')",messageExpression="'PCI addresses have their domain: write 0000:' + self.lowerAscii()"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^[0-9a-fA-F]{4}:.*[A-F]')",messageExpression="'PCI addresses are in lower case: write ' + self.lowerAscii()"
	// +listType=set
	// +optional
	Devices []string `json:"devices,omitempty"`
}

// Network is the settings of the interface that pods get. docs/configuration.md says more of each.
type Network struct {
	// The MTU of the interface in bytes. Default: as it is on the host.
	//
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65520
	// +optional
	MTU *int32 `json:"mtu,omitempty"`
	// Whether a port that is not Active is handed out.
	//
	// +optional
	AllowDown bool `json:"allowDown,omitempty"`
	// The RDMA namespace mode that nodes must have. Any: the RDMA device moves into the pod where the mode is
	// exclusive, and stays on the host where it is shared. Exclusive, Shared: nodes in the other mode offer no device.
	// Ignore: the RDMA device is left alone, in both modes. Default Any.
	//
	// +optional
	RDMAMode RDMAMode `json:"rdmaMode,omitempty"`
	// The name of the RDMA device in the pod; auto: mlx5_0 for the pod's first, mlx5_1 for its second, and so on.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	RDMAName string `json:"rdmaName,omitempty"`
	// RoCE: whether the interfaces of all ports of an RDMA device go into the pod with it, as net1, net1p2 and so on:
	// those of a card with two ports, or of hardware planes. One port that is down does not keep the device from pods.
	//
	// +optional
	AllPorts bool `json:"allPorts,omitempty"`
	// RoCE: the type of service of connections that rdma_cm makes and that ask for no other: DSCP * 4 + ECN, such as
	// 106. Default: as it is on the host.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	// +optional
	TOS *int32 `json:"tos,omitempty"`
	// RoCE: the version of such connections. Default: as it is on the host.
	//
	// +optional
	RoCEMode RoCEMode `json:"roceMode,omitempty"`
	// RoCE: the traffic class of all queue pairs, whatever they ask for; needs NVIDIA's driver package (DOCA-OFED).
	// Default: as it is on the host.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	// +optional
	TrafficClass *int32 `json:"trafficClass,omitempty"`
	// A routing table and rules for the addresses of each interface, so that each rail answers from its own interface.
	// Default: true where a node has several devices of the fabric.
	//
	// +optional
	SourceBasedRouting *bool `json:"sourceBasedRouting,omitempty"`
	// Asks on the network whether the address is in use, before a pod gets it. Takes 0.9 s.
	//
	// +optional
	DetectConflicts bool `json:"detectConflicts,omitempty"`
	// The partition, 0x0001 to 0x7fff or 0x8001 to 0xffff: of an IPoIB child, with attachment IPoIBChild; otherwise the
	// one that the subnet manager must have put the port into. ADD waits for that, up to 5 seconds.
	//
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:XValidation:rule="self.matches('^0x[0-9a-fA-F]{1,4}$') && !self.matches('^0x(0{1,4}|8000)$')",message="want 0x0001 to 0x7fff, or 0x8001 to 0xffff for a full member"
	// +optional
	PKey string `json:"pkey,omitempty"`
	// The mode of an IPoIB child, with attachment IPoIBChild.
	//
	// +optional
	IPoIBMode IPoIBMode `json:"ipoibMode,omitempty"`
	// Whether the kernel ignores the multicast of an IPoIB child, with attachment IPoIBChild.
	//
	// +optional
	Umcast *bool `json:"umcast,omitempty"`
}

// RDMAMode is the RDMA namespace mode that a fabric needs.
//
// +kubebuilder:validation:Enum=Any;Exclusive;Shared;Ignore
type RDMAMode string

// The RDMA namespace modes that a fabric may need.
const (
	RDMAAny       RDMAMode = "Any"       // the RDMA device moves where the mode is exclusive
	RDMAExclusive RDMAMode = "Exclusive" // rdma system set netns exclusive
	RDMAShared    RDMAMode = "Shared"    // rdma system set netns shared
	RDMAIgnore    RDMAMode = "Ignore"    // the RDMA device is left alone
)

// RoCEMode is a version of RoCE.
//
// +kubebuilder:validation:Enum=V1;V2
type RoCEMode string

// The versions of RoCE.
const (
	RoCEv1 RoCEMode = "V1" // within one Ethernet segment
	RoCEv2 RoCEMode = "V2" // over UDP, routable
)

// IPoIBMode is the mode of an IPoIB interface.
//
// +kubebuilder:validation:Enum=Datagram;Connected
type IPoIBMode string

// The modes of an IPoIB interface.
const (
	Datagram  IPoIBMode = "Datagram"
	Connected IPoIBMode = "Connected"
)

// Namespaces is where a network is published: in those of the list and in those that the selector selects.
type Namespaces struct {
	// Names of namespaces.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="want the name of a namespace: a-z, 0-9 and -"
	// +listType=set
	// +optional
	Names []string `json:"names,omitempty"`
	// Labels of namespaces. The empty selector {} selects all.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Health is when a port counts as unhealthy although it is Active. What is not given has the defaults of
// docs/health.md.
type Health struct {
	// Limits of counters. A port is degraded while one of them rises faster.
	//
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=counter
	// +optional
	Counters []CounterLimit `json:"counters,omitempty"`
	// A port that leaves Active this often within ten minutes is flapping. Default 3; 0: never. Moving a device into a
	// pod and back does not count.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	FlapsPerTenMinutes *int32 `json:"flapsPerTenMinutes,omitempty"`
	// For how long the port must have been Active, and all counters within their limits, before a port that was
	// flapping or over a limit is healthy again. Default 10m.
	//
	// +optional
	Recovery *metav1.Duration `json:"recovery,omitempty"`
	// What follows. Report: conditions, Events and metrics. Withhold: also, kubelet gives the device to no new pod.
	//
	// +kubebuilder:validation:Enum=Report;Withhold
	// +optional
	Action string `json:"action,omitempty"`
}

// CounterLimit is the limit of one counter.
type CounterLimit struct {
	// The name of the counter in counters/ or hw_counters/ of the port: symbol_error.
	//
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9_]{1,63}$`
	Counter string `json:"counter"`
	// How much it may rise in a minute; 0: the counter is ignored.
	//
	// +kubebuilder:validation:Minimum=0
	PerMinute int64 `json:"perMinute"`
}
