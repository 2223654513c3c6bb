package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// Controller is what there is of the controller of Fabrics.
type Controller struct {
	Namespace string
	Found     bool   // there is a Deployment
	Name      string // of it
	Wanted    int    // pods
	Ready     int
	Updated   int    // of the latest spec
	Leader    string // holder of the Lease; empty: not held
	Silent    int    // seconds since the leader renewed the Lease
	Lasts     int    // seconds for which the Lease is the leader's
}

// leaseName is the name of the controller's Lease.
const leaseName = "fabric-controller"

// patience is for how many times as long as a Lease lasts a leader may be silent: clocks of machines differ.
const patience = 4

// alive reports whether a controller works, as far as is known.
func (c *Controller) alive() bool { return c == nil || c.Leader != "" && c.Silent <= patience*c.Lasts }

func clusterController(c *Cluster) (out []Finding) {
	k := c.Controller
	if k == nil || !c.agent() {
		return nil
	}
	name := k.Namespace + "/" + k.Name
	switch {
	case !k.Found:
		out = append(out, finding("cluster-controller", Fail, "no Deployment of the controller in the namespace "+
			k.Namespace))
	case k.Ready == 0:
		out = append(out, finding("cluster-controller", Fail, fmt.Sprintf("no pod of the Deployment %s is ready, of %d",
			name, k.Wanted)))
	case k.Ready < k.Wanted:
		out = append(out, finding("cluster-controller", Warn,
			fmt.Sprintf("%d of %d pods of the Deployment %s are ready",
				k.Ready, k.Wanted, name)))
	}
	lease := "the Lease " + k.Namespace + "/" + leaseName
	switch {
	case k.Leader == "":
		out = append(out, finding("cluster-controller", Fail, "no controller leads: "+lease+" has no holder"))
	case !k.alive():
		out = append(out, finding("cluster-controller", Fail,
			fmt.Sprintf("the leader %s renewed %s %d s ago: it lasts for %d s", k.Leader, lease, k.Silent, k.Lasts)))
	}
	return pass(out, "cluster-controller", k.Leader+" leads")
}

// Reasons of conditions that are True, and yet a warning.
const (
	poolNearlyFull = "PoolNearlyFull"
	networkPutBack = "NetworkPutBack"
)

// fabricCures are the cures by the reason of a condition; NAME stands for the Fabric.
var fabricCures = map[string]string{
	"Refused": "kubectl edit fabric NAME: the message has the field and what is allowed; until then the last spec " +
		"that was accepted is in force",
	"InUse":         "delete these pods: kubectl get fabricnodes -o json has all; the Fabric goes with the last one",
	"MultusMissing": "install Multus: its manifests have the CustomResourceDefinition and the DaemonSet",
	"NetworkConflict": "kubectl -n NAMESPACE delete network-attachment-definition NAME, if nothing uses it; or " +
		"rename the Fabric, or remove the namespace from spec.namespaces",
	"NamespaceMissing": "kubectl create namespace, the one that the message names; or kubectl edit fabric NAME: " +
		"remove it from namespaces.names",
	"PublishFailed": "kubectl get resourcequotas,validatingwebhookconfigurations,mutatingwebhookconfigurations -A, " +
		"by what the message says; kubectl auth can-i create network-attachment-definitions.k8s.cni.cncf.io --as " +
		"system:serviceaccount:fabric-system:fabric-controller: apply the manifests of the controller's version",
	"NetworkContested": "stop the program that the message names, or take the definition out of what it keeps; " +
		"change the Fabric instead: kubectl edit fabric NAME",
	networkPutBack: "change the Fabric instead of its NetworkAttachmentDefinition: kubectl edit fabric NAME",
	"DRANotServed": "update the cluster to Kubernetes 1.34, or kubectl edit fabric NAME: allocation: DevicePlugin",
	"DeviceClassConflict": "kubectl delete deviceclass, the one that the message names, if nothing uses it; or " +
		"rename the Fabric",
	"DeviceClassFailed": "kubectl auth can-i create deviceclasses.resource.k8s.io --as " +
		"system:serviceaccount:fabric-system:fabric-controller: apply the manifests of the controller's version",
	"WaitingForNodes": "do the agents of these nodes run: kubectl -n fabric-system get pods -o wide; it goes on " +
		"without them in two minutes",
	"RangeReserved": "delete the pods of the node that has it, or give the range to no node: kubectl edit fabric NAME",
	"AddressConflict": "delete the pods of the node that the message names: their addresses are in the range of " +
		"another node",
	"RangeInUse": "kubectl edit fabric NAME, once no pod has its addresses: a range that is free, as generate fabric " +
		"--cluster proposes for a new Fabric",
	"RangeTooSmall": "kubectl edit fabric NAME: a wider range, or a longer perNodePrefixLength for more nodes",
	"IPAMMissing":   "install the IPAM plugin that spec.addresses.ipam names, or use addresses.nodeRanges",
	"PoolMissing": "make the pool: kubectl get ippools.nv-ipam.nvidia.com,cidrpools.nv-ipam.nvidia.com -A has those " +
		"that there are; or correct poolName: kubectl edit fabric NAME",
	"PoolNotReady": "kubectl get ippools.nv-ipam.nvidia.com,cidrpools.nv-ipam.nvidia.com -A -o yaml: a wider range, " +
		"or smaller blocks; does its controller run, and does the pool's nodeSelector fit these nodes",
	"PoolFull":     poolCure,
	poolNearlyFull: poolCure,
	"NoDevices": "fabricctl generate fabric --cluster writes the match that fits what there is; kubectl get " +
		"fabricnodes, and the condition FabricsUsed of a node",
	"NotConnected":     "connect a port, or match other devices: kubectl describe fabricnodes names those that it has",
	"DevicesUnhealthy": "kubectl get fabricnodes shows where; fabricctl doctor host on that node",
}

