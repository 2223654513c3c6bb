package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/deployments/helm"
	"github.com/fabric-cni/fabric-cni/internal/admit"
	"github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// judge says of an object what the API server says.
func judge(t *testing.T, j *admit.Judge, object string) string {
	t.Helper()
	got, err := j.Judge(object)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func newJudge(t *testing.T) *admit.Judge {
	t.Helper()
	j, err := admit.New(helm.Fabrics)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Every wrong Fabric is refused, with the field and the cure. integration/cluster applies the same ones to a real API
// server.
func TestWrongFabrics(t *testing.T) {
	j := newJudge(t)
	for _, w := range fabrics.AllWrong {
		got := judge(t, j, w.Object())
		for _, want := range w.Want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", w.Name, got, want)
			}
		}
	}
}

func TestRightFabrics(t *testing.T) {
	j := newJudge(t)
	for _, spec := range []string{
		`{nodeSelector: {matchLabels: {pool: h20}}, match: {discovered: ib-200g, rail: 0}}`,
		`{network: {rdmaMode: Ignore, sourceBasedRouting: false}, deviceFiles: [UMAD, ISSM]}`,
		`{match: {linkLayer: InfiniBand, rateGb: 200, subnetPrefix: "fe80::", devices: ["0000:3b:*", "ibs1*"], rail: 3}}`,
		`{match: {subnetPrefix: "fec0:0000:0000:0001"}}`,
		`{attachment: IPoIBChild, shares: 16, network: {pkey: "0x8001", ipoibMode: Connected, umcast: true}}`,
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/16, network_name: a, exclude: [10.0.0.0/30]}}}`,
		`{addresses: {ipam: {type: nv-ipam, poolName: a}}, namespaces: {selector: {}}}`,
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26, exclude: [10.0.0.0/26, 10.0.1.1]},
		  {range: "fd00::/64", perNodePrefixLength: 112}], static: [{node: a, range: 10.0.4.0/26}], reclaim: 48h}}}`,
		`{health: {counters: [{counter: symbol_error, perMinute: 10}], flapsPerTenMinutes: 0, recovery: 5m, action: Withhold}}`,
	} {
		if got := judge(t, j, fabrics.Object("right", spec)); got != "" {
			t.Errorf("%s: %s", spec, got)
		}
	}
}
