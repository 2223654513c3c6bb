package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Preflight is what a cluster has before fabric-cni is installed, as far as the API server tells. Its texts are of
// nodes, tenants and other operators.
type Preflight struct {
	Mode     string              // RDMA mode that the nodes are to have: exclusive or shared
	Version  string              // of the API server: v1.34.2; empty: not known
	Features map[string][]string // versions that are served, by resource or API group; nil: not known
	Missing  []string            // what could not be asked, with the reason

	Nodes      []corev1.Node // name, labels, allocatable, versions
	DaemonSets []DaemonSet
	NADs       NADs
	Net        *clusternet.Net // the addresses that the cluster uses; nil: not asked

	FabricNodes    []FabricNode
	Policies       []NicPolicy
	Pools          []SriovPool
	States         []SriovState
	MachineConfigs []MachineConfig

	// Listed has what was listed to its end: "nodes", "pods", "daemonsets". Of the rest nothing is known but what is
	// there.
	Listed map[string]bool

	workloads   map[string]*podGroup // by namespace, kind and name
	sharedNames map[string]bool      // resources of the RDMA shared device plugin with another prefix than rdma/
}

// NicPolicy is what matters of a NicClusterPolicy or a NicNodePolicy of NVIDIA's network operator.
type NicPolicy struct {
	Kind     string     `json:"-"` // a List does not tell it of its items
	Metadata objectName `json:"metadata"`
	Spec     struct {
		Driver *struct {
			Image   string `json:"image"`
			Version string `json:"version"`
		} `json:"ofedDriver"`
		Shared *struct {
			Config string `json:"config"` // JSON, of the RDMA shared device plugin
		} `json:"rdmaSharedDevicePlugin"`
		NodeSelector map[string]string `json:"nodeSelector"` // of a NicNodePolicy
	} `json:"spec"`
}

// SriovPool is what matters of a SriovNetworkPoolConfig.
type SriovPool struct {
	Metadata objectName `json:"metadata"`
	Spec     struct {
		RDMAMode string `json:"rdmaMode"` // empty: the operator leaves it alone
	} `json:"spec"`
}

// SriovState is what matters of a SriovNetworkNodeState, which has the name of its Node.
type SriovState struct {
	Metadata objectName `json:"metadata"`
	Status   struct {
		System struct {
			RDMAMode string `json:"rdmaMode"`
		} `json:"system"`
	} `json:"status"`
}

// MachineConfig is what matters of one of OpenShift's.
type MachineConfig struct {
	Metadata objectName `json:"metadata"`
	Spec     struct {
		KernelArguments []string `json:"kernelArguments"`
	} `json:"spec"`
}

// objectName is whose an object is.
type objectName struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// String is namespace/name, bounded.
func (o objectName) String() string {
	if o.Namespace == "" {
		return quote.Clip(o.Name, maxName)
	}
	return quote.Clip(o.Namespace, maxName) + "/" + quote.Clip(o.Name, maxName)
}

// maxName bounds the name of an object: 253 bytes where the API server has checked it.
const maxName = 253

// Features that preflight asks for.
const (
	featureValidating = "ValidatingAdmissionPolicy"
	featureMutating   = "MutatingAdmissionPolicy"
	featureServices   = "ServiceCIDR"
	featureDRA        = "resource.k8s.io"
	featureNetworks   = "NetworkAttachmentDefinition"
	featureWhereabout = "whereabouts"
	featureNVIPAM     = "nv-ipam"
	featureMachines   = "MachineConfig"
)

// Feature is something that the API server serves or not.
type Feature struct{ Name, Group, Resource string } // without a resource the group itself

// Features are those that preflight asks for.
var Features = []Feature{
	{featureValidating, "admissionregistration.k8s.io", "validatingadmissionpolicies"},
	{featureMutating, "admissionregistration.k8s.io", "mutatingadmissionpolicies"},
	{featureServices, "networking.k8s.io", "servicecidrs"},
	{featureDRA, "resource.k8s.io", ""},
	{featureNetworks, "k8s.cni.cncf.io", "network-attachment-definitions"},
	{featureWhereabout, "whereabouts.cni.cncf.io", "ippools"},
	{featureNVIPAM, "nv-ipam.nvidia.com", ""},
	{featureMachines, "machineconfiguration.openshift.io", "machineconfigs"},
}

// mostWorkloads bounds how many workloads a check of preflight names, each in a finding of its own.
const mostWorkloads = 500

// CheckPreflight runs every check of preflight.
func CheckPreflight(p *Preflight) (out []Finding) {
	for _, m := range p.Missing {
		out = append(out, finding("preflight-access", Warn, quote.Clip(m, 600)))
	}
	out = boundedBy(out, mostFindings)
	for _, check := range []func(*Preflight) []Finding{
		preflightNodes, preflightKubernetes, preflightFeatures, preflightKernel, preflightMultus, preflightDriver,
		preflightMode, preflightModeOwner, preflightLocal, preflightSharedPlugin, preflightPlugins, preflightIPAM,
		preflightRDMAPods, preflightHostUsers, preflightRanges,
	} {
		out = append(out, boundedBy(check(p), mostWorkloads)...)
	}
	return out
}

// stops is the status of what exclusive mode stops.
func (p *Preflight) stops() Status {
	if p.Mode == device.NetnsExclusive.String() {
		return Fail
	}
	return OK
}

// stopped is a finding of what exclusive mode stops, and goes on in shared mode.
func (p *Preflight) stopped(id, evidence string) Finding {
	if p.stops() == OK {
		evidence += ": goes on in shared mode"
	}
	return finding(id, p.stops(), evidence)
}

