package metrics_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/calls"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

func TestCountCalls(t *testing.T) {
	dir := t.TempDir()
	r := prometheus.NewRegistry()
	node := survey.Node{Sys: os.DirFS(dir), Store: journal.Store{Dir: dir}, Policy: filepath.Join(dir, "policy.json")}
	m, err := metrics.New(r, node, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []calls.Call{
		{Verb: "ADD", Took: 30 * time.Millisecond},
		{Verb: "ADD", Code: 101, Took: 2 * time.Second},
		{Verb: "ADD", Code: 101},
		{Verb: "DEL", Code: 11},
	} {
		calls.Note(dir, c)
	}
	for range 3 {
		if err := m.CountCalls(dir); err != nil {
			t.Fatal(err)
		}
	}
	want := `# HELP fabric_cni_errors_total Calls of the plugin that failed, by verb and by the code of the error.
# TYPE fabric_cni_errors_total counter
fabric_cni_errors_total{code="101",verb="ADD"} 2
fabric_cni_errors_total{code="11",verb="DEL"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "fabric_cni_errors_total"); err != nil {
		t.Error(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fabric_cni_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 3 || h.GetSampleSum() < 2.02 || h.GetSampleSum() > 2.04 {
			t.Errorf("%v", h)
		}
		return
	}
	t.Error("no histogram")
}
