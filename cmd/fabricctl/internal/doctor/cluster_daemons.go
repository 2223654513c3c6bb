package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// DaemonPod is a pod of a DaemonSet.
type DaemonPod struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Node string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		Containers []containerStatus `json:"containerStatuses"`
		Init       []containerStatus `json:"initContainerStatuses"`
	} `json:"status"`
}

type containerStatus struct {
	State struct {
		Waiting *struct {
			Reason string `json:"reason"`
		} `json:"waiting"`
	} `json:"state"`
}

func (p *DaemonPod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// why is the reason for which the first container waits (CrashLoopBackOff), or the phase of the pod.
func (p *DaemonPod) why() string {
	for _, c := range slices.Concat(p.Status.Init, p.Status.Containers) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
			return w.Reason
		}
	}
	if p.Status.Phase == "Running" {
		return "not ready"
	}
	return cmp.Or(p.Status.Phase, "not ready")
}

// daemons are those that rails depend on, by a word in their name: CNI plugins and what installs them, device
// plugins,
// and the network operators' drivers (mofed-ubuntu22.04-ds) and daemons.
var daemons = []string{
	"multus", "whereabouts", "device-plugin", "rdma-shared", "sriovdp", "fabric-agent", "mofed",
	"doca-driver", "nv-ipam", "cni-plugins", "sriov-cni", "rdma-cni", "ipoib-cni", "sriov-network-config-daemon",
	"nvidia-peermem",
}

// Matters tells whether rails depend on this DaemonSet.
func (d *DaemonSet) Matters() bool {
	return slices.ContainsFunc(daemons, func(w string) bool { return strings.Contains(d.Metadata.Name, w) })
}

func clusterDaemons(c *Cluster) (out []Finding) {
	has := func(word string) bool {
		return slices.ContainsFunc(c.DaemonSets.Items, func(d DaemonSet) bool {
			return strings.Contains(d.Metadata.Name, word)
		})
	}
	var seen []string
	for i := range c.DaemonSets.Items {
		d := &c.DaemonSets.Items[i]
		if !d.Matters() {
			continue
		}
		name := d.Metadata.Namespace + "/" + d.Metadata.Name
		seen = append(seen, name)
		switch s := d.Status; {
		case s.Ready < s.Desired:
			text := fmt.Sprintf("%s is ready on %d of %d nodes", name, s.Ready, s.Desired)
			out = append(out, finding("cluster-daemons", Fail, text+d.missing()))
		case s.Updated < s.Desired:
			out = append(out, finding("cluster-daemons", Warn,
				fmt.Sprintf("%s has its new version on %d of %d nodes", name, s.Updated, s.Desired)))
		}
	}
	if !has("multus") {
		out = append(out, finding("cluster-daemons", Fail, "no DaemonSet of Multus"))
	}
	if users := c.ipamUsers("whereabouts"); len(users) > 0 && !has("whereabouts") &&
		slices.Contains(c.CRDs, whereaboutsCRD) { // without them clusterCRDs says that it is not installed
		f := finding("cluster-daemons", Warn, "no DaemonSet of whereabouts, and it is the IPAM of "+few(users))
		f.Cause = "whereabouts is not installed: a node without /opt/cni/bin/whereabouts starts no pod with " +
			"these networks, and nobody frees the addresses of pods that have died"
		f.Cure = "apply whereabouts' DaemonSet and CRDs of one release; or addresses of fabric-cni itself: addresses." +
			"nodeRanges in the Fabric"
		out = append(out, f)
	}
	return pass(out, "cluster-daemons", "all ready, of one version: "+few(seen))
}

// missing says on which nodes a DaemonSet's pod is not ready, and why.
func (d *DaemonSet) missing() string {
	by, order := map[string][]string{}, []string{}
	for i := range d.Pods {
		p := &d.Pods[i]
		if p.ready() {
			continue
		}
		why := p.why()
		if by[why] == nil {
			order = append(order, why)
		}
		by[why] = append(by[why], cmp.Or(p.Spec.Node, "no node ("+p.Metadata.Name+")"))
	}
	var parts []string
	for _, why := range order[:min(len(order), 4)] {
		slices.Sort(by[why])
		parts = append(parts, fmt.Sprintf("not on %s (%s)", few(by[why]), why))
	}
	if without := d.Status.Desired - len(d.Pods); d.Pods != nil && without > 0 {
		parts = append(parts, fmt.Sprintf("%d nodes have no pod of it yet", without))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "; ")
}

// ipamUsers are the networks and Fabrics with addresses of an IPAM plugin.
func (c *Cluster) ipamUsers(plugin string) (out []string) {
	for i := range c.NADs.Items {
		n := &c.NADs.Items[i]
		if n.ipam().Type == plugin {
			out = append(out, n.Metadata.Namespace+"/"+n.Metadata.Name)
		}
	}
	for i := range c.Fabrics {
		if usesIPAM(&c.Fabrics[i], plugin) {
			out = append(out, "Fabric "+c.Fabrics[i].Name)
		}
	}
	return out
}

func usesIPAM(f *v1alpha1.Fabric, plugin string) bool {
	return f.Spec.Addresses != nil && f.Spec.Addresses.IPAM != nil && f.Spec.Addresses.IPAM.Type == plugin
}
