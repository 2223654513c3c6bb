// Package dummygpu is a DRA driver for GPUs that do not exist: ResourceSlices with the attributes by which a scheduler
// brings a GPU and its rail together, and a kubelet plugin that has nothing to prepare but a variable in the container.
package dummygpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

// Driver is the driver's name, and that of its DeviceClass.
const Driver = "gpu.example.com"

// Class is the DeviceClass of all GPUs.
const Class = `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: ` + Driver + `}
spec: {selectors: [{cel: {expression: 'device.driver == "` + Driver + `"'}}]}
`

// Variable is what each GPU of a container sets there: the variable's name, "_", and the number in the device's name.
const Variable = "DUMMY_GPU"

// GPU is where a GPU is in its machine.
type GPU struct {
	Root string // of its PCIe hierarchy: pci0000:15
	NUMA int    // -1: the machine has one node
}

// Devices are the GPUs as a slice has them: gpu-0, gpu-1, ...
func Devices(gpus []GPU) []resourceapi.Device {
	var out []resourceapi.Device
	for i, gpu := range gpus {
		root := gpu.Root
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"resource.kubernetes.io/pcieRoot": {StringValue: &root},
		}
		if numa := int64(gpu.NUMA); numa >= 0 {
			attributes["numaNode"] = resourceapi.DeviceAttribute{IntValue: &numa}
		}
		out = append(out, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: attributes})
	}
	return out
}

// Serve publishes the GPUs of a node and answers kubelet until the context ends. The CDI specification is in
// /etc/cdi, as drivers have it whose devices do not change.
func Serve(ctx context.Context, client kubernetes.Interface, node string, gpus []GPU) error {
	devices := Devices(gpus)
	if err := writeCDI(devices); err != nil {
		return err
	}
	dir := filepath.Join(kubeletplugin.KubeletPluginsDir, Driver)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	helper, err := kubeletplugin.Start(ctx, plugin{cancel}, kubeletplugin.DriverName(Driver),
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(node))
	if err != nil {
		return fmt.Errorf("start the kubelet plugin: %w", err)
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		node: {Slices: []resourceslice.Slice{{Devices: devices}}},
	}}); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

const cdiKind = Driver + "/gpu"

func writeCDI(devices []resourceapi.Device) error {
	type edits struct {
		Env []string `json:"env"`
	}
	type device struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	}
	spec := struct {
		Version string   `json:"cdiVersion"`
		Kind    string   `json:"kind"`
		Devices []device `json:"devices"`
	}{Version: "0.6.0", Kind: cdiKind}
	for i, d := range devices {
		value := fmt.Sprintf("%s_%d=%s", Variable, i, *d.Attributes["resource.kubernetes.io/pcieRoot"].StringValue)
		spec.Devices = append(spec.Devices, device{d.Name, edits{[]string{value}}})
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll("/etc/cdi", 0o755); err != nil {
		return err
	}
	return os.WriteFile("/etc/cdi/gpu.example.com.json", b, 0o600)
}

type plugin struct{ fail context.CancelCauseFunc }

func (plugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error,
) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver != Driver {
				continue
			}
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device,
				CDIDeviceIDs: []string{cdiKind + "=" + r.Device},
			})
		}
		out[claim.UID] = result
	}
	return out, nil
}

func (plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error,
) {
	out := map[types.UID]error{}
	for _, claim := range claims {
		out[claim.UID] = nil
	}
	return out, nil
}

// WatchHealthStatus has nothing to tell.
func (plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (p plugin) HandleError(ctx context.Context, err error, msg string) {
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		klog.FromContext(ctx).Error(err, msg)
		return
	}
	p.fail(fmt.Errorf("%s: %w", msg, err))
}
