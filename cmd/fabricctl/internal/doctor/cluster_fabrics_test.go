package doctor

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

func TestCheckFabrics(t *testing.T) {
	ready := func(reason, message string) func(c *Cluster) {
		return func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[0] = metav1.Condition{
				Type: "Ready", Status: "False", Reason: reason, Message: message,
			}
		}
	}
	deleted := func(c *Cluster) {
		ready("InUse", "the Fabric is deleted when these pods have ended: ml/a")(c)
		c.Fabrics[0].DeletionTimestamp, c.Fabrics[0].Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"x"}
	}
	spoil(t, agents, CheckCluster, []change[*Cluster]{
		{"no CRDs", func(c *Cluster) { c.CRDs = c.CRDs[:3] }, "FAIL cluster-crds no CustomResourceDefinition " +
			"fabrics.fabric.dev, fabricnodes.fabric.dev\n"},
		{"no controller", func(c *Cluster) { c.Controller.Found, c.Controller.Leader = false, "" }, "FAIL " +
			"cluster-controller no Deployment of the controller in the namespace fabric-system\nFAIL " +
			"cluster-controller no controller leads: the Lease fabric-system/fabric-controller has no holder\n"},
		{"a controller that crashes", func(c *Cluster) { c.Controller.Ready, c.Controller.Silent = 0, 61 }, "FAIL " +
			"cluster-controller no pod of the Deployment fabric-system/fabric-controller is ready, of 2\nFAIL " +
			"cluster-controller the leader a renewed the Lease fabric-system/fabric-controller 61 s ago: it lasts " +
			"for 15 s\n"},
		{"half a controller", func(c *Cluster) { c.Controller.Ready, c.Controller.Silent = 1, 60 }, "WARN " +
			"cluster-controller 1 of 2 pods of the Deployment fabric-system/fabric-controller are ready\n"},
		{"a controller that may not be asked for", func(c *Cluster) { c.Controller = nil }, ""},
		{"refused", ready("Refused", "generation 3 is in force: match"),
			"FAIL cluster-fabrics Fabric ib is not Ready: Refused: generation 3 is in force: match\n"},
		{"a reason that nobody knows yet", ready("Moon", ""), "FAIL cluster-fabrics Fabric ib is not Ready: Moon\n"},
		{"never looked at", func(c *Cluster) { c.Fabrics[0].Status.Conditions = nil },
			"FAIL cluster-fabrics Fabric ib: no controller has looked at it\n"},
		{"not looked at any more", func(c *Cluster) { c.Fabrics[0].Generation = 4 },
			"WARN cluster-fabrics Fabric ib: the controller has not looked at generation 4\n"},
		{"degraded", func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[1] = metav1.Condition{
				Type: "Degraded", Status: "True", Reason: "DevicesUnhealthy", Message: "PortDown 2",
			}
		}, "WARN cluster-fabrics Fabric ib: DevicesUnhealthy: PortDown 2\n"},
		{"a pool that is nearly full", func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[1] = metav1.Condition{
				Type: "AddressesSufficient", Status: "True", Reason: "PoolNearlyFull", Message: "over 90 %",
			}
		}, "WARN cluster-fabrics Fabric ib: PoolNearlyFull: over 90 %\n"},
		{"deleted, and waits", deleted, "WARN cluster-fabrics Fabric ib is not Ready: InUse: the Fabric is deleted " +
			"when these pods have ended: ml/a\n"},
		{"deleted, and nobody is there", func(c *Cluster) { deleted(c); c.Controller.Silent = 600 }, "FAIL " +
			"cluster-controller the leader a renewed the Lease fabric-system/fabric-controller 600 s ago: it lasts " +
			"for 15 s\nWARN cluster-fabrics Fabric ib is not Ready: InUse: the Fabric is deleted when these pods " +
			"have ended: ml/a\nFAIL cluster-deletion Fabric ib is to be deleted, has the finalizer x, and no " +
			"controller is there to remove it\n"},
		{"no range", func(c *Cluster) { c.FabricNodes[2].Spec.Ranges = nil },
			"FAIL cluster-node-ranges Fabric ib: no range yet for g2\n"},
		{"another RDMA mode", func(c *Cluster) { c.FabricNodes[2].Status.RDMAMode = "shared" },
			"WARN cluster-rdma-mode Fabric ib: the RDMA mode is exclusive on g1, g3; shared on g2\n"},
		{"a mode that the Fabric is not for", func(c *Cluster) {
			c.Fabrics[0].Status.InForce = &v1alpha1.FabricInForce{Spec: *c.Fabrics[0].Spec.DeepCopy()}
			c.Fabrics[0].Status.InForce.Spec.Attachment = v1alpha1.IPoIBChild
			c.FabricNodes[2].Status.RDMAMode = "shared"
		}, "FAIL cluster-rdma-mode Fabric ib is for RDMA mode shared, and the mode is exclusive on g1, g3\n"},
		{"somebody else's network", func(c *Cluster) {
			other := c.NADs.Items[0]
			other.Metadata.Namespace, other.Metadata.Owners = "team", []Owner{{Kind: "Fabric", UID: "2"}}
			c.NADs.Items = append(c.NADs.Items, other)
		}, "WARN cluster-nad team/ib has the name of Fabric ib, and is not the Fabric's: its pods get another " +
			"network\n"},
		{"a name that is not everywhere", func(c *Cluster) {
			other := NAD{}
			other.Metadata.Namespace, other.Metadata.Name = "ml", "rail"
			other.Spec.Config = `{"type":"fabric","device":"ibs108"}`
			c.NADs.Items = append(c.NADs.Items, other)
			c.FabricNodes[2].Node = fabricNode(t, "v100", "g2").Node
		}, "WARN cluster-nad ml/rail names the interface ibs108, which is not on g2\nWARN cluster-nodes g2 has 2 " +
			"Active ports, most nodes with H20 have 5\n"},
	})
}

