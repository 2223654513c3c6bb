package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// The device plugin in front of the real kubelet, with a device that the machine has: /dev/null. The network's device
// is a veth.
func TestDevicePlugin(t *testing.T) {
	const resource = "fabric.dev/rig"
	unit := deviceplugin.Unit{
		ID:       "0000:3b:00.0",
		Healthy:  true,
		NUMA:     0,
		Location: device.LocationOnPCI("0000:3b:00.0"),
		RDMA:     "mlx5_0",
		Files:    []string{"/dev/null"},
	}
	down := deviceplugin.Unit{
		ID:       "0000:5e:00.0",
		NUMA:     -1,
		Location: device.LocationOnPCI("0000:5e:00.0"),
		RDMA:     "mlx5_1",
		Files:    []string{"/dev/zero"},
	}
	set := &deviceplugin.Set{
		Dir:     "/var/lib/kubelet/device-plugins",
		InfoDir: "/run/k8s.cni.cncf.io/devinfo/dp",
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	t.Cleanup(set.Stop)
	update := func(units ...deviceplugin.Unit) {
		t.Helper()
		if err := set.Update(context.WithoutCancel(t.Context()),
			map[string][]deviceplugin.Unit{resource: units}); err != nil {
			t.Fatal(err)
		}
	}
	update(unit, down)
	counts(t, resource, "2", "1")

	rail(t, "rail0")
	apply(t, `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: rig, annotations: {k8s.v1.cni.cncf.io/resourceName: `+resource+`}}
spec: {config: '`+fabricOn("rail0", "rig")+`'}
`)
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "rig") })
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: p1, annotations: {k8s.v1.cni.cncf.io/networks: rig}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "localhost/box:e2e", imagePullPolicy: Never,
     resources: {requests: {`+resource+`: 1}, limits: {`+resource+`: 1}}}
`)
	t.Cleanup(func() { gone(t, "p1", "--ignore-not-found") })
	ready(t, "p1")
	var networks []struct {
		Info struct {
			PCI struct {
				Address string `json:"pci-address"`
				RDMA    string `json:"rdma-device"`
			}
		} `json:"device-info"`
	}
	text := k(t, "get", "pod", "p1", "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(text), &networks); err != nil {
		t.Fatal(err)
	}
	if len(networks) != 2 || networks[1].Info.PCI.Address != unit.ID || networks[1].Info.PCI.RDMA != unit.RDMA {
		t.Errorf("network-status: %s", text)
	}
	// A second pod finds no healthy device until the port comes up.
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: p2}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "localhost/box:e2e", imagePullPolicy: Never,
     resources: {requests: {`+resource+`: 1}, limits: {`+resource+`: 1}}}
`)
	t.Cleanup(func() { gone(t, "p2", "--ignore-not-found") })
	event(t, "p2", "Insufficient "+resource)
	down.Healthy = true
	update(unit, down)
	counts(t, resource, "2", "2")
	ready(t, "p2")
	gone(t, "p1", "p2")
	home(t, "rail0")
	inRailOrder(t)
	nothingLeft(t)
}

// counts waits for what kubelet says of a resource.
func counts(t *testing.T, resource, capacity, allocatable string) {
	t.Helper()
	key := strings.ReplaceAll(resource, ".", `\.`)
	until(t, resource+" has "+capacity+", of them healthy "+allocatable, prints(capacity+" "+allocatable,
		"get", "node", "rig", "-o",
		"jsonpath={.status.capacity."+key+`} {.status.allocatable.`+key+"}"))
}
