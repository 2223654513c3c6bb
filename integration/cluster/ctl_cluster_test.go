package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// doctor cluster on the real API server: nothing is wrong, then one thing at a time.
func TestCtlDoctorCluster(t *testing.T) {
	out, _ := ctl(t, 3, "doctor", "cluster")
	says(t, "Multus without a DaemonSet", out, "FAIL  cluster-daemons  no DaemonSet of Multus")
	daemonSet(t, "kube-multus-ds", "")
	daemonSet(t, "whereabouts", "")
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	out, _ = ctl(t, 0, "doctor", "cluster", "--all")
	says(t, "all is well", out, "OK    cluster-crds", "OK    cluster-daemons", "OK    cluster-nad  1 networks",
		"OK    cluster-ranges", ", 0 to look at, 0 wrong")

	t.Run("resource", func(t *testing.T) {
		apply(t, `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: pf, annotations: {k8s.v1.cni.cncf.io/resourceName: fabric.dev/ib-400g}}
spec:
  config: '{"cniVersion":"1.0.0","name":"pf","type":"fabric",
   "ipam":{"type":"whereabouts","range":"198.51.100.0/24"}}'
`)
		t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "pf") })
		out, _ := ctl(t, 3, "doctor", "cluster")
		says(t, "no resource", out, "FAIL  cluster-nad  default/pf: no node has the resource fabric.dev/ib-400g",
			"WARN  cluster-ranges")
		offers(t, "rig", "fabric.dev/ib-400g", "4")
		out, _ = ctl(t, 0, "doctor", "cluster")
		silent(t, "with the resource", out, "cluster-nad")
	})
	t.Run("nothing selects a device", func(t *testing.T) {
		network(t, "none", `{"cniVersion":"1.0.0","name":"none","type":"fabric"}`)
		out, _ := ctl(t, 3, "doctor", "cluster")
		says(t, "no device", out, "FAIL  cluster-nad  default/none has neither a resourceName nor a device")
	})
	t.Run("nodes differ", func(t *testing.T) {
		for name, count := range map[string]string{"gpu-1": "4", "gpu-2": "4", "gpu-3": "3"} {
			otherNode(t, name, "nvidia.com/gpu.product: NVIDIA-H20")
			offers(t, name, "fabric.dev/ib-400g", count)
		}
		out, _ := ctl(t, 0, "doctor", "cluster")
		says(t, "one port less", out,
			"WARN  cluster-nodes  gpu-3 has 3 of fabric.dev/ib-400g, most nodes with NVIDIA-H20 have 4")
		silent(t, "one port less", out, "gpu-1 has", "gpu-2 has")
	})
	t.Run("a node without Multus", func(t *testing.T) {
		// Its new pods are ready on the node that is left before the next case looks.
		t.Cleanup(func() { rolledOut(t, "kube-system", "daemonset/kube-multus-ds") })
		otherNode(t, "gpu-1", "")
		k(t, "-n", "kube-system", "patch", "daemonset", "kube-multus-ds", "--type=merge", "-p",
			`{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`)
		until(t, "it is wanted on two nodes", func() error {
			n, err := output("kubectl", "-n", "kube-system", "get", "daemonset", "kube-multus-ds", "-o",
				"jsonpath={.status.desiredNumberScheduled} {.status.observedGeneration}")
			if err == nil && n != "2 2" {
				err = textError(n)
			}
			return err
		})
		out, _ := ctl(t, 3, "doctor", "cluster")
		says(t, "not ready everywhere", out, "FAIL  cluster-daemons  kube-system/kube-multus-ds is ready on")
	})
	t.Run("no CRD", testNoCRD)
	t.Run("no rights", testNoRights)
}

// The CRD goes and comes back; nothing is stored of its kind.
func testNoCRD(t *testing.T) {
	const crd = "overlappingrangeipreservations.whereabouts.cni.cncf.io"
	files, err := filepath.Glob(filepath.Join(current.cache, "crds", "*"+strings.Split(crd, ".")[0]+".yaml"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	k(t, "delete", "crd", crd)
	out, _ := ctl(t, 3, "doctor", "cluster")
	says(t, "no CRD", out, "FAIL  cluster-crds  no CustomResourceDefinition "+crd)
	k(t, "apply", "-f", files[0])
	established(t, crd)
	out, _ = ctl(t, 0, "doctor", "cluster")
	silent(t, "the CRD is back", out, "cluster-crds")
}

// A user who may list nodes only, a user who may do nothing, and no API server at all.
func testNoRights(t *testing.T) {
	apply(t, `apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
`)
	t.Cleanup(func() {
		k(t, "delete", "clusterrolebinding/reader", "clusterrole/reader", "serviceaccount/reader",
			"serviceaccount/stranger")
	})
	as := func(who string) []string {
		file := filepath.Join(t.TempDir(), who)
		if err := current.kubeconfig(file, strings.TrimSpace(k(t, "create", "token", who))); err != nil {
			t.Fatal(err)
		}
		return []string{"KUBECONFIG=" + file}
	}
	out, _ := ctlWith(t, 3, "", as("reader"), "doctor", "cluster")
	says(t, "few rights", out, "WARN  cluster-access  list daemonsets.apps: ",
		"the role lacks the verb list on daemonsets.apps")
	out, diag := ctlWith(t, 1, "", as("stranger"), "doctor", "cluster")
	says(t, "no rights", out+diag, "fabricctl: doctor cluster: no cluster, or no rights: list customresource",
		"is forbidden")
	crds(t)
	_, diag = ctlWith(t, 1, "", as("stranger"), "generate", "fabric", "--cluster")
	says(t, "no rights", diag, "fabricctl: --cluster: list fabricnodes", "is forbidden")
	_, diag = ctlWith(t, 1, "", as("stranger"), "doctor", "pod", "p1")
	says(t, "no rights", diag, "fabricctl: doctor pod: get pods default/p1: ", "is forbidden")

	config := read(t, os.Getenv("KUBECONFIG"))
	file := filepath.Join(t.TempDir(), "nowhere")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, ":6443", ":9")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, diag = ctlWith(t, 1, "", []string{"KUBECONFIG=" + file}, "doctor", "cluster")
	says(t, "no API server", diag, "fabricctl: doctor cluster: no cluster, or no rights: ", "refused")
	if n := strings.Count(strings.TrimSpace(diag), "\n"); n > 0 {
		t.Errorf("not one sentence but %d lines:\n%s", n+1, diag)
	}
}
