package doctor

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	clusterDS = `{"items":[{"metadata":{"name":"kube-multus-ds","namespace":"kube-system"},
"status":{"desiredNumberScheduled":3,"numberReady":3,"updatedNumberScheduled":3}},
 {"metadata":{"name":"whereabouts","namespace":"kube-system"},
"status":{"desiredNumberScheduled":3,"numberReady":3,"updatedNumberScheduled":3}},
 {"metadata":{"name":"calico-node","namespace":"kube-system"},"status":{"desiredNumberScheduled":3,"numberReady":1}}]}`
	clusterNode3 = `{"items":[
 {"metadata":{"name":"g1","labels":{"nvidia.com/gpu.product":"H20"}},"status":{"allocatable":{"cpu":"64",
"memory":"1Ti","nvidia.com/ib_400g":"4","nvidia.com/gpu":"8"}}},
 {"metadata":{"name":"g2","labels":{"nvidia.com/gpu.product":"H20"}},"status":{"allocatable":{"cpu":"63",
"memory":"2Ti","nvidia.com/ib_400g":"4","nvidia.com/gpu":"8"}}},
 {"metadata":{"name":"g3","labels":{"nvidia.com/gpu.product":"H20"}},"status":{"allocatable":{"cpu":"64",
"memory":"1Ti","nvidia.com/ib_400g":"4","nvidia.com/gpu":"8"}}},
 {"metadata":{"name":"cp"},"status":{"allocatable":{"cpu":"4"}}}]}`
	clusterNAD = `{"items":[{"metadata":{"name":"ib","namespace":"ml",
"annotations":{"k8s.v1.cni.cncf.io/resourceName":"nvidia.com/ib_400g"}},
  "spec":{"config":"{\"type\":\"fabric\",\"ipam\":{\"type\":\"whereabouts\",\"range\":\"10.1.0.0/28\"}}"}}]}`
)

const mofed = `{"metadata":{"name":"mofed-ubuntu22.04-ds","namespace":"nvidia-network-operator"},
"spec":{"selector":{"matchLabels":{"app":"mofed-ubuntu22.04"}}},
"status":{"desiredNumberScheduled":36,"numberReady":35,"updatedNumberScheduled":36}}`

// mofedPods are 35 pods that are ready and one that crashes.
var mofedPods = "[" + strings.Repeat(`{"spec":{"nodeName":"x"},"status":{"phase":"Running",
"conditions":[{"type":"Ready","status":"True"}]}},`, 35) + `{"spec":{"nodeName":"gpu-17"},"status":{"phase":"Running",
"conditions":[{"type":"Ready","status":"False"}],
"containerStatuses":[{"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}]`

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func cluster(t *testing.T) *Cluster {
	return &Cluster{
		CRDs: []string{
			"network-attachment-definitions.k8s.cni.cncf.io",
			"ippools.whereabouts.cni.cncf.io",
			"overlappingrangeipreservations.whereabouts.cni.cncf.io",
		},
		DaemonSets: decode[struct{ Items []DaemonSet }](t, clusterDS).Items,
		NADs:       decode[NADs](t, clusterNAD),
		Nodes:      decode[corev1.NodeList](t, clusterNode3).Items,
		Pools:      decode[Pools](t, `{"items":[{"spec":{"range":"10.1.0.0/28","allocations":{"1":{}}}}]}`),
	}
}

