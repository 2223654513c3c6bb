package prefer_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/prefer"
	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Which GPUs a pod has that kubelet does not name.
func TestGiven(t *testing.T) {
	const rails, nvidia = "fabric.dev/ib-400g", "nvidia.com/gpu"
	gpus := prefer.NewGPUs([]node.GPU{{PCI: "0000:1b:00.0", NUMA: 0}, {PCI: "0000:9b:00.0", NUMA: 1}},
		map[string]string{"GPU-1b": "0000:1b:00.0", "GPU-9b": "0000:9b:00.0", "GPU-ff": "0000:ff:00.0"})
	has := func(pod string, devices ...prefer.Device) prefer.Container {
		return prefer.Container{Pod: pod, Devices: devices}
	}
	rail := prefer.Device{Resource: rails, ID: "0000:18:00.0"}
	gpu := func(id string, numa int) prefer.Device { return prefer.Device{Resource: nvidia, ID: id, NUMA: numa} }
	started := map[string]bool{"ml/web": true}
	for _, c := range []struct {
		name string
		list []prefer.Container
		numa []int // of the GPUs
	}{
		{"no pod at all", nil, nil},
		{"the only pod", []prefer.Container{has("ml/a", gpu("GPU-9b", 1))}, []int{1}},
		{"by PCI address", []prefer.Container{has("ml/a", gpu("0000:9b:00.0", -1), gpu("0000:1b:00.0", -1))},
			[]int{1, 0}},
		{"replicas", []prefer.Container{has("ml/a", gpu("GPU-1b::3", 0), gpu("GPU-1b::0", 0))}, []int{0, 0}},
		{"part of a GPU", []prefer.Container{has("ml/a", gpu("MIG-5c", 1))}, []int{1}},
		{"part of a GPU, nobody knows where", []prefer.Container{has("ml/a", gpu("MIG-5c", -1))}, nil},
		{"a GPU of another node, no GPU", []prefer.Container{has("ml/a", gpu("GPU-77", 1), gpu("kvm", 1))}, nil},
		{"a GPU that is on no bus", []prefer.Container{has("ml/a", gpu("GPU-ff", 1))}, nil},
		{"others have their rails, or have started without", []prefer.Container{
			has("ml/b", gpu("GPU-1b", 0), rail), has("ml/web", gpu("GPU-1b", 0)),
			has("ml/a", gpu("GPU-9b", 1)), has("ml/c"),
		}, []int{1}},
		{"its other container has all", []prefer.Container{
			has("ml/a", gpu("GPU-1b", 0), rail), has("ml/a", gpu("GPU-9b", 1)),
		}, []int{1}},
		{"two pods that have not started", []prefer.Container{
			has("ml/a", gpu("GPU-1b", 0)), has("ml/b", gpu("GPU-9b", 1)),
		}, nil},
	} {
		got := prefer.OfStarting(prefer.Waiting(c.list, rails, gpus.At), started)
		ok := len(got) == len(c.numa)
		for i := range got {
			ok = ok && got[i].NUMA == c.numa[i]
		}
		if !ok {
			t.Errorf("%s: %v, want NUMA nodes %v", c.name, got, c.numa)
		}
	}
}
