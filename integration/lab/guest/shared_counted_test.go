//go:build labguest

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A pod has as many children on a Fabric's devices as it was given shares of the Fabric, of whichever devices: whatever
// networks it names, however often, and all at once. One that was given none has none.
func TestSharedCounted(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	kubelet := filepath.Join(t.TempDir(), "device-plugins")
	policyFile(t, `{"devicePluginDir": "`+kubelet+`"}`)
	for file, text := range map[string]string{
		"/run/fabric-cni/node-addresses.json": `{"addresses":[],"fabrics":true,"resources":` +
			`{"platform/fakeib.0":"fabric.dev/sh","platform/fakeib.1":"fabric.dev/sh"}}`,
		kubelet + "/kubelet_internal_checkpoint": `{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"c",` +
			`"ResourceName":"fabric.dev/sh","DeviceIDs":{"-1":["platform/fakeib.0-share-0","platform/fakeib.0-share-5"]},` +
			`"AllocResp":""},{"PodUID":"u1","ContainerName":"c","ResourceName":"other.dev/sh",` +
			`"DeviceIDs":{"-1":["platform/fakeib.0-share-7"]},"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}`,
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(file) })
	}
	child := func(pod *Pod, uid string, i int) Call {
		a := interfaceOf(pod, fmt.Sprint("net", i), network(config{
			"name": fmt.Sprint("rails", i%3), "mode": "ipoib", "master": fmt.Sprint("ib", i%2),
			"ipam": static(fmt.Sprintf("10.0.0.%d/24", i)),
		}))
		c := a.call("ADD")
		if uid != "" {
			c.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=d;K8S_POD_NAME=p;K8S_POD_UID=" + uid
		}
		return c
	}
	pod, none := NewPod(t, "pod"), NewPod(t, "none")
	wantError(t, child(none, "u2", 1).Exec(t), 100, "was given no share of fabric.dev/sh", "resources.limits")
	wantError(t, child(none, "", 1).Exec(t), 104, "K8S_POD_UID", "requireAllocated")

	const names, atOnce = 60, 10
	outs := make([]Outcome, names+1)
	var wg sync.WaitGroup
	for i := 1; i <= atOnce; i++ {
		wg.Go(func() { outs[i] = child(pod, "u1", i).Exec(t) })
	}
	wg.Wait()
	var has []int
	for i := 1; i <= names; i++ {
		if i > atOnce {
			outs[i] = child(pod, "u1", i).Exec(t)
		}
		if !outs[i].Failed() {
			has = append(has, i)
			continue
		}
		wantError(t, outs[i], 100, "once more than it was given shares", "2 interfaces of 2")
	}
	if out := pod.sh(t, "ip -d -o link"); len(has) != 2 || strings.Count(out, "ipoib pkey") != 2 {
		t.Errorf("interfaces %v of 2 shares:\n%s", has, out)
	}
	device := interfaceOf(pod, "whole", network(config{"device": "ib1"})).call("ADD")
	device.Args = child(pod, "u1", 1).Args
	if out := device.Exec(t); !out.Failed() {
		t.Errorf("a whole device for shares: %s", out)
	}
	for _, again := range []bool{true, false} { // what is given back counts no more
		for i := 1; i <= names; i++ {
			c := child(pod, "u1", i)
			c.Command = "DEL"
			c.Must(t)
		}
		if again {
			for _, i := range []int{7, 8} {
				child(pod, "u1", i).Must(t)
			}
		}
	}
}
