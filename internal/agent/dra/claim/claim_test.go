package claim

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func pod(name string) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID("uid-" + name)}
}

func result(driver, pool, request, device string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Request: request, Device: device}
}

func config(source, params string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	return resourceapi.DeviceAllocationConfiguration{
		Source: resourceapi.AllocationConfigSource(source), Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: "fabric.dev", Parameters: runtime.RawExtension{Raw: []byte(params)},
		}},
	}
}

func allocated(configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{}
	c.Name, c.Namespace, c.UID = "rails", "default", "claim"
	share := types.UID("share")
	a := &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{
			result("fabric.dev", "n1", "rails", "pci-0000-3b-00-0"),
			result("gpu.example.com", "n1", "gpu", "gpu-0"),
			result("fabric.dev", "n1", "any/fast", "pci-0000-5e-00-0"),
			result("fabric.dev", "other", "rails", "pci-0000-3b-00-0"),
		},
		Config: configs,
	}}
	a.Devices.Results[2].ShareID = &share
	c.Status.Allocation = a
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{pod("p1")}
	return c
}

const head = `{"apiVersion":"fabric.dev/v1alpha1","kind":"InterfaceConfig"`

func TestOf(t *testing.T) {
	c := allocated(
		config("FromClaim", head+`,"mtu":4000}`, "rails"),
		config("FromClass", head+`,"mtu":2000,"rdmaName":"auto"}`),
		config("FromClaim", head+`,"umcast":true}`, "any"),
		config("FromClaim", head+`,"pkey":"0x8001"}`, "any/slow"),
	)
	other := config("FromClaim", `{"not":"ours"}`)
	other.Opaque.Driver = "gpu.example.com"
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, other)
	p, devices, err := Of(c, "n1")
	if err != nil || p != (Pod{"p1", "uid-p1"}) {
		t.Fatal(p, err)
	}
	want := []Device{
		{Request: "rails", Name: "pci-0000-3b-00-0", Network: []byte(`{"mtu":4000,"rdmaName":"auto"}`)},
		{
			Request: "any/fast", Name: "pci-0000-5e-00-0", ShareID: "share",
			Network: []byte(`{"mtu":2000,"rdmaName":"auto","umcast":true}`),
		},
	}
	if diff := gocmp.Diff(want, devices); diff != "" {
		t.Error(diff)
	}
}

// A claim names interfaces: one name for one device.
func TestInterfaces(t *testing.T) {
	ofClaim := func(params string, requests ...string) resourceapi.DeviceAllocationConfiguration {
		return config("FromClaim", head+","+params+"}", requests...)
	}
	type configs = []resourceapi.DeviceAllocationConfiguration
	for _, tt := range []struct {
		config configs
		want   string // or what the error says
	}{
		{nil, "- -"},
		{configs{ofClaim(`"interface":"ib%d","mtu":4000`)}, "ib%d ib%d"},
		{configs{config("FromClass", head+`,"interface":"ib%d"}`), ofClaim(`"interface":"storage"`, "any")},
			"ib%d storage"},
		{configs{ofClaim(`"interface":"ib0"`)},
			`interface "ib0" is for one device, and there are two of it, of the requests rails and any/fast`},
		{configs{ofClaim(`"interface":"a/b"`)}, `InterfaceConfig: interface "a/b": want 1 to 15 characters`},
	} {
		_, devices, err := Of(allocated(tt.config...), "n1")
		got := fmt.Sprint(err)
		if err == nil {
			got = string(cmp.Or(devices[0].Interface, "-") + " " + cmp.Or(devices[1].Interface, "-"))
			for _, d := range devices {
				if strings.Contains(string(d.Network), "interface") {
					t.Errorf("network settings: %s", d.Network)
				}
			}
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestPods(t *testing.T) {
	c := allocated()
	c.Status.ReservedFor = append(c.Status.ReservedFor, pod("p2\x1b[31m"))
	if _, _, err := Of(c, "n1"); err == nil || !strings.Contains(err.Error(), "pod p1, pod p2") ||
		!strings.Contains(err.Error(), "ResourceClaimTemplate") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("of two pods: %v", err)
	}
	c.Status.ReservedFor = nil
	if _, _, err := Of(c, "n1"); err == nil || !strings.Contains(err.Error(), "for no pod") {
		t.Errorf("of no pod: %v", err)
	}
}

func TestAdminAccess(t *testing.T) {
	c, yes := allocated(), true
	c.Status.Allocation.Devices.Results[0].AdminAccess = &yes
	if _, _, err := Of(c, "n1"); err == nil || !strings.Contains(err.Error(), "adminAccess true: want false") {
		t.Error(err)
	}
}

func TestWrongParameters(t *testing.T) {
	for params, want := range map[string]string{
		`{`:  "read InterfaceConfig",
		`[]`: "read InterfaceConfig",
		`{}`: `apiVersion "", kind ""`,
		`{"apiVersion":"v1","kind":"InterfaceConfig"}`:             `apiVersion "v1"`,
		head + `,"mtU":9000}`:                                      `unknown field "mtU"`,
		head + `,"mtu":"9000"}`:                                    "mtu",
		head + `,"mtu":9000,"mtu":1}`:                              `duplicate field "mtu"`,
		head + `,"routing":{"sourceBased":true}}`:                  `unknown field "routing"`,
		head + `,"ipoibMode":"fast"}`:                              `ipoibMode "fast": must be Datagram or Connected`,
		head + `,"rdmaName":"` + strings.Repeat("a", 11000) + `"}`: "want at most 10240",
	} {
		_, _, err := Of(allocated(config("FromClaim", params)), "n1")
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 2000 {
			t.Errorf("%.80s: %v, want %s", params, err, want)
		}
	}
}
