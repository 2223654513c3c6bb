package prepared

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	api "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func attributed(request, name string) Device {
	return Device{
		Request: request, Name: name,
		Attributes: Attributes{
			"rail":                            json.RawMessage(`{"int":3}`),
			"rdmaDevice":                      json.RawMessage(`{"string":"mlx5_7"}`),
			"resource.kubernetes.io/pciBusID": json.RawMessage(`{"string":"0000:3b:00.0"}`),
		},
	}
}

func withMetadata() *Claim {
	return &Claim{
		UID: "c1", Namespace: "team", Name: "train-rails-x", PodUID: "p1", Pod: "train", PodClaimName: "rails",
		Pool:    "n1",
		Devices: []Device{attributed("one/first", "pci-0"), attributed("two", "pci-1"), attributed("two", "pci-2")},
	}
}

// decoded is what the library's own decoder, which consumers use, finds in a file.
func decoded(t *testing.T, path string) *api.DeviceMetadata {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out api.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(string(b))), &out); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return &out
}

// A file for each request, in each version of the API: first without, then with the interface.
func TestMetadata(t *testing.T) {
	s, c := Store{Dir: t.TempDir()}, withMetadata()
	if s.HasMetadata(c, 1) {
		t.Error("it has metadata before it is made")
	}
	for range 2 {
		if err := s.InitMetadata(c); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, c.MetadataRequests()); diff != "" || !s.HasMetadata(c, 1) {
		t.Error(diff)
	}
	one := decoded(t, s.MetadataFile(c, "one"))
	if one.Generation != 1 || one.Requests[0].Name != "one/first" || one.Requests[0].Devices[0].NetworkData != nil {
		t.Errorf("before: %+v", one)
	}
	in := []InPod{
		{NetworkData: NetworkDataOf("net1", "", nil)},
		{NetworkData: NetworkDataOf("net2", "02:00:00:00:00:01", []netip.Prefix{
			netip.MustParsePrefix("10.1.2.3/24"), netip.MustParsePrefix("fd00::1/64"),
			netip.MustParsePrefix("10.1.2.3/24"),
		}), RDMADevice: "mlx5_0"},
		{NetworkData: NetworkDataOf("net3", strings.Repeat("x", 129), nil)},
	}
	if err := s.UpdateMetadata(c, 7, in); err != nil {
		t.Fatal(err)
	}
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	three, podClaim := int64(3), "rails"
	attributes := func(rdma string) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
		return map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"rail": {IntValue: &three}, "rdmaDevice": text(rdma),
			"resource.kubernetes.io/pciBusID": text("0000:3b:00.0"),
		}
	}
	want := &api.DeviceMetadata{PodClaimName: &podClaim, Requests: []api.DeviceMetadataRequest{{
		Name: "two", Devices: []api.Device{
			{
				Driver: "fabric.dev", Pool: "n1", Name: "pci-1", Attributes: attributes("mlx5_0"),
				NetworkData: &resourceapi.NetworkDeviceData{
					InterfaceName: "net2", HardwareAddress: "02:00:00:00:00:01",
					IPs: []string{"10.1.2.3/24", "fd00::1/64"},
				},
			},
			{
				Driver: "fabric.dev", Pool: "n1", Name: "pci-2", Attributes: attributes("mlx5_7"),
				NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net3"},
			},
		},
	}}}
	want.Name, want.Namespace, want.UID, want.Generation = "train-rails-x", "team", "c1", 7
	if diff := cmp.Diff(want, decoded(t, s.MetadataFile(c, "two"))); diff != "" {
		t.Error(diff)
	}
	b, err := os.ReadFile(s.MetadataFile(c, "two"))
	if err != nil {
		t.Fatal(err)
	}
	in2 := json.NewDecoder(strings.NewReader(string(b)))
	in2.DisallowUnknownFields()
	var beta v1beta1.DeviceMetadata
	var alpha v1alpha1.DeviceMetadata
	if err := in2.Decode(&beta); err != nil || beta.APIVersion != v1beta1.SchemeGroupVersion.String() {
		t.Error(beta.APIVersion, err)
	}
	if err := in2.Decode(&alpha); err != nil || alpha.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		t.Error(alpha.APIVersion, err)
	}
	if st, err := os.Stat(s.MetadataFile(c, "two")); err != nil || st.Mode().Perm() != 0o644 {
		t.Error("mode", st.Mode(), err) // any user of a container reads it
	}
	if err := s.InitMetadata(c); err != nil || !s.HasMetadata(c, 7) { // kubelet asks again: what is known stays
		t.Error(err)
	}
}

