package metrics_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// A pod may give its RDMA device any name: no label for Prometheus, whose client panics on one that is not UTF-8.
func TestHostileName(t *testing.T) {
	r := prometheus.NewRegistry()
	node := survey.Node{Sys: os.DirFS(t.TempDir()), Store: journal.Store{Dir: t.TempDir()}}
	m, err := metrics.New(r, node, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m.SetHealth([]metrics.Health{{Device: "a", HCA: "mlx5\xff\n0", Fabric: "ib", Problem: "PortDown", Flaps: 1}})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fabric_device_unhealthy" {
			continue
		}
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() == "hca" && l.GetValue() == `mlx5\xff\n0` {
				return
			}
		}
	}
	t.Errorf("%v", families)
}
