package controlplane_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
)

// What preflight reads of the SR-IOV network operator, and an account that may list Nodes only.
const preflightWorld = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sriovnetworkpoolconfigs.sriovnetwork.openshift.io}
spec:
  group: sriovnetwork.openshift.io
  scope: Namespaced
  names: {kind: SriovNetworkPoolConfig, plural: sriovnetworkpoolconfigs}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
      x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nodes, namespace: ml}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nodes}
rules: [{apiGroups: [""], resources: [nodes], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodes}
subjects: [{kind: ServiceAccount, name: nodes, namespace: ml}]
`

const preflightPool = `
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkPoolConfig
metadata: {name: pool, namespace: ml}
spec: {rdmaMode: shared}
`

// fabricctl preflight asks a real API server: what is there it names, and what the account may not list is no OK.
func TestPreflight(t *testing.T) {
	program := built(t, "fabricctl")
	s, c := withGate(t, oldest)
	if err := s.ApplyText(t.Context(), []byte(preflightWorld)); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{
		"feature.node.kubernetes.io/pci-15b3.present": "true"}}}
	node.Status.Allocatable = corev1.ResourceList{"rdma/ib": resource.MustParse("63")}
	node.Status.NodeInfo.KernelVersion, node.Status.NodeInfo.OSImage = "6.8.0-45-generic", "Ubuntu 22.04.5 LTS"
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	asks := corev1.ResourceRequirements{Limits: corev1.ResourceList{"rdma/ib": resource.MustParse("1")}}
	preflightPod(t, c, "train-0", &corev1.PodSpec{Containers: []corev1.Container{{Resources: asks}}})
	preflightPod(t, c, "client", &corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{}},
		Volumes: []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/dev/infiniband"}}}}})

	out := preflightSays(t, s, program, s.Config.BearerToken,
		"FAIL preflight-multus the API server does not serve NetworkAttachmentDefinition",
		"FAIL preflight-shared-plugin nodes offer rdma/ib (1 node)",
		"FAIL preflight-rdma-pods ml/train-0 (Pod) asks for rdma/ib",
		"FAIL preflight-host-users ml/client (Pod) has hostPath /dev/infiniband, hostNetwork",
		"WARN preflight-local RDMA mode, driver and programs of the host are not known of gpu-1",
		"OK preflight-nodes 1 of 1 nodes have HCAs: gpu-1",
		"OK preflight-kernel Linux 6.8.0-45-generic (Ubuntu 22.04.5 LTS) on gpu-1",
		"OK preflight-kubernetes the API server is v1.",
		"OK preflight-features served: ValidatingAdmissionPolicy, resource.k8s.io, ServiceCIDR; not served: one label")
	if strings.Contains(out, "preflight-access") {
		t.Errorf("the administrator may list everything:\n%s", out)
	}

	if err := s.Apply(t.Context(), s.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	until(t, func() string { // a kind is served a moment after its definition was made
		if err := s.ApplyText(t.Context(), []byte(preflightPool)); err != nil {
			return err.Error()
		}
		return ""
	})
	preflightSays(t, s, program, s.Config.BearerToken,
		"WARN preflight-multus kube-system/kube-multus-ds (multus-cni:snapshot, thin) is wanted on 0 nodes, and "+
			"HCAs are in 1",
		"WARN preflight-mode-owner SriovNetworkPoolConfig ml/pool sets shared, wanted is exclusive",
		"OK preflight-ipam whereabouts: ")

	r, err := c.CoreV1().ServiceAccounts("ml").CreateToken(t.Context(), "nodes", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out = preflightSays(t, s, program, r.Status.Token,
		"WARN preflight-access list pods: ", "the role lacks the verb list on pods",
		"WARN preflight-access list daemonsets.apps: ", "OK preflight-nodes 1 of 1 nodes have HCAs: gpu-1")
	for _, id := range []string{"preflight-rdma-pods", "preflight-host-users", "preflight-multus", "preflight-driver"} {
		if strings.Contains(out, id) {
			t.Errorf("%s without the right to look:\n%s", id, out)
		}
	}
}

func preflightPod(t *testing.T, c kubernetes.Interface, name string, spec *corev1.PodSpec) {
	t.Helper()
	for i := range spec.Containers {
		spec.Containers[i].Name, spec.Containers[i].Image = "c", "example.com/c:1"
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ml"}, Spec: *spec}
	if _, err := c.CoreV1().Pods("ml").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// preflightSays runs preflight, whose exit status has to be 3, until it says all of this: "STATUS id evidence".
func preflightSays(t *testing.T, s *controlplane.Server, program, token string, want ...string) (out string) {
	t.Helper()
	until(t, func() string {
		cmd := exec.CommandContext(t.Context(), program, "preflight", "-o", "json")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigOf(t, s.Config.Host, token), "HOME="+t.TempDir())
		b, err := cmd.Output()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 3 {
			t.Fatalf("%v: %s", err, b)
		}
		var list struct {
			Findings []struct{ ID, Status, Evidence string }
		}
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		out = ""
		for _, f := range list.Findings {
			out += f.Status + " " + f.ID + " " + f.Evidence + "\n"
		}
		i := slices.IndexFunc(want, func(w string) bool { return !strings.Contains(out, w) })
		if i < 0 {
			return ""
		}
		return "not said: " + want[i] + "\n" + out
	})
	return out
}