// What a killed writer has left is not whole, of no generation, and is written again, into the file that is mounted.
func TestMetadataTorn(t *testing.T) {
	s, c := Store{Dir: t.TempDir()}, withMetadata()
	if err := s.InitMetadata(c); err != nil {
		t.Fatal(err)
	}
	path := s.MetadataFile(c, "two")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	in := []InPod{
		{NetworkData: NetworkData{InterfaceName: "net1"}}, {NetworkData: NetworkData{InterfaceName: "net2"}},
		{NetworkData: NetworkData{InterfaceName: "net3"}},
	}
	if err := s.UpdateMetadata(c, 7, in); err != nil {
		t.Fatal(err)
	}
	last, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(last) - 1 { // the last byte ends the line
		if whole(last[:n], 7) {
			t.Fatalf("%d bytes of %d are whole:\n%s", n, len(last), last[:n])
		}
	}
	if err := os.WriteFile(path, append(last, last...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.UpdateMetadata(c, 8, in); err != nil || !s.HasMetadata(c, 8) {
		t.Error("it is not written again", err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Error("it is another file: containers have the old one", err)
	}
}

// What is removed with a claim, and what names are no part of a path.
func TestMetadataRemoved(t *testing.T) {
	s, c := Store{Dir: t.TempDir()}, withMetadata()
	c.Devices = append(c.Devices, attributed("../../x", "pci-3"), Device{Request: "old"})
	for i := range c.Devices {
		c.Devices[i].ID, c.Devices[i].Fabric, c.Devices[i].Address = "0", "ib", device.Address{Bus: "pci", Name: "0"}
	}
	if err := s.InitMetadata(c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", "two"}, c.MetadataRequests()); diff != "" {
		t.Error(diff)
	}
	if err := s.Save(c); err != nil {
		t.Fatal(err)
	}
	if claims, err := s.All(); err != nil || len(claims) != 1 {
		t.Errorf("%d claims, %v", len(claims), err)
	}
	if err := s.Remove("c1"); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(s.Dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := s.UpdateMetadata(c, 7, make([]InPod, len(c.Devices))); err == nil {
		t.Error("a file that is not there is made: no container has it mounted")
	}
	if err := s.InitMetadata(&Claim{UID: "../x", PodUID: "p1"}); err == nil {
		t.Error("a UID that leads elsewhere is used")
	}
}

// What device metadata adds to the start of a pod with eight devices by one request: the files of the claim when it is
// prepared, and those that the hook writes.
func BenchmarkMetadataOfEight(b *testing.B) {
	c := withMetadata()
	c.Devices = nil
	var in []InPod
	for i := range 8 {
		c.Devices = append(c.Devices, attributed("rails", fmt.Sprint("pci-", i)))
		in = append(in, InPod{RDMADevice: fmt.Sprint("mlx5_", i), NetworkData: NetworkDataOf(fmt.Sprint("net", i+1),
			"02:00:00:00:00:01", []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")})})
	}
	for b.Loop() {
		s := Store{Dir: b.TempDir()}
		if err := s.InitMetadata(c); err != nil {
			b.Fatal(err)
		}
		if err := s.UpdateMetadata(c, 7, in); err != nil {
			b.Fatal(err)
		}
	}
}
