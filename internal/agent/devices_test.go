package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// A Fabric's deviceFiles say which files kubelet hands out beside those that verbs need, with both attachments.
func TestDeviceFiles(t *testing.T) {
	all := []string{
		"/dev/infiniband/issm0", "/dev/infiniband/rdma_cm", "/dev/infiniband/umad0", "/dev/infiniband/uverbs0",
	}
	d := survey.Device{Location: device.LocationOnPCI("0000:3b:00.0"), Files: all}
	match := v1alpha1.Match{RateGb: new(int32(200))}
	for _, attachment := range []v1alpha1.Attachment{v1alpha1.WholeDevice, v1alpha1.IPoIBChild} {
		for _, kinds := range [][]v1alpha1.DeviceFile{nil, {v1alpha1.UMAD}, {v1alpha1.UMAD, v1alpha1.ISSM}} {
			o := &v1alpha1.Fabric{Spec: v1alpha1.FabricSpec{Match: match, Attachment: attachment, DeviceFiles: kinds}}
			o.Name = "ib"
			f, err := fabrics.Parse(o)
			if err != nil {
				t.Fatal(err)
			}
			files, err := filesThen(t.Context(), network.Units(f, []survey.Device{d})[0])
			if err != nil || len(files) != 2+len(kinds) || !slices.Contains(files, all[1]) ||
				!slices.Contains(files, all[3]) || slices.Contains(files, all[2]) != (len(kinds) > 0) {
				t.Errorf("attachment %s, deviceFiles %v: %v, %v", attachment, kinds, files, err)
			}
		}
	}
	o := &v1alpha1.Fabric{Spec: v1alpha1.FabricSpec{DeviceFiles: []v1alpha1.DeviceFile{"uverbs"}}}
	o.Name = "ib"
	_, err := fabrics.Parse(o)
	if err == nil || !strings.Contains(err.Error(), `deviceFiles "uverbs": must be UMAD or ISSM`) {
		t.Errorf("deviceFiles: [uverbs]: %v", err)
	}
}

// A fabric that has no device here is reported with the nearest one; one that has devices is not.
func TestReportUnmatched(t *testing.T) {
	v := &view{
		fabrics: []fabrics.Fabric{
			{Name: "fast", Match: fabrics.Match{RateGb: 200}},
			{Name: "slow", Match: fabrics.Match{RateGb: 100}},
		},
		assigned: map[string][]survey.Device{"slow": {{RateGb: 100}}},
		findings: &condition.Set{},
	}
	reportUnmatched([]survey.Device{{RateGb: 100}}, v)
	got, ok := v.findings.Get(condition.FabricUnmatched, condition.Fabric("fast"))
	if want := "its rate is 100 Gb/s, not 200"; !ok || !strings.Contains(got.Message, want) {
		t.Errorf("%+v, want %q", got, want)
	}
	if got, ok := v.findings.Get(condition.FabricUnmatched, condition.Fabric("slow")); ok {
		t.Errorf("slow has a device: %+v", got)
	}
}
