package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// ClusterDRA is what a cluster has of Dynamic Resource Allocation, as far as the checks of the cluster need it.
type ClusterDRA struct {
	DRA

	Served bool // resource.k8s.io/v1
}

// claimed are the Fabrics in force whose devices come from ResourceClaims.
func (c *Cluster) claimed() (out []*v1alpha1.Fabric) {
	for i := range c.Fabrics {
		if inForce(&c.Fabrics[i]).Allocation == v1alpha1.DRA {
			out = append(out, &c.Fabrics[i])
		}
	}
	return out
}

// ClaimsWanted reports whether a Fabric's devices come from ResourceClaims.
func (c *Cluster) ClaimsWanted() bool { return len(c.claimed()) > 0 }

// firstDRA is the minor version of the first Kubernetes 1.x that serves resource.k8s.io/v1.
const firstDRA = 34

func clusterDRA(c *Cluster) (out []Finding) {
	list := c.claimed()
	if len(list) == 0 || c.DRA == nil {
		return nil
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name)
	}
	if !c.DRA.Served {
		return one(finding("cluster-dra-api", Fail, "the API server does not serve resource.k8s.io/v1, and these "+
			"Fabrics have allocation DRA: "+few(names)))
	}
	var old []string
	for _, f := range list {
		for _, n := range c.devicesOf(f.Name) {
			v := c.kubelet(n.Name)
			text := n.Name + " (" + v + ")"
			if minor(v) >= 0 && minor(v) < firstDRA && !slices.Contains(old, text) {
				old = append(old, text)
			}
		}
	}
	if len(old) > 0 {
		out = append(out, finding("cluster-dra-api", Fail, "kubelet is older than 1.34 on "+few(old)))
	}
	out = pass(out, "cluster-dra-api", "resource.k8s.io/v1")
	if c.DRA.Partial {
		return out
	}
	return slices.Concat(out, c.draClasses(list), c.draSlices(list))
}

// kubelet is the version of a node's kubelet.
func (c *Cluster) kubelet(node string) string {
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Name == node {
			return n.Status.NodeInfo.KubeletVersion
		}
	}
	return ""
}

// minor is the second number of a version, or -1.
func minor(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 || parts[0] != "v1" {
		return -1
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return -1
	}
	return n
}

func (c *Cluster) draClasses(list []*v1alpha1.Fabric) (out []Finding) {
	for _, f := range list {
		if class := f.Name + "." + draDriver; !c.DRA.classes[class] {
			d := finding("cluster-dra-class", Fail, "Fabric "+f.Name+": no DeviceClass "+class)
			d.Cure = named(d.Cure, f.Name)
			out = append(out, d)
		}
	}
	return pass(out, "cluster-dra-class", strconv.Itoa(len(list))+" DeviceClasses")
}

// draSlices finds nodes with devices of a Fabric in order, and no slice with any.
func (c *Cluster) draSlices(list []*v1alpha1.Fabric) (out []Finding) {
	offered := map[[2]string]bool{}
	for _, o := range c.DRA.offers() {
		offered[[2]string{o.node, o.fabric}] = true
	}
	for _, f := range list {
		var without []string
		for _, n := range c.devicesOf(f.Name) {
			if !offered[[2]string{n.Name, f.Name}] && healthyOf(n, f.Name) > 0 {
				without = append(without, n.Name)
			}
		}
		if len(without) > 0 {
			out = append(out, finding("cluster-dra-slices", Fail, fmt.Sprintf("Fabric %s: no ResourceSlice of %s "+
				"has devices of it on %s", f.Name, draDriver, few(without))))
		}
	}
	for _, pool := range c.DRA.incomplete() {
		out = append(out, finding("cluster-dra-slices", Warn, "incomplete pool "+pool))
	}
	return pass(out, "cluster-dra-slices", "all nodes with devices")
}

func healthyOf(n *FabricNode, fabric string) (healthy int) {
	for _, f := range n.Status.Fabrics {
		for _, d := range f.Devices {
			if f.Name == fabric && d.Problem == "" {
				healthy++
			}
		}
	}
	return healthy
}
