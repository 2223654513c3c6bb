package agent

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

// A fabric that has no device here is reported with the nearest one; one that has devices is not.
func TestReportUnmatched(t *testing.T) {
	v := &view{
		fabrics: []fabrics.Fabric{
			{Name: "fast", Match: fabrics.Match{RateGb: 200}},
			{Name: "slow", Match: fabrics.Match{RateGb: 100}},
		},
		assigned:   map[string][]survey.Device{"slow": {{ID: "a", RateGb: 100}}},
		conditions: &condition.Set{},
	}
	reportUnmatched([]survey.Device{{ID: "a", RateGb: 100}}, v)
	got, ok := v.conditions.Get(condition.FabricMatched, condition.Fabric("fast"))
	if want := "its rate is 100 Gb/s, not 200"; !ok || !strings.Contains(got.Message, want) {
		t.Errorf("%+v, want %q", got, want)
	}
	if got, ok := v.conditions.Get(condition.FabricMatched, condition.Fabric("slow")); ok {
		t.Errorf("slow has a device: %+v", got)
	}
}
