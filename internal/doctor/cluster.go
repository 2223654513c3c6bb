package doctor

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/ipam/pool"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Cluster is the picture that the cluster's checks look at, as kubectl get ... -o json prints its parts.
type Cluster struct {
	CRDs       []string // names of CustomResourceDefinitions
	DaemonSets DaemonSets
	Nodes      ClusterNodes
	NADs       NADs
	Pools      Pools
	Missing    []string // what could not be asked, with the reason

	Inventories []node.Published // what the agents have published; none: no agent, or an older one
	Version     string           // of the program that asks; empty: do not compare
}

// DaemonSets is a list of them.
type DaemonSets struct {
	Items []struct {
		Metadata meta `json:"metadata"`
		Status   struct {
			Desired int `json:"desiredNumberScheduled"`
			Ready   int `json:"numberReady"`
			Updated int `json:"updatedNumberScheduled"`
		} `json:"status"`
	} `json:"items"`
}

// ClusterNodes is a list of nodes.
type ClusterNodes struct {
	Items []ClusterNode `json:"items"`
}

// ClusterNode is one node as the API server has it.
type ClusterNode struct {
	Metadata meta `json:"metadata"`
	Status   struct {
		Allocatable map[string]string `json:"allocatable"`
	} `json:"status"`
}

// Pools are whereabouts' IPPools.
type Pools struct {
	Items []struct {
		Metadata meta `json:"metadata"`
		Spec     struct {
			Range       string                     `json:"range"`
			Allocations map[string]json.RawMessage `json:"allocations"`
		} `json:"spec"`
	} `json:"items"`
}

type meta struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

// CheckCluster runs every check of the cluster.
func CheckCluster(c *Cluster) (out []Finding) {
	for _, m := range c.Missing {
		out = append(out, finding("cluster-access", Warn, m))
	}
	for _, check := range []func(*Cluster) []Finding{clusterCRDs, clusterDaemons, clusterNADs, clusterRanges,
		clusterPools, clusterNodes, clusterFabrics, clusterGUIDs, clusterInventory, clusterVersions} {
		out = append(out, check(c)...)
	}
	return out
}

func clusterCRDs(c *Cluster) (out []Finding) {
	want := []string{"network-attachment-definitions.k8s.cni.cncf.io"}
	if slices.ContainsFunc(c.NADs.Items, func(n NAD) bool { return n.ipam().Type == "whereabouts" }) {
		want = append(want, "ippools.whereabouts.cni.cncf.io", "overlappingrangeipreservations.whereabouts.cni.cncf.io")
	}
	for _, w := range want {
		if !slices.Contains(c.CRDs, w) {
			out = append(out, finding("cluster-crds", Fail, "no CustomResourceDefinition "+w))
		}
	}
	return pass(out, "cluster-crds", strings.Join(want, ", "))
}

// daemons are those that rails depend on, by a word in their name.
var daemons = []string{"multus", "whereabouts", "device-plugin", "rdma-shared", "sriovdp", "fabric-agent"}

func clusterDaemons(c *Cluster) (out []Finding) {
	multus := false
	for _, d := range c.DaemonSets.Items {
		name := d.Metadata.Namespace + "/" + d.Metadata.Name
		if !slices.ContainsFunc(daemons, func(w string) bool { return strings.Contains(d.Metadata.Name, w) }) {
			continue
		}
		multus = multus || strings.Contains(d.Metadata.Name, "multus")
		switch s := d.Status; {
		case s.Ready < s.Desired:
			out = append(
				out,
				finding(
					"cluster-daemons",
					Fail,
					fmt.Sprintf("%s is ready on %d of %d nodes", name, s.Ready, s.Desired),
				),
			)
		case s.Updated < s.Desired:
			out = append(
				out,
				finding(
					"cluster-daemons",
					Warn,
					fmt.Sprintf("%s has its new version on %d of %d nodes", name, s.Updated, s.Desired),
				),
			)
		}
	}
	if !multus {
		out = append(out, finding("cluster-daemons", Fail, "no DaemonSet of Multus"))
	}
	return pass(out, "cluster-daemons", "all ready, of one version")
}

// conf is what matters of a NAD's configuration.
type conf struct {
	Type    string   `json:"type"`
	Plugins []conf   `json:"plugins"`
	Master  string   `json:"master"`
	IPAM    ipamConf `json:"ipam"`

	DeviceID   string `json:"deviceID"`
	PCIBusID   string `json:"pciBusID"`
	Device     string `json:"device"`
	HWAddr     string `json:"hwaddr"`
	KernelPath string `json:"kernelpath"`
	RDMADevice string `json:"rdmaDevice"`
	GUID       string `json:"guid"`
}

type ipamConf struct {
	Type    string `json:"type"`
	Range   string `json:"range"`
	Network string `json:"network_name"`
}

func (n *NAD) conf() (conf, error) {
	var c conf
	if err := json.Unmarshal([]byte(n.Spec.Config), &c); err != nil {
		return c, err
	}
	if len(c.Plugins) > 0 {
		return c.Plugins[0], nil
	}
	return c, nil
}

func (n *NAD) ipam() ipamConf {
	c, err := n.conf()
	if err != nil {
		return ipamConf{} // clusterNADs reports it
	}
	return c.IPAM
}

