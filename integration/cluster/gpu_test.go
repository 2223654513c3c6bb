package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fabric-cni/fabric-cni/integration/cluster/dummygpu"
)

// gpuClass makes the DeviceClass of GPUs that do not exist.
func gpuClass(t *testing.T) {
	t.Helper()
	apply(t, dummygpu.Class)
	t.Cleanup(func() { removed(t, "deviceclass", dummygpu.Driver) })
}

// gpus runs the dummy GPU driver on the rig's node for the test.
func gpus(t *testing.T, list ...dummygpu.GPU) {
	t.Helper()
	gpuClass(t)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- dummygpu.Serve(ctx, client, "rig", list) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Dynamic Resource Allocation itself, on the defaults of Kubernetes 1.34: the scheduler picks the GPU with the
// attribute that the claim asks for, and the runtime reads the driver's CDI specification.
func TestDummyGPU(t *testing.T) {
	gpus(t, dummygpu.GPU{Root: "pci0000:15", NUMA: 0}, dummygpu.GPU{Root: "pci0000:c0", NUMA: 1})
	apply(t, `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: `+dummygpu.Driver+`
          selectors: [{cel: {expression: 'device.attributes["`+dummygpu.Driver+`"].numaNode == 1'}}]
---
apiVersion: v1
kind: Pod
metadata: {name: p1}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
  containers: [{name: c, image: "localhost/box:e2e", imagePullPolicy: Never, resources: {claims: [{name: gpu}]}}]
`)
	t.Cleanup(func() { removed(t, "resourceclaimtemplate", "gpu") })
	t.Cleanup(func() { gone(t, "p1") })
	ready(t, "p1")
	want := fmt.Sprintf("%s_1=pci0000:c0", dummygpu.Variable)
	if out := k(t, "exec", "p1", "--", "env"); !strings.Contains(out, want+"\n") ||
		strings.Contains(out, dummygpu.Variable+"_0") {
		t.Errorf("want %s alone:\n%s", want, out)
	}
}