// A Fabric that is Ready may have something to say all the same.
func TestCheckPublished(t *testing.T) {
	spoil(t, agents, CheckCluster, []change[*Cluster]{
		{"a namespace that is not there", func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[1] = metav1.Condition{
				Type: "Published", Status: "False", Reason: "NamespaceMissing", Message: "there is no namespace ml",
			}
		}, "WARN cluster-fabrics Fabric ib: NamespaceMissing: there is no namespace ml\n"},
		{"a network that somebody has edited", func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[1] = metav1.Condition{
				Type: "Published", Status: "True", Reason: "NetworkPutBack", Message: `changed by "argo"`,
			}
		}, "WARN cluster-fabrics Fabric ib: NetworkPutBack: changed by \"argo\"\n"},
	})
}

// A Fabric meets what has addresses of its range.
func TestCheckAddresses(t *testing.T) {
	spoil(t, agents, CheckCluster, []change[*Cluster]{
		{"a range that Services have", func(c *Cluster) {
			c.Net = &clusternet.Net{Uses: []clusternet.Use{{Prefix: netip.MustParsePrefix("0.0.0.0/0"),
				What: "ServiceCIDR kubernetes", Sure: true}}, Missing: []string{"Nodes: forbidden"}}
			c.Fabrics[0].Spec.Addresses = &v1alpha1.Addresses{NodeRanges: &v1alpha1.NodeRanges{
				Ranges: []v1alpha1.NodeRange{{Range: "10.0.0.0/24", PerNodePrefixLength: 26}}}}
			c.Fabrics[0].Status.InForce = nil
		}, "FAIL cluster-addresses Fabric ib: addresses.nodeRanges 10.0.0.0/24 meets ServiceCIDR kubernetes " +
			"(0.0.0.0/0): pods would send to these addresses through the rail; choose another range " +
			"(docs/addresses.md)\nWARN cluster-access addresses are not compared with Nodes: forbidden\n"},
	})
}

// The cure of a finding has the name of its object.
func TestCures(t *testing.T) {
	p := agents(t)
	p.Fabrics[0].Status.Conditions[0] = metav1.Condition{Type: "Ready", Status: "False", Reason: "NoDevices"}
	list := CheckCluster(p)
	i := slices.IndexFunc(list, func(f Finding) bool { return f.ID == "cluster-fabrics" })
	if i < 0 || !strings.Contains(list[i].Cure, "fabricctl generate fabric --cluster") {
		t.Errorf("%+v", list)
	}
	for reason, cure := range map[string]string{
		"Refused":         "kubectl edit fabric ib:",
		"NetworkConflict": "-n NAMESPACE delete network-attachment-definition ib,",
		"PublishFailed":   "kubectl auth can-i create network-attachment-definitions",
		"DRANotServed":    "kubectl edit fabric ib: allocation: DevicePlugin",
		"AddressConflict": "delete the pods of the node",
		"Moon":            "kubectl describe fabric ib:",
	} {
		p.Fabrics[0].Status.Conditions[0].Reason = reason
		if list = CheckCluster(p); !strings.Contains(list[i].Cure, cure) {
			t.Errorf("%s: %+v", reason, list[i])
		}
	}
}
