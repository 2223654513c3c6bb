package deployments_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

// The dashboard asks for metrics that the agent has, and docs/kubernetes.md lists all of them.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("grafana/fabric-cni.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Fatal("not JSON")
	}
	m, err := metrics.New(prometheus.NewRegistry(), survey.Node{}, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 64)
	for _, c := range m.Collectors() {
		c.Describe(descriptions)
	}
	close(descriptions)
	known := map[string]bool{}
	for d := range descriptions {
		known[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	page, err := os.ReadFile("../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/kubernetes.md does not have the metric %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`\bfabric_\w+`).FindAllString(string(b), -1) {
		if !known[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("the agent has no metric %s", name)
		}
	}
}
