package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Addresses is where the addresses of the interfaces come from.
//
// +kubebuilder:validation:XValidation:rule="(has(self.nodeRanges) && !has(self.ipam) && !has(self.host)) || (has(self.ipam) && !has(self.nodeRanges) && !has(self.host)) || (has(self.host) && !has(self.nodeRanges) && !has(self.ipam))",message="want exactly one of nodeRanges, ipam and host"
type Addresses struct {
	// A range for each node, given out by the controller, and within it an address for each interface, given out by the
	// plugin itself. No pod waits for a lock of the cluster, and no other program is needed.
	//
	// +optional
	NodeRanges *NodeRanges `json:"nodeRanges,omitempty"`
	// The configuration of an IPAM plugin, as in a network configuration: {"type": "whereabouts", "range": ...}.
	// docs/addresses.md says which one to choose when.
	//
	// +optional
	IPAM *IPAM `json:"ipam,omitempty"`
	// The addresses, routes and rules that the interface has on the host, as clouds give them to rails. With attachment
	// WholeDevice.
	//
	// +optional
	Host *HostAddresses `json:"host,omitempty"`
}

// HostAddresses is how the addressing of the host goes along.
type HostAddresses struct {
	// Whether an interface counts as free although the host has a default route through it that a router advertisement
	// has given. Set it if the host does not need that route: while a pod has the interface, the host is without.
	//
	// +optional
	IgnoreRADefaultRoute bool `json:"ignoreRADefaultRoute,omitempty"`
	// Whether an address that a DHCP server has given for a time goes along, without its lifetime: in the pod nothing
	// renews it. Set it where the network gives an interface the same address for good, as clouds do. Otherwise such an
	// interface is refused.
	//
	// +optional
	KeepLeases bool `json:"keepLeases,omitempty"`
}

// IPAM is the configuration of an IPAM plugin. Beside type it has the fields of that plugin.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.type != 'nv-ipam' || has(self.poolName)",fieldPath=".poolName",message="nv-ipam needs the name of an IPPool or CIDRPool"
// +kubebuilder:validation:XValidation:rule="!has(self.poolType) || self.poolType in ['ippool', 'cidrpool']",fieldPath=".poolType",message="want ippool or cidrpool"
type IPAM struct {
	// The IPAM plugin: whereabouts, nv-ipam, host-local, static, dhcp, or the name of another one.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",message="want the file name of an IPAM plugin, as in whereabouts"
	Type string `json:"type"`
	// whereabouts: the range of all nodes, 192.168.10.0/24.
	//
	// +kubebuilder:validation:MaxLength=90
	// +optional
	Range string `json:"range,omitempty"`
	// nv-ipam: the name of the IPPool or CIDRPool.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PoolName string `json:"poolName,omitempty"`
	// nv-ipam: ippool, which is the default, or cidrpool.
	//
	// +kubebuilder:validation:MaxLength=16
	// +optional
	PoolType string `json:"poolType,omitempty"`

	// Raw is the whole configuration, type included.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the text as it is.
func (i *IPAM) UnmarshalJSON(b []byte) error {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return fmt.Errorf("addresses.ipam: %w", err)
	}
	*i = IPAM{Type: head.Type, Raw: bytes.Clone(b)}
	return nil
}

// MarshalJSON returns the text as it was read; without one, the type alone.
func (i IPAM) MarshalJSON() ([]byte, error) {
	if i.Raw != nil {
		return i.Raw, nil
	}
	return json.Marshal(map[string]string{"type": i.Type})
}

// NodeRanges divides ranges into one for each node. With two ranges, one of each family, every interface gets two
// addresses.
//
// +kubebuilder:validation:XValidation:rule="self.ranges.size() < 2 || !isCIDR(self.ranges[0].range) || !isCIDR(self.ranges[1].range) || cidr(self.ranges[0].range).ip().family() != cidr(self.ranges[1].range).ip().family()",fieldPath=".ranges",message="two ranges are one of IPv4 and one of IPv6: an interface gets an address of each"
// +kubebuilder:validation:XValidation:rule="!has(self.static) || self.static.all(s, !isCIDR(s.range) || self.ranges.exists(r, isCIDR(r.range) && cidr(r.range).containsCIDR(s.range) && cidr(s.range).prefixLength() == r.perNodePrefixLength))",fieldPath=".static",message="each static range lies within a range and is as long as its perNodePrefixLength says"
type NodeRanges struct {
	// One range, or one IPv4 and one IPv6 range.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	Ranges []NodeRange `json:"ranges"`
	// Nodes whose range is fixed.
	//
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=node
	// +optional
	Static []StaticRange `json:"static,omitempty"`
	// How long a Node must have been gone before its range may be another's: pods may outlive their Node. Default 24h.
	//
	// +optional
	Reclaim *metav1.Duration `json:"reclaim,omitempty"`
}

// NodeRange is a range of the whole fabric, and how much of it a node gets.
//
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.range) || (self.perNodePrefixLength >= cidr(self.range).prefixLength() && self.perNodePrefixLength <= (cidr(self.range).ip().family() == 4 ? 30 : 126))",fieldPath=".perNodePrefixLength",messageExpression="'want a prefix length from that of ' + self.range + ' to 30, or 126 for IPv6'"
// +kubebuilder:validation:XValidation:rule="!has(self.exclude) || !isCIDR(self.range) || self.exclude.all(e, (isIP(e) && cidr(self.range).containsIP(e)) || (isCIDR(e) && cidr(self.range).containsCIDR(e)))",fieldPath=".exclude",messageExpression="'want ranges and addresses that lie within ' + self.range"
type NodeRange struct {
	// The range of the whole fabric, which is also the subnet of every interface: 10.0.0.0/16.
	//
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="want an address with a prefix length, as in 10.0.0.0/16"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has bits of an address behind its prefix length: write the first address of the range, as in 10.0.0.0/16"
	Range string `json:"range"`
	// The prefix length of a node's range: 26 for 62 to 64 addresses.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=126
	PerNodePrefixLength int32 `json:"perNodePrefixLength"`
	// Ranges and addresses that no pod gets.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=set
	// +optional
	Exclude []string `json:"exclude,omitempty"`
}

// StaticRange fixes the range of one node.
type StaticRange struct {
	// The name of the Node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// The node's range, of the length perNodePrefixLength and within one of the ranges.
	//
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="want an address with a prefix length, as in 10.0.1.0/26"
	Range string `json:"range"`
}