func TestCheckCluster(t *testing.T) {
	nad := func(t *testing.T, name, annotation, config string) NAD {
		n := NAD{}
		n.Metadata.Name, n.Metadata.Namespace, n.Spec.Config = name, "ml", config
		if annotation != "" {
			n.Metadata.Annotations = map[string]string{resourceAnnotation: annotation}
		}
		return n
	}
	spoil(t, cluster, CheckCluster, []change[*Cluster]{
		{"in order", func(*Cluster) {}, ""},
		{"nothing installed", func(c *Cluster) { *c = Cluster{Missing: []string{"kubectl get crd: forbidden"}} },
			"WARN cluster-access kubectl get crd: forbidden\nFAIL cluster-crds no CustomResourceDefinition " +
				"network-attachment-definitions.k8s.cni.cncf.io\nFAIL cluster-daemons no DaemonSet of Multus\n"},
		{"without whereabouts", func(c *Cluster) { c.CRDs = c.CRDs[:1] }, "FAIL cluster-crds no " +
			"CustomResourceDefinition ippools.whereabouts.cni.cncf.io, " +
			"overlappingrangeipreservations.whereabouts.cni.cncf.io\n"},
		{"whereabouts gone", func(c *Cluster) { c.CRDs, c.DaemonSets = c.CRDs[:1], c.DaemonSets[:1] },
			"FAIL cluster-crds no CustomResourceDefinition ippools.whereabouts.cni.cncf.io, " +
				"overlappingrangeipreservations.whereabouts.cni.cncf.io\n"},
		{"a node without devices, of GPUs of no known kind", func(c *Cluster) {
			for i, n := range []string{"1", "0", "1"} {
				c.Nodes[i].Labels = nil
				c.Nodes[i].Status.Allocatable["rdma/rdma_a100"] = resource.MustParse(n)
			}
		}, "WARN cluster-nodes none of rdma/rdma_a100 on g2, which other nodes offer (2)\n"},
		{"daemons", func(c *Cluster) { c.DaemonSets[0].Status.NumberReady = 2 }, "FAIL cluster-daemons " +
			"kube-system/kube-multus-ds is ready on 2 of 3 nodes\n"},
		{"no whereabouts to free addresses", func(c *Cluster) { c.DaemonSets = c.DaemonSets[:1] },
			"WARN cluster-daemons no DaemonSet of whereabouts, and it is the IPAM of ml/ib\n"},
		{"another IPAM", func(c *Cluster) { c.DaemonSets, c.NADs.Items = c.DaemonSets[:1], nil }, ""},
		{"drivers of the network operator", func(c *Cluster) {
			c.DaemonSets = append(c.DaemonSets, decode[DaemonSet](t, mofed))
			c.DaemonSets[3].Pods = decode[[]corev1.Pod](t, mofedPods)
		}, "FAIL cluster-daemons nvidia-network-operator/mofed-ubuntu22.04-ds is ready on 35 of 36 nodes: not on " +
			"gpu-17 (CrashLoopBackOff)\n"},
		{"drivers, and no right to list pods", func(c *Cluster) {
			c.DaemonSets = append(c.DaemonSets, decode[DaemonSet](t, mofed))
		}, "FAIL cluster-daemons nvidia-network-operator/mofed-ubuntu22.04-ds is ready on 35 of 36 nodes\n"},
		{"a pod that is not there yet", func(c *Cluster) {
			c.DaemonSets = append(c.DaemonSets, decode[DaemonSet](t, mofed))
			c.DaemonSets[3].Pods = decode[[]corev1.Pod](t, mofedPods)[:35]
		}, "FAIL cluster-daemons nvidia-network-operator/mofed-ubuntu22.04-ds is ready on 35 of 36 nodes: 1 nodes " +
			"have no pod of it yet\n"},
		{"skew", func(c *Cluster) { c.DaemonSets[0].Status.UpdatedNumberScheduled = 1 }, "WARN cluster-daemons " +
			"kube-system/kube-multus-ds has its new version on 1 of 3 nodes\n"},
		{"networks", func(c *Cluster) {
			c.NADs.Items = append(c.NADs.Items, nad(t, "broken", "", "{"),
				nad(t, "bare", "", `{"plugins":[{"type":"fabric"}]}`),
				nad(t, "named", "", `{"type":"fabric","device":"ibs108"}`),
				nad(t, "nowhere", "nvidia.com/none", `{"type":"fabric"}`), nad(t, "macvlan", "", `{"type":"macvlan"}`))
		}, "FAIL cluster-nad ml/broken: spec.config is no JSON: unexpected end of JSON input\nFAIL cluster-nad " +
			"ml/bare has neither a resourceName nor a device\nFAIL cluster-nad ml/nowhere: no node has the resource " +
			"nvidia.com/none\n"},
		{"ranges", func(c *Cluster) {
			c.NADs.Items = append(c.NADs.Items, nad(t, "wide", "", `{"type":"macvlan","ipam":{"type":"whereabouts",`+
				`"range":"10.1.0.0/24"}}`),
				nad(t, "bad", "", `{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.1"}}`),
				nad(t, "from-to", "",
					`{"type":"macvlan","ipam":{"type":"whereabouts","range":"10.9.0.1-10.9.0.5/24"}}`))
		}, "WARN cluster-ranges ml/ib (10.1.0.0/28) and ml/wide (10.1.0.0/24) overlap\nFAIL cluster-ranges ml/bad: " +
			"range 10.1 is no prefix\n"},
		{"pool with room", give(11), ""},
		{"pool nearly full", give(12), "WARN cluster-pools 10.1.0.0/28: 13 of 14 addresses are given\n"},
		{"pool full", give(13), "FAIL cluster-pools 10.1.0.0/28: 14 of 14 addresses are given\n"},
		{"pools", give(14), "FAIL cluster-pools 10.1.0.0/28: 15 of 14 addresses are given\n"},
		{"nodes", func(c *Cluster) { c.Nodes[2].Status.Allocatable["nvidia.com/ib_400g"] = resource.MustParse("3") },
			"WARN cluster-nodes g3 has 3 of nvidia.com/ib_400g, most nodes with H20 have 4\n"},
	})
}

// give gives so many more addresses of the first pool.
func give(n int) func(*Cluster) {
	return func(c *Cluster) {
		for i := range n {
			c.Pools.Items[0].Spec.Allocations[string(rune('a'+i))] = nil
		}
	}
}