// hasHCA tells whether a node has an HCA as far as objects show it, by node feature discovery or a device plugin.
func (p *Preflight) hasHCA(n *corev1.Node) bool {
	for l, v := range n.Labels {
		if strings.HasPrefix(l, "feature.node.kubernetes.io/pci-") && strings.Contains(l, "15b3") ||
			(l == "feature.node.kubernetes.io/rdma.capable" || l == "feature.node.kubernetes.io/rdma.available") &&
				v == "true" {
			return true
		}
	}
	for name := range n.Status.Allocatable {
		if r := string(name); countOf(n, r) > 0 && (p.shared(r) || p.NADs.rail(r)) {
			return true
		}
	}
	i := slices.IndexFunc(p.FabricNodes, func(f FabricNode) bool { return f.Name == n.Name })
	return i >= 0 && (p.FabricNodes[i].Status.Devices.Total > 0 ||
		p.FabricNodes[i].Node != nil && len(p.FabricNodes[i].Node.HCAs) > 0)
}

// hcaNodes are the nodes with HCAs, or all if that is known of no node.
func (p *Preflight) hcaNodes() (list []*corev1.Node, known bool) {
	var all []*corev1.Node
	for i := range p.Nodes {
		all = append(all, &p.Nodes[i])
		if p.hasHCA(&p.Nodes[i]) {
			list = append(list, &p.Nodes[i])
		}
	}
	if len(list) == 0 {
		return all, false
	}
	return list, true
}

func preflightNodes(p *Preflight) []Finding {
	list, known := p.hcaNodes()
	switch {
	case len(p.Nodes) == 0 && p.Listed["nodes"]:
		f := finding("preflight-nodes", Warn, "the cluster has no Node")
		f.Cause, f.Cure = "nothing to install it on", "add nodes, then run this again"
		return one(f)
	case len(p.Nodes) == 0:
		return nil // preflight-access says why
	case !known:
		return one(finding("preflight-nodes", Warn, fmt.Sprintf("nothing tells which of %d nodes have HCAs",
			len(p.Nodes))))
	}
	return one(finding("preflight-nodes", OK, fmt.Sprintf("%d of %d nodes have HCAs: %s", len(list), len(p.Nodes),
		few(nodeNames(list)))))
}

func nodeNames(list []*corev1.Node) (out []string) {
	for _, n := range list {
		out = append(out, quote.Clip(n.Name, maxName))
	}
	slices.Sort(out)
	return out
}

// firstMinor is the minor version of the first Kubernetes 1.x that fabric-cni works with.
const firstMinor = 32

func preflightKubernetes(p *Preflight) (out []Finding) {
	if m := minor(p.Version); m >= 0 && m < firstMinor {
		out = append(out, finding("preflight-kubernetes", Fail, "the API server is "+quote.Clip(p.Version, 40)))
	}
	old := map[string][]string{}
	for i := range p.Nodes {
		v := p.Nodes[i].Status.NodeInfo.KubeletVersion
		if m := minor(v); m >= 0 && m < firstMinor {
			old[v] = append(old[v], quote.Clip(p.Nodes[i].Name, maxName))
		}
	}
	if len(old) > 0 {
		out = append(out, finding("preflight-kubernetes", Fail, "kubelet: "+spread(old, 40)))
	}
	switch {
	case len(out) > 0:
		return out
	case minor(p.Version) < 0:
		f := finding("preflight-kubernetes", Warn, "the API server does not tell a version 1.x: "+
			cmp.Or(quote.Clip(p.Version, 40), "none"))
		f.Cause, f.Cure = "it could not be asked", "kubectl version: 1.32 or later is needed"
		return one(f)
	}
	return one(finding("preflight-kubernetes", OK, "the API server is "+quote.Clip(p.Version, 40)))
}

// without is what can't be used where a feature is missing.
var without = []struct{ feature, version, text string }{
	{featureDRA, "v1", "allocation: DRA needs resource.k8s.io/v1 (Kubernetes 1.34)"},
	{featureMutating, "", "one label on a pod needs MutatingAdmissionPolicy (Kubernetes 1.36, or its feature gate)"},
	{featureServices, "", "without ServiceCIDR (Kubernetes 1.33) ranges of Services are not known"},
}

func preflightFeatures(p *Preflight) []Finding {
	if p.Features == nil {
		return nil
	}
	if len(p.Features[featureValidating]) == 0 {
		return one(finding("preflight-features", Fail, "the API server does not serve ValidatingAdmissionPolicy"))
	}
	var has, lacks []string
	for _, w := range without {
		versions := p.Features[w.feature]
		if len(versions) == 0 || w.version != "" && !slices.Contains(versions, w.version) {
			lacks = append(lacks, w.text)
			continue
		}
		has = append(has, w.feature)
	}
	text := "served: " + strings.Join(slices.Insert(has, 0, featureValidating), ", ")
	if len(lacks) > 0 {
		text += "; not served: " + strings.Join(lacks, "; ")
	}
	return one(finding("preflight-features", OK, text))
}

func preflightKernel(p *Preflight) []Finding {
	by := map[string][]string{}
	list, _ := p.hcaNodes()
	for _, n := range list {
		if v := n.Status.NodeInfo.KernelVersion; v != "" {
			key := fmt.Sprintf("%s (%s)", quote.Clip(v, 64), quote.Clip(n.Status.NodeInfo.OSImage, 64))
			by[key] = append(by[key], quote.Clip(n.Name, maxName))
		}
	}
	if len(by) == 0 {
		return nil
	}
	return one(finding("preflight-kernel", OK, "Linux "+spread(by, 160)))
}
