package cli

import (
	"fmt"
	"reflect"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/nccl"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/selftest"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/subnet"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/validate"
)

// kind is an object that commands print as JSON and YAML.
type kind struct {
	name  string
	value any    // of the Go type that is printed
	is    string // what it is, for the list in docs/schemas
}

// kinds are all of them. A type that is not here can't be printed. Each has its schema in docs/schemas, which
// go test ./cmd/fabricctl/internal/cli -run Schemas -update writes.
var kinds = []kind{
	{"AttachmentList", attachmentList{}, "`list`"},
	{"ValidateReport", validate.Report{}, "`validate`"},
	{"Cluster", clusterDiscovery{}, "`discover --cluster`"},
	{"ClusterStatus", doctor.ClusterStatus{}, "`status`"},
	{"DeviceList", deviceList{}, "`list --cluster`"},
	{"Explanations", explanationList{}, "`doctor explain`"},
	{"FabricTopology", subnet.Topology{}, "`topology`"},
	{"Findings", findingList{}, "`doctor host`, `doctor pod`, `doctor cluster`, `preflight`"},
	{"NCCLEnvironment", ncclEnvironment{}, "`nccl-env`"},
	{"Node", discovery{}, "`discover`, `discover --cluster NODE`"},
	{"Plan", planReport{}, "`plan`"},
	{"PortRates", portRates{}, "`watch`, an object per look"},
	{"JobReport", jobReport{}, "`doctor job`"},
	{"RepairReport", repairReport{}, "`repair`"},
	{"SelftestReport", selftest.Report{}, "`selftest`"},
	{"Version", versions{}, "`version`"},
	{"VerifyReport", perftest.Report{}, "`verify`"},
}

// attachmentList is what list prints.
type attachmentList struct {
	Attachments []attached `json:"attachments"`
}

// deviceList is what list --cluster prints.
type deviceList struct {
	Devices []doctor.Device `json:"devices"`
}

// findingList is what the checks of doctor print, the worst first.
type findingList struct {
	Findings []doctor.Finding `json:"findings"`
}

// explanationList is what doctor explain prints.
type explanationList struct {
	Explanations []doctor.Explanation `json:"explanations"`
}

// ncclEnvironment is what nccl-env prints.
type ncclEnvironment struct {
	Vars  []nccl.Var `json:"vars"`
	Notes []string   `json:"notes"`
}

// planReport is what plan prints: a plan for each plugin of the configuration, or for each attachment.
type planReport struct {
	Plans []planned `json:"plans"`
}

// kindOf is the kind of a value that is to be printed.
func kindOf(v any) (string, error) {
	for _, k := range kinds {
		if reflect.TypeOf(k.value) == reflect.TypeOf(v) {
			return k.name, nil
		}
	}
	return "", fmt.Errorf("%T has no kind: it needs a row in kinds.go", v)
}
