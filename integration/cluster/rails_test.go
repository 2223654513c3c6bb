package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/deviceplugin"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// inRailOrder starts two pods at once, each with three of the six devices that kubelet has. kubelet and Multus hand
// them out in no order; net1, net2 and net3 of each pod have them in rail order, and none is given twice.
func inRailOrder(t *testing.T) {
	t.Helper()
	const resource = "fabric.dev/rails"
	rails := offered(t, resource, 6)
	apply(t, `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: rails, annotations: {k8s.v1.cni.cncf.io/resourceName: `+resource+`}}
spec: {config: '{"cniVersion":"1.0.0","name":"rails","type":"fabric","capabilities":{"deviceID":true}}'}
`)
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "rails") })
	pods := []string{"order-a", "order-b"}
	for _, name := range pods {
		apply(t, `apiVersion: v1
kind: Pod
metadata: {name: `+name+`, annotations: {k8s.v1.cni.cncf.io/networks: "rails, rails, rails"}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "localhost/box:e2e", imagePullPolicy: Never,
     resources: {requests: {`+resource+`: 3}, limits: {`+resource+`: 3}}}
`)
		t.Cleanup(func() { gone(t, name, "--ignore-not-found") })
	}
	for _, name := range pods {
		ready(t, name)
	}
	list, err := journal.Store{Dir: journal.DefaultDir}.List()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]map[string]string{}
	for _, e := range list {
		if has[e.Pod()] == nil {
			has[e.Pod()] = map[string]string{}
		}
		has[e.Pod()][e.IfName] = e.DeviceKey
	}
	all := map[string]bool{}
	for _, name := range pods {
		var got []string
		devices := has["default/"+name]
		for _, ifName := range slices.Sorted(maps.Keys(devices)) {
			got = append(got, devices[ifName])
			all[devices[ifName]] = true
		}
		if len(got) != 3 || !slices.IsSorted(got) {
			t.Errorf("%s has %s", name, strings.Join(got, " "))
		}
	}
	if len(all) != len(rails) {
		t.Errorf("given: %v", all)
	}
	gone(t, pods...)
	home(t, rails...)
}

// offered are so many rails, made for the test and offered to kubelet as a resource.
func offered(t *testing.T, resource string, n int) (rails []string) {
	t.Helper()
	set := &deviceplugin.Set{
		Dir: "/var/lib/kubelet/device-plugins", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	t.Cleanup(set.Stop)
	var units []deviceplugin.Unit
	for i := range n {
		name := fmt.Sprint("order", i)
		rail(t, name)
		at := device.Location{Address: device.Address{Bus: device.Virtual, Name: name}}
		units = append(units, deviceplugin.Unit{ID: at.ID(), Location: at, Healthy: true, NUMA: -1})
		rails = append(rails, name)
	}
	if err := set.Update(context.WithoutCancel(t.Context()),
		map[string][]deviceplugin.Unit{resource: units}); err != nil {
		t.Fatal(err)
	}
	counts(t, resource, fmt.Sprint(n), fmt.Sprint(n))
	return rails
}
