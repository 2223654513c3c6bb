// Package deployments tests that what the manifests configure is what the programs understand.
package deployments

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
)

func TestSettings(t *testing.T) {
	known := map[string]bool{}
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "helm" { // templates
			return fs.SkipDir
		}
		if err != nil || filepath.Base(path) != "settings.yaml" {
			return err
		}
		found++
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var configMap struct{ Data map[string]string }
		if err := yaml.Unmarshal(b, &configMap); err != nil {
			return err
		}
		s, err := settings.Parse([]byte(configMap.Data["settings.yaml"]))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		for i := range s.Fabrics {
			known[s.Fabrics[i].Resource()] = true
			if err := network.Check(&s.Fabrics[i]); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || found < 3 {
		t.Fatalf("%d files, %v", found, err)
	}
	examples(t, known)
}

// examples ask for resources that the overlays define, and for as many as they have networks of that name.
func examples(t *testing.T, known map[string]bool) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			_, rest, ok := strings.Cut(line, settings.ResourcePrefix)
			if !ok {
				continue
			}
			name, _, _ := strings.Cut(rest, ":")
			if !known[settings.ResourcePrefix+name] {
				t.Errorf("%s: no overlay has a fabric %s", f, name)
			}
		}
	}
}

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