const poolCure = "kubectl edit fabric NAME, or the pool that it names: a wider range; addresses of dead pods: " +
	"fabricctl repair on the nodes, whereabouts' ip-reconciler"

// fabricFault is something that is wrong with a Fabric.
type fabricFault struct {
	status Status
	text   string // after the name of the Fabric
	kind   string // of the condition; empty: none, or Ready
	reason string // of the condition; empty: no condition tells
}

// fabricFaults are what is wrong with a Fabric, by its conditions. One that is not Ready has no other faults.
func fabricFaults(f *v1alpha1.Fabric) (out []fabricFault) {
	ready := apimeta.FindStatusCondition(f.Status.Conditions, v1alpha1.FabricReady)
	switch {
	case ready == nil:
		return []fabricFault{{status: Fail, text: ": no controller has looked at it"}}
	case ready.Status != metav1.ConditionTrue:
		s := Fail
		if ready.Reason == "InUse" {
			s = Warn
		}
		return []fabricFault{{status: s, text: " is not Ready: " + because(ready), reason: ready.Reason}}
	case f.Status.ObservedGeneration != f.Generation:
		text := fmt.Sprintf(": the controller has not looked at generation %d", f.Generation)
		out = append(out, fabricFault{status: Warn, text: text})
	}
	for j := range f.Status.Conditions {
		d := &f.Status.Conditions[j]
		if wrong := d.Type == v1alpha1.FabricDegraded; (d.Status == metav1.ConditionTrue) == wrong ||
			d.Reason == poolNearlyFull || d.Reason == networkPutBack {
			out = append(out, fabricFault{Warn, ": " + because(d), d.Type, d.Reason})
		}
	}
	return out
}

func clusterFabrics(c *Cluster) (out []Finding) {
	for i := range c.Fabrics {
		f := &c.Fabrics[i]
		for _, fault := range fabricFaults(f) {
			if fault.kind == v1alpha1.FabricAddressesUnique && c.Net != nil {
				continue // cluster-addresses has it, as it is now
			}
			d := finding("cluster-fabrics", fault.status, "Fabric "+f.Name+fault.text)
			d.Cure = named(cmp.Or(fabricCures[fault.reason], d.Cure), f.Name)
			out = append(out, d)
		}
	}
	if len(c.Fabrics) == 0 {
		return nil
	}
	return pass(out, "cluster-fabrics", fmt.Sprintf("%d Fabrics are Ready", len(c.Fabrics)))
}

// named puts the name of an object into a cure. What else is in capitals is for the reader to fill in.
func named(cure, name string) string {
	return strings.NewReplacer("NAMESPACE", "NAMESPACE", "NAME", name).Replace(cure)
}

