package clusternet

import (
	"encoding/json"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// Whereabouts is the API group of whereabouts.
const Whereabouts = "whereabouts.cni.cncf.io"

// Source is a kind of objects that have ranges.
type Source struct {
	Group           string
	Versions        []string // the first that is served is read
	Kind, Resource  string
	Namespace, Name string // of the only one that counts; empty: all
	What            string // for messages, in the plural

	instead string // read only if this resource has no range
	read    func(object map[string]any) []Use
}

// Sources are all that is compared. A role that compares may list each of them.
//
// Fields: Kubernetes' API; Calico's, Cilium's, Kube-OVN's, OpenShift's, nv-ipam's and whereabouts'
// CustomResourceDefinitions; OVN-Kubernetes' annotation k8s.ovn.org/node-subnets (go-controller/pkg/util).
var Sources = []Source{
	{Versions: []string{"v1"}, Kind: "Node", Resource: "nodes", What: "Nodes", read: ofNode},
	{Group: "networking.k8s.io", Versions: []string{"v1", "v1beta1"}, Kind: "ServiceCIDR", Resource: "servicecidrs",
		What: "ServiceCIDRs", read: sure("ServiceCIDR", "spec", "cidrs")},
	// Before Kubernetes 1.33 only the API server's flags have the range of Services.
	{Versions: []string{"v1"}, Kind: "Service", Resource: "services", Namespace: "default", Name: "kubernetes",
		What: "address of the Service kubernetes", instead: "servicecidrs", read: ofService},
	{Group: "config.openshift.io", Versions: []string{"v1"}, Kind: "Network", Resource: "networks",
		What: "networks of OpenShift", read: ofOpenShift},
	{Group: "crd.projectcalico.org", Versions: []string{"v1"}, Kind: "IPPool", Resource: "ippools",
		What: "IPPools of Calico", read: ofCalico},
	{Group: "cilium.io", Versions: []string{"v2"}, Kind: "CiliumNode", Resource: "ciliumnodes", What: "CiliumNodes",
		read: sure("CiliumNode", "spec", "ipam", "podCIDRs")},
	{Group: "cilium.io", Versions: []string{"v2", "v2alpha1"}, Kind: "CiliumPodIPPool", Resource: "ciliumpodippools",
		What: "CiliumPodIPPools", read: ofCilium},
	{Group: "kubeovn.io", Versions: []string{"v1"}, Kind: "Subnet", Resource: "subnets", What: "Subnets of Kube-OVN",
		read: ofKubeOVN},
	{Group: Whereabouts, Versions: []string{"v1alpha1"}, Kind: "IPPool", Resource: "ippools",
		What: "IPPools of whereabouts", read: ofWhereabouts},
	{Group: nvipam.Group, Versions: []string{nvipam.Version}, Kind: nvipam.IPPool, Resource: "ippools",
		What: "IPPools of nv-ipam", read: ofNVIPAM(nvipam.IPPool, "subnet")},
	{Group: nvipam.Group, Versions: []string{nvipam.Version}, Kind: nvipam.CIDRPool, Resource: "cidrpools",
		What: "CIDRPools of nv-ipam", read: ofNVIPAM(nvipam.CIDRPool, "cidr")},
}

// named is what messages call an object.
func named(what string, o map[string]any) string {
	return what + " " + quote.Clip(quote.Terminal(name(o)), maxName)
}

func name(o map[string]any) string {
	name, _, _ := unstructured.NestedString(o, "metadata", "name")
	return name
}

// texts are the strings of a list.
func texts(o map[string]any, path ...string) (out []string) {
	list, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	all, _ := list.([]any)
	for _, v := range all {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// uses are the ranges of a text each; what is no range is left out: its owner can't use it either.
func uses(u Use, all ...string) (out []Use) {
	for _, text := range all {
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			a = a.Unmap().WithZone("")
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			continue
		}
		u.Prefix = p.Masked()
		out = append(out, u)
	}
	return out
}

// sure reads ranges that all pods reach by their first interface.
func sure(what string, path ...string) func(map[string]any) []Use {
	return func(o map[string]any) []Use { return uses(Use{What: named(what, o), Sure: true}, texts(o, path...)...) }
}

// subnetsAnnotation is where OVN-Kubernetes writes the subnets of a Node's pods, by network.
const subnetsAnnotation = "k8s.ovn.org/node-subnets"

// ofNode reads what a Node's pods have, and its own addresses. A rail may be in one network with the nodes: an address
// alone is not sure to be cut off.
func ofNode(o map[string]any) []Use {
	out := uses(Use{What: named("podCIDRs of Node", o), Sure: true}, texts(o, "spec", "podCIDRs")...)
	addresses, _, _ := unstructured.NestedFieldNoCopy(o, "status", "addresses")
	list, _ := addresses.([]any)
	for _, v := range list {
		a, _ := v.(map[string]any)
		if kind := a["type"]; kind != "InternalIP" && kind != "ExternalIP" {
			continue
		}
		if text, ok := a["address"].(string); ok {
			out = append(out, uses(Use{What: named("address of Node", o)}, text)...)
		}
	}
	text, _, _ := unstructured.NestedString(o, "metadata", "annotations", subnetsAnnotation)
	networks := map[string]any{}
	if text == "" || json.Unmarshal([]byte(text), &networks) != nil {
		return out
	}
	for network, value := range networks { // a string before OVN-Kubernetes had two families, now a list
		u := Use{What: named("OVN's subnets of Node", o), Sure: network == "default"}
		if one, ok := value.(string); ok {
			out = append(out, uses(u, one)...)
		}
		out = append(out, uses(u, texts(networks, network)...)...)
	}
	return out
}

// ofService reads the addresses of the Service kubernetes: the first of the range, which is not to be had.
func ofService(o map[string]any) []Use {
	all := texts(o, "spec", "clusterIPs")
	if one, _, _ := unstructured.NestedString(o, "spec", "clusterIP"); len(all) == 0 {
		all = []string{one}
	}
	const what = "the Service kubernetes, an address of the range of Services, which this cluster does not tell"
	return uses(Use{What: what, Sure: true}, all...)
}

// ofOpenShift reads the cluster network and the Service network.
func ofOpenShift(o map[string]any) []Use {
	out := uses(Use{What: named("serviceNetwork of OpenShift's Network", o), Sure: true},
		texts(o, "status", "serviceNetwork")...)
	networks, _, _ := unstructured.NestedFieldNoCopy(o, "status", "clusterNetwork")
	list, _ := networks.([]any)
	for _, v := range list {
		n, _ := v.(map[string]any)
		if text, ok := n["cidr"].(string); ok {
			out = append(out, uses(Use{What: named("clusterNetwork of OpenShift's Network", o), Sure: true}, text)...)
		}
	}
	return out
}

// ofCalico reads an IPPool of Calico: pods may still have addresses of one that is disabled.
func ofCalico(o map[string]any) []Use {
	text, _, _ := unstructured.NestedString(o, "spec", "cidr")
	disabled, _, _ := unstructured.NestedBool(o, "spec", "disabled")
	return uses(Use{What: named("Calico IPPool", o), Sure: !disabled}, text)
}

// ofCilium reads a CiliumPodIPPool.
func ofCilium(o map[string]any) []Use {
	u := Use{What: named("CiliumPodIPPool", o), Sure: true}
	return append(uses(u, texts(o, "spec", "ipv4", "cidrs")...), uses(u, texts(o, "spec", "ipv6", "cidrs")...)...)
}

// ofKubeOVN reads a Subnet: of another provider than ovn it is a secondary network, of another VPC its own world.
func ofKubeOVN(o map[string]any) []Use {
	text, _, _ := unstructured.NestedString(o, "spec", "cidrBlock")
	provider, _, _ := unstructured.NestedString(o, "spec", "provider")
	vpc, _, _ := unstructured.NestedString(o, "spec", "vpc")
	first := (provider == "" || provider == "ovn") && (vpc == "" || vpc == "ovn-cluster")
	return uses(Use{What: named("Kube-OVN Subnet", o), Sure: first}, strings.Split(text, ",")...)
}

// ofWhereabouts reads an IPPool of whereabouts: its range, or what its name says.
func ofWhereabouts(o map[string]any) []Use {
	text, _, _ := unstructured.NestedString(o, "spec", "range")
	allocations, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "allocations")
	given, _ := allocations.(map[string]any)
	u := Use{What: named("whereabouts IPPool", o), Idle: len(given) == 0,
		Pool: Pool{Whereabouts, "IPPool", name(o)}}
	if text == "" {
		if all := whereabouts.Named(name(o)); len(all) > 0 {
			text = all[0].String()
		}
	}
	return uses(u, text)
}

// ofNVIPAM reads a pool of nv-ipam.
func ofNVIPAM(kind, field string) func(map[string]any) []Use {
	return func(o map[string]any) []Use {
		text, _, _ := unstructured.NestedString(o, "spec", field)
		return uses(Use{What: named("nv-ipam "+kind, o), Pool: Pool{nvipam.Group, kind, name(o)}}, text)
	}
}