func clusterNADs(c *Cluster) (out []Finding) {
	for i := range c.NADs.Items {
		n := &c.NADs.Items[i]
		name := n.Metadata.Namespace + "/" + n.Metadata.Name
		conf, err := n.conf()
		if err != nil {
			out = append(out, finding("cluster-nad", Fail, name+": spec.config is no JSON: "+err.Error()))
			continue
		}
		resource := n.Metadata.Annotations[resourceAnnotation]
		named := conf.Master + conf.DeviceID + conf.PCIBusID + conf.Device + conf.HWAddr + conf.KernelPath +
			conf.RDMADevice + conf.GUID
		switch {
		case resource == "" && named == "" &&
			slices.Contains([]string{"fabric", "sriov", "ib-sriov", "host-device"}, conf.Type):
			out = append(out, finding("cluster-nad", Fail, name+" has neither a resourceName nor a device"))
		case resource != "" &&
			!slices.ContainsFunc(c.Nodes.Items, func(n ClusterNode) bool { return n.count(resource) > 0 }):
			out = append(out, finding("cluster-nad", Fail, name+": no node has the resource "+resource))
		}
	}
	return pass(out, "cluster-nad", fmt.Sprintf("%d networks", len(c.NADs.Items)))
}

func (n *ClusterNode) count(resource string) int {
	v, err := strconv.Atoi(n.Status.Allocatable[resource])
	if err != nil {
		return 0
	}
	return v
}

// clusterRanges finds networks whose ranges overlap without being one: whereabouts keeps them in different pools.
func clusterRanges(c *Cluster) (out []Finding) {
	type used struct {
		name string
		p    netip.Prefix
		pool string
	}
	var all []used
	for i := range c.NADs.Items {
		n := &c.NADs.Items[i]
		ipam := n.ipam()
		if ipam.Type != "whereabouts" || ipam.Range == "" {
			continue
		}
		name := n.Metadata.Namespace + "/" + n.Metadata.Name
		p, err := netip.ParsePrefix(ipam.Range)
		if err != nil {
			if !strings.Contains(ipam.Range, "-") { // 10.0.0.1-10.0.0.9/24 is allowed
				out = append(out, finding("cluster-ranges", Fail, name+": range "+ipam.Range+" is no prefix"))
			}
			continue
		}
		for _, o := range all {
			if o.p.Overlaps(p) && (o.p.Masked() != p.Masked() || o.pool != ipam.Network) {
				out = append(
					out,
					finding("cluster-ranges", Warn, fmt.Sprintf("%s (%s) and %s (%s) overlap", o.name, o.p, name, p)),
				)
			}
		}
		all = append(all, used{name, p, ipam.Network})
	}
	if len(all) == 0 {
		return out
	}
	return pass(out, "cluster-ranges", fmt.Sprintf("%d ranges", len(all)))
}

// clusterPools finds pools of whereabouts that are nearly full, as the agent does (internal/ipam/pool).
func clusterPools(c *Cluster) (out []Finding) {
	for _, p := range c.Pools.Items {
		r, err := netip.ParsePrefix(p.Spec.Range)
		if err != nil {
			continue
		}
		have, used := pool.Usable(r), len(p.Spec.Allocations)
		text := fmt.Sprintf("%s: %d of %d addresses are given", p.Spec.Range, used, have)
		switch pool.LevelOf(used, have) {
		case pool.Room:
		case pool.NearlyFull:
			out = append(out, finding("cluster-pools", Warn, text))
		case pool.Full:
			out = append(out, finding("cluster-pools", Fail, text))
		}
	}
	if len(c.Pools.Items) == 0 {
		return nil
	}
	return pass(out, "cluster-pools", fmt.Sprintf("%d pools with room", len(c.Pools.Items)))
}

// clusterNodes compares nodes with the same GPUs: they should have as many of each resource, and as many Active ports.
func clusterNodes(c *Cluster) (out []Finding) {
	kinds := c.kinds()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		nodes := kinds[kind]
		names := map[string]bool{}
		for _, n := range nodes {
			for r := range n.Status.Allocatable {
				names[r] = names[r] || strings.Contains(r, "/")
			}
		}
		for _, r := range slices.Sorted(maps.Keys(names)) {
			if names[r] {
				out = append(out, odd(kind, "of "+r, nodes, func(n *ClusterNode) int { return n.count(r) })...)
			}
		}
		out = append(
			out,
			odd(kind, "Active ports", nodes, func(n *ClusterNode) int { return c.activePorts(n.Metadata.Name) })...)
	}
	if len(kinds) == 0 {
		return nil
	}
	return pass(out, "cluster-nodes", fmt.Sprintf("%d kinds of GPU nodes, each alike", len(kinds)))
}

// odd reports nodes with another count than most of their kind. A negative count is not known, and left out.
func odd(kind, what string, nodes []ClusterNode, count func(*ClusterNode) int) (out []Finding) {
	by := map[int]int{}
	for i := range nodes {
		if n := count(&nodes[i]); n >= 0 {
			by[n]++
		}
	}
	usual := 0
	for _, n := range slices.Sorted(maps.Keys(by)) {
		if by[n] >= by[usual] {
			usual = n
		}
	}
	for i := range nodes {
		if n := count(&nodes[i]); n >= 0 && n != usual {
			out = append(
				out,
				finding(
					"cluster-nodes",
					Warn,
					fmt.Sprintf(
						"%s has %d %s, most nodes with %s have %d",
						nodes[i].Metadata.Name,
						n,
						what,
						kind,
						usual,
					),
				),
			)
		}
	}
	return out
}
