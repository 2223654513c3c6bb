package doctor

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Cluster is the picture that the cluster's checks look at.
type Cluster struct {
	CRDs       []string // names of CustomResourceDefinitions
	DaemonSets []DaemonSet
	Nodes      []corev1.Node // name, labels, allocatable, versions
	NADs       NADs
	Pools      Pools
	Missing    []string // what could not be asked, with the reason

	Fabrics     []v1alpha1.Fabric
	FabricNodes []FabricNode    // in the order of their names
	Controller  *Controller     // nil: not known
	AgentPods   *AgentPods      // nil: not known
	DRA         *ClusterDRA     // nil: not asked for
	Net         *clusternet.Net // what else has addresses; nil: not known
	Version     string          // of the program that asks; empty: do not compare
}

// FabricNode is a FabricNode whose inventory has been read.
type FabricNode struct {
	v1alpha1.FabricNode            // without the text of the inventory
	Node                *node.Node // of the inventory; nil: none
}

// DaemonSet is one of them.
type DaemonSet struct {
	appsv1.DaemonSet
	Pods []corev1.Pod `json:"-"` // of one that is not ready everywhere; nil: not asked
}

// CheckCluster runs every check of the cluster.
func CheckCluster(c *Cluster) (out []Finding) {
	for _, m := range c.Missing {
		out = append(out, finding("cluster-access", Warn, m))
	}
	for _, check := range []func(*Cluster) []Finding{clusterCRDs, clusterDaemons, clusterController, clusterFabrics,
		clusterAddresses,
		clusterDeletion, clusterFabricNodes, clusterNodeRanges, clusterRDMAMode, clusterAgents, clusterVersions,
		clusterNADs, clusterRanges, clusterPools, clusterNodes, clusterDiscovered, clusterGUIDs,
		clusterFirmware, clusterRails, clusterDRA} {
		out = append(out, bounded(check(c))...)
	}
	return out
}

// mostFindings of a check are readable.
const mostFindings = 50

// bounded keeps the findings of a check readable, whatever the size of the cluster.
func bounded(list []Finding) []Finding { return boundedBy(list, mostFindings) }

func boundedBy(list []Finding, most int) []Finding {
	if len(list) <= most {
		return list
	}
	more := list[most]
	more.Evidence = fmt.Sprintf("and %d more", len(list)-most)
	return append(list[:most:most], more)
}

// agent reports whether the cluster has fabric-agent, or is meant to: clusters with other device plugins have not.
func (c *Cluster) agent() bool {
	return len(c.Fabrics) > 0 || len(c.FabricNodes) > 0 || c.Controller != nil && c.Controller.Found ||
		c.AgentPods != nil && len(c.AgentPods.On) > 0 ||
		slices.ContainsFunc(c.CRDs, func(n string) bool { return strings.HasSuffix(n, ".fabric.dev") })
}

// Names of CustomResourceDefinitions.
const (
	NetworksCRD    = "network-attachment-definitions.k8s.cni.cncf.io"
	whereaboutsCRD = "ippools.whereabouts.cni.cncf.io"
)

func clusterCRDs(c *Cluster) []Finding {
	want := []string{NetworksCRD}
	if c.agent() {
		want = append(want, "fabrics.fabric.dev", "fabricnodes.fabric.dev")
	}
	if slices.ContainsFunc(c.NADs.Items, func(n NAD) bool { return n.ipam().Type == "whereabouts" }) {
		want = append(want, whereaboutsCRD, "overlappingrangeipreservations.whereabouts.cni.cncf.io")
	}
	missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(c.CRDs, w) })
	if len(missing) > 0 {
		return one(finding("cluster-crds", Fail, "no CustomResourceDefinition "+strings.Join(missing, ", ")))
	}
	return one(finding("cluster-crds", OK, strings.Join(want, ", ")))
}