// because is the reason of a condition, and its message as far as it is of use.
func because(c *metav1.Condition) string {
	if c.Message == "" {
		return c.Reason
	}
	return c.Reason + ": " + quote.Clip(c.Message, 300)
}

// clusterDeletion finds Fabrics that wait to be deleted while no controller works.
func clusterDeletion(c *Cluster) (out []Finding) {
	for i := range c.Fabrics {
		f := &c.Fabrics[i]
		if f.DeletionTimestamp.IsZero() || c.Controller.alive() {
			continue
		}
		d := finding("cluster-deletion", Fail, fmt.Sprintf("Fabric %s is to be deleted, has the finalizer %s, and no "+
			"controller is there to remove it", f.Name, strings.Join(f.Finalizers, ", ")))
		d.Cure = named(d.Cure, f.Name)
		out = append(out, d)
	}
	return out
}

// devicesOf are the nodes that have devices of a Fabric.
func (c *Cluster) devicesOf(fabric string) (out []*FabricNode) {
	for i := range c.FabricNodes {
		n := &c.FabricNodes[i]
		has := func(f v1alpha1.NodeFabric) bool { return f.Name == fabric && len(f.Devices) > 0 }
		if n.Spec.Gone == nil && slices.ContainsFunc(n.Status.Fabrics, has) {
			out = append(out, n)
		}
	}
	return out
}

// inForce is the spec of a Fabric that agents work with.
func inForce(f *v1alpha1.Fabric) *v1alpha1.FabricSpec {
	if f.Status.InForce != nil {
		return &f.Status.InForce.Spec
	}
	return &f.Spec
}

// clusterNodeRanges finds nodes that wait for a range.
func clusterNodeRanges(c *Cluster) (out []Finding) {
	ranged := 0
	for i := range c.Fabrics {
		f := &c.Fabrics[i]
		if a := inForce(f).Addresses; a == nil || a.NodeRanges == nil {
			continue
		}
		ranged++
		var waiting []string
		for _, n := range c.devicesOf(f.Name) {
			own := func(r v1alpha1.AssignedRange) bool { return r.Fabric == f.Name }
			if !slices.ContainsFunc(n.Spec.Ranges, own) {
				waiting = append(waiting, n.Name)
			}
		}
		if len(waiting) > 0 {
			out = append(out, finding("cluster-node-ranges", Fail, fmt.Sprintf("Fabric %s: no range yet for %s", f.Name,
				few(waiting))))
		}
	}
	if ranged == 0 {
		return nil
	}
	return pass(out, "cluster-node-ranges", "every node has its ranges")
}

// clusterRDMAMode finds Fabrics whose nodes differ in their RDMA mode.
func clusterRDMAMode(c *Cluster) (out []Finding) {
	for i := range c.Fabrics {
		f := &c.Fabrics[i]
		modes := map[string][]string{}
		for _, n := range c.devicesOf(f.Name) {
			if m := n.Status.RDMAMode; m != "" {
				modes[m] = append(modes[m], n.Name)
			}
		}
		spec := inForce(f)
		want := ""
		switch {
		case spec.Attachment == v1alpha1.IPoIBChild, spec.Network.RDMAMode == v1alpha1.RDMAShared:
			want = device.NetnsShared.String()
		case spec.Network.RDMAMode == v1alpha1.RDMAExclusive:
			want = device.NetnsExclusive.String()
		}
		if want != "" {
			delete(modes, want)
			for _, m := range slices.Sorted(maps.Keys(modes)) {
				out = append(out, finding("cluster-rdma-mode", Fail,
					fmt.Sprintf("Fabric %s is for RDMA mode %s, and the mode is %s on "+
						"%s", f.Name, want, m, few(modes[m]))))
			}
		} else if len(modes) > 1 {
			out = append(out, finding("cluster-rdma-mode", Warn,
				"Fabric "+f.Name+": the RDMA mode is "+spread(modes, 20)))
		}
	}
	if len(c.Fabrics) == 0 {
		return nil
	}
	return pass(out, "cluster-rdma-mode", "one mode in each Fabric")
}

// few are a few names, and how many more there are.
func few(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s, %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
