package controlplane_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// calicoPools is the definition of Calico's IPPools, without its schema.
const calicoPools = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ippools.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  scope: Cluster
  names: {kind: IPPool, listKind: IPPoolList, plural: ippools, singular: ippool}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A new Fabric with addresses of Services or pods is refused; one in force stays, and says what has its addresses as
// long as that is so. The controller has the rights of its role, and fabricctl says the same.
func TestRangesOfTheCluster(t *testing.T) {
	c, ctl := whole(t), newCtl(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	as, _ := limitedMetered(t, "fabric-controller")
	s := newStepper(t, as)
	of := func(name, r string) string {
		return testfabrics.Object(name, `{match: {devices: ["`+name+`*"]},
		  addresses: {nodeRanges: {ranges: [{range: `+r+`, perNodePrefixLength: 27}]}}}`)
	}
	const unique, accepted = v1alpha1.FabricAddressesUnique, v1alpha1.FabricAccepted
	apply(t, of("service", "10.96.128.0/20"))
	apply(t, of("free", "198.18.0.0/20"))
	s.becomes("service", accepted, "False Refused: addresses.nodeRanges 10.96.128.0/20 meets ServiceCIDR kubernetes "+
		"(10.96.0.0/16): pods would send to these addresses through the rail")
	s.becomes("free", unique, "True Unique: ")

	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "uses"},
		Spec: corev1.NodeSpec{PodCIDR: "198.18.1.0/24", PodCIDRs: []string{"198.18.1.0/24"}}})
	s.event("")
	s.becomes("free", unique, "False RangeInUse: addresses.nodeRanges 198.18.0.0/20 meets podCIDRs of Node uses "+
		"(198.18.1.0/24)")
	if !s.event("RangeInUse") {
		t.Error("no Event")
	}
	s.becomes("free", accepted, "True Accepted")
	ctl.says(t, 3, []string{"FAIL  cluster-addresses  Fabric free: addresses.nodeRanges 198.18.0.0/20 meets podCIDRs " +
		"of Node uses (198.18.1.0/24)"}, "doctor", "cluster")
	if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "uses"}}); err != nil {
		t.Fatal(err)
	}
	s.becomes("free", unique, "True Unique: ")

	apply(t, of("pool", "198.18.32.0/20"))
	s.becomes("pool", accepted, "True Accepted")
	apply(t, whereaboutsPool("198.18.32.0-24", "198.18.32.0/24", 2))
	s.becomes("pool", unique, "False RangeInUse: addresses.nodeRanges 198.18.32.0/20 meets whereabouts IPPool "+
		"198.18.32.0-24 (198.18.32.0/24): addresses that both have can't be reached")

	apply(t, calicoPools)
	until(t, func() string {
		return errorOf(server.ApplyText(t.Context(), []byte(`{apiVersion: crd.projectcalico.org/v1, kind: IPPool,
		  metadata: {name: default-ipv4-ippool}, spec: {cidr: 198.18.64.0/18}}`)))
	})
	file := filepath.Join(t.TempDir(), "fabrics.yaml")
	if err := os.WriteFile(file, []byte(of("calico", "198.18.96.0/20")), 0o600); err != nil {
		t.Fatal(err)
	}
	const meets = "addresses.nodeRanges 198.18.96.0/20 meets Calico IPPool default-ipv4-ippool (198.18.64.0/18)"
	ctl.says(t, 3, []string{"Fabric calico: " + meets}, "validate", "-f", file, "--cluster")
	s.round(time.Minute)
	apply(t, of("calico", "198.18.96.0/20"))
	s.becomes("calico", accepted, "False Refused: "+meets)
	removeKind(t, c, "ippools.crd.projectcalico.org")
	s.becomes("calico", accepted, "True Accepted")
}
