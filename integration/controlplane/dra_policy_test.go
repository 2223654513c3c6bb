package controlplane_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sliceOf is a ResourceSlice as JSON.
func sliceOf(t *testing.T, name, driver, node, pool string) string {
	t.Helper()
	s := &resourceapi.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
		},
	}
	all := true
	if s.Spec.NodeName = &node; node == "" {
		s.Spec.NodeName, s.Spec.AllNodes = nil, &all
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// With a node's token an agent writes ResourceSlices of its own node and driver, and in the status of claims its own
// devices: else one node could take the devices of others out of the cluster, or say that a pod has a GPU.
// Since 1.36 the API server itself refuses much of this (DRAResourceClaimGranularStatusAuthorization).
func TestDRAPolicy(t *testing.T) {
	freshWith(t, []string{oldest}, "../../deployments/helm/fabric-cni/crds/fabric.dev_*.yaml")
	agentRules(t)
	mine, admin := agentOf(t, "dra-mine"), kube(t, server.Config)
	const api = "/apis/resource.k8s.io/v1/"
	for _, s := range []string{
		sliceOf(t, "of-other", "fabric.dev", "dra-other", "dra-other"),
		sliceOf(t, "of-gpu", "gpu.example.com", "dra-mine", "dra-mine"),
	} {
		if err := (call{"POST", api + "resourceslices", s}).do(t, server.Config); err != nil {
			t.Fatal(err)
		}
	}
	claimOf(t, admin, "policy", "fabric.dev/dra-mine/pci-0", "fabric.dev/dra-other/pci-0",
		"gpu.example.com/dra-mine/gpu-0")
	const status = api + "namespaces/default/resourceclaims/policy/status"
	const gpu = `{"driver":"gpu.example.com","pool":"dra-mine","device":"gpu-0"}`
	if err := (call{"PATCH", status, `{"status":{"devices":[` + gpu + `]}}`}).do(t, server.Config); err != nil {
		t.Fatal(err)
	}
	own := `{"driver":"fabric.dev","pool":"dra-mine","device":"pci-0","networkData":{"interfaceName":"net1"}}`
	// The policy is in force a moment after it was made.
	until(t, func() string {
		bad := call{"POST", api + "resourceslices", sliceOf(t, "early", "fabric.dev", "dra-other", "dra-other")}
		err := bad.do(t, mine)
		if err != nil && strings.Contains(err.Error(), "own node only") {
			return ""
		}
		_ = call{"DELETE", api + "resourceslices/early", ""}.do(t, server.Config)
		time.Sleep(100 * time.Millisecond)
		return "the policy is not in force: " + errorOf(err)
	})
	for _, a := range []call{
		{"POST", api + "resourceslices", sliceOf(t, "of-mine", "fabric.dev", "dra-mine", "dra-mine")},
		{"DELETE", api + "resourceslices/of-mine", ""},
		{"GET", api + "resourceslices", ""},
		{"GET", api + "namespaces/default/resourceclaims/policy", ""},
		{"PATCH", status, `{"status":{"devices":[` + gpu + `,` + own + `]}}`},
		{"PATCH", status, `{"status":{"devices":[` + gpu + `]}}`},
	} {
		if err := a.do(t, mine); err != nil {
			t.Errorf("%s %s: %v", a.verb, a.path, err)
		}
	}
	slices := "the agent of node dra-mine may write ResourceSlices of driver fabric.dev for its own node only"
	devices := "the agent of node dra-mine may write devices of driver fabric.dev and of its own node only"
	for _, f := range []struct {
		call

		want string // in the answer
	}{
		{call{"POST", api + "resourceslices", sliceOf(t, "x", "fabric.dev", "dra-other", "dra-other")}, slices},
		{call{"POST", api + "resourceslices", sliceOf(t, "x", "fabric.dev", "dra-mine", "dra-other")}, slices},
		{call{"POST", api + "resourceslices", sliceOf(t, "x", "gpu.example.com", "dra-mine", "dra-mine")}, slices},
		{call{"POST", api + "resourceslices", sliceOf(t, "x", "fabric.dev", "", "dra-mine")}, slices},
		{call{"DELETE", api + "resourceslices/of-other", ""}, slices},
		{call{"DELETE", api + "resourceslices/of-gpu", ""}, slices},
		{call{"DELETE", api + "resourceslices", ""}, "forbidden"},
		{call{"PATCH", status, `{"status":{"devices":null}}`}, devices},
		{call{"PATCH", status, `{"status":{"devices":[` + strings.Replace(gpu, `}`, `,"networkData":{}}`, 1) + `]}}`},
			devices},
		{call{"PATCH", status, `{"status":{"devices":[` + gpu + `,` + strings.Replace(own, "dra-mine", "dra-other", 1) +
			`]}}`}, devices},
		{call{"PATCH", status, `{"status":{"reservedFor":null}}`}, "the allocation is the scheduler's"},
		{call{"PATCH", status, `{"status":{"reservedFor":[{"resource":"pods","name":"p2","uid":"u2"}]}}`},
			"the allocation is the scheduler's"},
		{call{"PATCH", status, `{"status":{"allocation":null,"reservedFor":null,"devices":null}}`},
			"the allocation is the scheduler's"},
		{call{"PATCH", api + "namespaces/default/resourceclaims/policy", `{"metadata":{"labels":{"a":"b"}}}`},
			"forbidden"},
		{call{"DELETE", api + "namespaces/default/resourceclaims/policy", ""}, "forbidden"},
		{call{"GET", api + "namespaces/default/resourceclaims", ""}, "forbidden"},
		{call{"GET", api + "deviceclasses", ""}, "forbidden"},
	} {
		err := f.do(t, mine)
		if err == nil || !strings.Contains(err.Error(), f.want) {
			t.Errorf("%s %s %s: %v, want %q", f.verb, f.path, f.body, err, f.want)
		}
	}
}
