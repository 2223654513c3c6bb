package deployments_test

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/controller"
)

const alerts = "helm/fabric-cni/files/alerts.yaml"

// exported are the metrics of the agent and of the controller.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, d := range descriptions(t) {
		out[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d)[1]] = true
	}
	return out
}

// descriptions are those metrics, as the client of Prometheus prints them.
func descriptions(t *testing.T) (out []string) {
	t.Helper()
	m, err := metrics.New(prometheus.NewRegistry(), survey.Node{}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan *prometheus.Desc, 64)
	for _, c := range append(m.Collectors(), controller.Exported()) {
		c.Describe(found)
	}
	close(found)
	for d := range found {
		out = append(out, d.String())
	}
	return out
}

// What Prometheus, its operator and Kubernetes give to every series that they scrape: the pod, the namespace and the
// node of the agent. A label of ours with such a name would come out as exported_pod.
var targetLabels = []string{
	"pod", "namespace", "container", "node", "instance", "job", "service", "endpoint", "cluster", "prometheus",
	"prometheus_replica", "app", "image", "id", "uid", "host", "hostname",
}

// No label of ours has the name of one that Prometheus adds.
func TestLabelsDoNotClash(t *testing.T) {
	labels := regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	seen := 0
	for _, d := range descriptions(t) {
		for _, l := range strings.Split(labels.FindStringSubmatch(d)[1], ",") {
			if seen++; slices.Contains(targetLabels, l) {
				t.Errorf("label %s clashes with Prometheus's own: %s", l, d)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d labels", seen)
	}
}

// notMetrics are the words of PromQL that rules use, and metrics of others: Prometheus's own, and client-go's.
var notMetrics = []string{"max", "max_over_time", "by", "or", "vector", "up", "leader_election_master_status"}

// unknown are the words of an expression that are neither metrics of ours nor anything else that is known.
func unknown(expr string, known map[string]bool) (out []string) {
	expr = regexp.MustCompile(`by \([^)]*\)`).ReplaceAllString(expr, "")
	expr = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]`).ReplaceAllString(expr, "")
	for _, word := range regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`).FindAllString(expr, -1) {
		if !known[word] && !slices.Contains(notMetrics, word) {
			out = append(out, word)
		}
	}
	return out
}

// Each alert asks for metrics that there are, says what is wrong, and links to the section of docs/health.md with its
// name.
func TestAlerts(t *testing.T) {
	b, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict(b, &file); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/health.md")
	if err != nil {
		t.Fatal(err)
	}
	known := exported(t)
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || r.Alert == "" || strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") {
				t.Errorf("%q: %s", r.Alert, r.Expr)
			}
			seen[r.Alert] = true
			if got := unknown(r.Expr, known); len(got) > 0 {
				t.Errorf("%s: nobody exports %q", r.Alert, got)
			}
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			for _, a := range []string{"summary", "description"} {
				if r.Annotations[a] == "" {
					t.Errorf("%s: no %s", r.Alert, a)
				}
			}
			url, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
			heading := regexp.MustCompile(`(?mi)^#+ ` + regexp.QuoteMeta(anchor) + `$`)
			const runbook = "https://fabric-cni.github.io/fabric-cni/main/health.html"
			if url != runbook || anchor == "" || !heading.Match(page) {
				t.Errorf("%s: %q is no section of docs/health.md", r.Alert, r.Annotations["runbook_url"])
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no alert")
	}
	const misspelt = `max by (a) (fabric_portstate{b="c"}[5m]) > 1`
	if got := unknown(misspelt, known); !slices.Equal(got, []string{"fabric_portstate"}) {
		t.Errorf("%q", got)
	}
}
