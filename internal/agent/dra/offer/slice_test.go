package offer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func item(t *testing.T, id string) Item {
	t.Helper()
	a, err := device.ParseAddress(id)
	if err != nil {
		t.Fatal(err)
	}
	return Item{
		Fabric: "ib-200g", Resource: "fabric.dev/ib-200g", LinkLayer: "InfiniBand", RateGb: 200,
		State: "Active", RDMADevice: "mlx5_0", Netdev: "ib0", GUID: "0002:c903:0000:0001",
		Firmware: "28.43.1014", NUMA: 1, Location: device.Location{Address: a, PCI: a.PCI()}, PCIeRoot: "pci0000:3a",
	}
}

func TestDeviceName(t *testing.T) {
	for id, want := range map[string]string{
		"0000:3b:00.0":                 "pci-0000-3b-00-0",
		"auxiliary/mlx5_core.sf.4":     "auxiliary-mlx5-core-sf-4",
		"virtio/virtio3":               "virtio-virtio3",
		"platform/X":                   "platform",
		"":                             "pci",
		"platform/" + longest(60):      "",
		"netdev/\x1b[31m\u202eevil\n/": "netdev---31m-evil",
	} {
		got, err := DeviceName(id)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", id, got, err, want)
		}
		if errs := validation.IsDNS1123Label(got); want != "" && len(errs) > 0 {
			t.Errorf("%q: %q: %v", id, got, errs)
		}
	}
}

func longest(n int) string { return strings.Repeat("a", n) }

func TestShare(t *testing.T) {
	for name, want := range map[string][2]string{
		"pci-0000-3b-00-0":          {"pci-0000-3b-00-0", ""},
		"pci-0000-3b-00-0-share-7":  {"pci-0000-3b-00-0", "-share-7"},
		"pci-0000-3b-00-0-share-x":  {"pci-0000-3b-00-0-share-x", ""},
		"pci-0000-3b-00-0-share--1": {"pci-0000-3b-00-0-share--1", ""},
	} {
		d, s := Share(name)
		if d != want[0] || s != want[1] {
			t.Errorf("%s: %q, %q", name, d, s)
		}
	}
}

func TestDevices(t *testing.T) {
	down := item(t, "0000:5e:00.0")
	down.Problem = "PortDown"
	out, refused := Devices([]Item{down, item(t, "0000:3b:00.0")}, Form{Taints: true})
	if len(out) != 2 || len(refused) != 0 {
		t.Fatalf("%v, refused %v", out, refused)
	}
	got := map[string]any{}
	for k, v := range out[0].Attributes {
		switch {
		case v.IntValue != nil:
			got[string(k)] = *v.IntValue
		case v.StringValue != nil:
			got[string(k)] = *v.StringValue
		}
	}
	want := map[string]any{
		"fabric": "ib-200g", "rail": int64(0), "linkLayer": "InfiniBand", "rateGb": int64(200), "state": "Active",
		"rdmaDevice": "mlx5_0", "netdev": "ib0", "guid": "0002:c903:0000:0001", "numaNode": int64(1),
		"resource.kubernetes.io/numaNode": int64(1),
		"firmware":                        "28.43.1014", "resource.kubernetes.io/pcieRoot": "pci0000:3a",
		"resource.kubernetes.io/pciBusID": "0000:3b:00.0", "k8s.cni.cncf.io/deviceID": "0000:3b:00.0",
		"k8s.cni.cncf.io/resourceName": "fabric.dev/ib-200g",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	taint := resourceapi.DeviceTaint{Key: TaintUnhealthy, Value: "PortDown", Effect: "NoSchedule"}
	if diff := cmp.Diff([]resourceapi.DeviceTaint{taint}, out[1].Taints); diff != "" || len(out[0].Taints) != 0 {
		t.Errorf("taints: %s, %v", diff, out[0].Taints)
	}
	out, _ = Devices([]Item{down, item(t, "0000:3b:00.0")}, Form{})
	if len(out) != 1 || out[0].Name != "pci-0000-3b-00-0" {
		t.Errorf("without taints: %v", out)
	}
}

func TestShares(t *testing.T) {
	shared := item(t, "0000:3b:00.0")
	shared.Shares = 3
	out, _ := Devices([]Item{shared}, Form{Capacity: true})
	if len(out) != 1 || !*out[0].AllowMultipleAllocations || shares(&out[0]) != 3 {
		t.Errorf("with capacity: %v", out)
	}
	out, _ = Devices([]Item{shared}, Form{})
	if len(out) != 3 || out[2].Name != "pci-0000-3b-00-0-share-2" ||
		*out[2].Attributes[AttrDeviceID].StringValue != "0000:3b:00.0-share-2" {
		t.Errorf("without: %v", out)
	}
}

// Two ids may make one name, and kernel names may have any byte.
func TestHostile(t *testing.T) {
	a, b := item(t, "platform/x.y"), item(t, "platform/x-y")
	long := item(t, "platform/"+longest(60))
	evil := item(t, "0000:3b:00.0")
	evil.Netdev, evil.RDMADevice, evil.Firmware = "\xff\xfe\x1b[2J", longest(65), strings.Repeat("\u202e", 30)
	evil.RateGb, evil.NUMA = 1e300, -1
	out, refused := Devices([]Item{a, b, long, evil}, Form{Taints: true, Capacity: true})
	if len(out) != 2 || len(refused) != 2 {
		t.Fatalf("%v, refused %v", out, refused)
	}
	for _, d := range out {
		if errs := validation.IsDNS1123Label(d.Name); len(errs) > 0 {
			t.Errorf("%q: %v", d.Name, errs)
		}
		if n := len(d.Attributes) + len(d.Capacity); n > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			t.Errorf("%s has %d attributes", d.Name, n)
		}
		for k, v := range d.Attributes {
			if v.StringValue != nil && !fits(*v.StringValue) {
				t.Errorf("%s: %s: %q", d.Name, k, *v.StringValue)
			}
			name := string(k)[strings.LastIndex(string(k), "/")+1:]
			if errs := validation.IsCIdentifier(name); len(errs) > 0 || len(name) > resourceapi.DeviceMaxIDLength {
				t.Errorf("%s: %v", k, errs)
			}
		}
	}
	if _, there := out[0].Attributes[AttrRDMADevice]; there && out[0].Name == "pci-0000-3b-00-0" {
		t.Error("a name that is too long is there")
	}
}

func TestRails(t *testing.T) {
	eth := item(t, "0000:20:00.0")
	eth.Fabric = "eth"
	items := []Item{item(t, "0000:86:00.0"), eth, item(t, "0000:3b:00.0"), item(t, "0000:5e:00.0")}
	Rails(items, map[string]int{"eth": 5})
	got := map[string]int{}
	for _, it := range items {
		got[it.ID()] = it.Rail
	}
	want := map[string]int{"0000:20:00.0": 5, "0000:3b:00.0": 0, "0000:5e:00.0": 1, "0000:86:00.0": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestChunks(t *testing.T) {
	if c := Chunks(nil); len(c) != 1 || len(c[0]) != 0 {
		t.Errorf("of none: %v", c)
	}
	c := Chunks(make([]resourceapi.Device, 300))
	n := 0
	for _, s := range c {
		if n += len(s); len(s) > resourceapi.ResourceSliceMaxDevices {
			t.Errorf("a slice of %d", len(s))
		}
	}
	if n != 300 {
		t.Errorf("%d of 300", n)
	}
}

func shares(d *resourceapi.Device) int64 {
	c := d.Capacity[CapacityShares]
	return c.Value.Value()
}
