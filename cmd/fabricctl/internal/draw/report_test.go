package draw_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/draw"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

// A way that was not measured has no figure: neither that of the other way nor any.
func TestReportOneWay(t *testing.T) {
	there, back := &perftest.Bandwidth{AverageGb: 180}, &perftest.Bandwidth{AverageGb: 90}
	result := func(rail, railB string) perftest.Result {
		return perftest.Result{A: "p1", B: "p2", Rail: rail, RailB: railB, RateGb: 200, Verdict: perftest.Slow}
	}
	yes := true
	one, both, cross, apart, ping, failed := result("net1", ""), result("net1", ""), result("net1", "net2"),
		result("net1", "net2"), result("net1", ""), result("net1", "")
	one.Bandwidth = there
	both.Bandwidth, both.Reverse = there, back
	cross.Bandwidth, cross.Reverse = there, back
	apart.Verdict = perftest.Good
	ping.Verdict, ping.Ping = perftest.Skipped, "reachable"
	failed.Verdict = perftest.Failed
	unmeasured := ping
	unmeasured.Reached = &yes
	for name, c := range map[string]struct {
		result perftest.Result
		want   []string // rows of the map of each lane
	}{
		"one way":   {one, []string{"", "90 %", "–", ""}},
		"both ways": {both, []string{"", "90 %", "45 %", ""}},
		"two rails": {cross, []string{"", "90 %", "", ""}},
		"apart":     {apart, []string{"", "apart", "", ""}},
		"ping only": {ping, []string{"", "reachable", "reachable", ""}},
		"no clock":  {unmeasured, []string{"", "–", "–", ""}},
		"both fail": {failed, []string{"", "failed", "failed", ""}},
	} {
		var page bytes.Buffer
		if err := draw.Report(&page, perftest.NewReport([]perftest.Result{c.result}, nil)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range regexp.MustCompile(`<td style="[^"]*" title="[^"]*">([^<]*)</td>`).FindAllStringSubmatch(
			page.String(), -1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A field has one of three colours, of which the threshold is a border: 81 of 90 percent is not green.
func TestReportColours(t *testing.T) {
	const green, yellow, red = "#8ae68a", "#ffd54f", "#ef9a9a"
	for share, want := range map[float64]string{0.96: green, 0.90: green, 0.81: yellow, 0.45: yellow, 0.44: red} {
		r := perftest.Result{A: "p1", B: "p2", Rail: "net1", RateGb: 200, Verdict: perftest.Slow,
			Bandwidth: &perftest.Bandwidth{AverageGb: 200 * share}}
		var page bytes.Buffer
		if err := draw.Report(&page, perftest.NewReport([]perftest.Result{r}, nil)); err != nil {
			t.Fatal(err)
		}
		for _, colour := range []string{green, yellow, red} {
			if has := strings.Contains(page.String(), "background:"+colour); has != (colour == want) {
				t.Errorf("%.2f of the rate: %s is there: %t, want %s alone", share, colour, has, want)
			}
		}
	}
}
