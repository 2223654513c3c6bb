package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// PodReady is the condition of a pod.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// whyUnready is the reason for which the first container waits (CrashLoopBackOff), or the phase of the pod.
func whyUnready(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
			return w.Reason
		}
	}
	if p.Status.Phase == corev1.PodRunning {
		return "not ready"
	}
	return cmp.Or(string(p.Status.Phase), "not ready")
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
	return slices.ContainsFunc(daemons, func(w string) bool { return strings.Contains(d.Name, w) })
}

func clusterDaemons(c *Cluster) (out []Finding) {
	has := func(word string) bool {
		return slices.ContainsFunc(c.DaemonSets, func(d DaemonSet) bool {
			return strings.Contains(d.Name, word)
		})
	}
	var seen []string
	for i := range c.DaemonSets {
		d := &c.DaemonSets[i]
		if !d.Matters() {
			continue
		}
		name := d.Namespace + "/" + d.Name
		seen = append(seen, name)
		if s, text := d.state(); s != OK {
			out = append(out, finding("cluster-daemons", s, name+text))
		}
	}
	if !has("multus") {
		out = append(out, finding("cluster-daemons", Fail, "no DaemonSet of Multus"))
	}
	if users := c.ipamUsers("whereabouts"); len(users) > 0 && !has("whereabouts") &&
		slices.Contains(c.CRDs, whereaboutsCRD) { // without them clusterCRDs says that it is not installed
		f := finding("cluster-daemons", Warn, "no DaemonSet of whereabouts, and it is the IPAM of "+few(users))
		f.Cause = "whereabouts is not installed: a node without /opt/cni/bin/whereabouts starts no pod with " +
			"these networks, and the addresses of dead pods are never freed"
		f.Cure = "apply whereabouts' DaemonSet and CRDs of one release; or addresses of fabric-cni itself: addresses." +
			"nodeRanges in the Fabric"
		out = append(out, f)
	}
	return pass(out, "cluster-daemons", "all ready, of one version: "+few(seen))
}

// state is whether a DaemonSet is ready on its nodes with its new version, and in words that follow its name where.
func (d *DaemonSet) state() (Status, string) {
	s := d.Status
	if s.NumberReady >= s.DesiredNumberScheduled && s.UpdatedNumberScheduled < s.DesiredNumberScheduled {
		return Warn, fmt.Sprintf(" has its new version on %d of %d nodes", s.UpdatedNumberScheduled,
			s.DesiredNumberScheduled)
	}
	text := fmt.Sprintf(" is ready on %d of %d nodes", s.NumberReady, s.DesiredNumberScheduled)
	if s.NumberReady < s.DesiredNumberScheduled {
		return Fail, text + d.missing()
	}
	return OK, text
}

// missing says on which nodes a DaemonSet's pod is not ready, and why.
func (d *DaemonSet) missing() string {
	by, order := map[string][]string{}, []string{}
	for i := range d.Pods {
		p := &d.Pods[i]
		if PodReady(p) {
			continue
		}
		why := whyUnready(p)
		if by[why] == nil {
			order = append(order, why)
		}
		by[why] = append(by[why], cmp.Or(p.Spec.NodeName, "no node ("+p.Name+")"))
	}
	var parts []string
	for _, why := range order[:min(len(order), 4)] {
		slices.Sort(by[why])
		parts = append(parts, fmt.Sprintf("not on %s (%s)", few(by[why]), why))
	}
	if without := int(d.Status.DesiredNumberScheduled) - len(d.Pods); d.Pods != nil && without > 0 {
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
