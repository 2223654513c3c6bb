package controlplane_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// query is one of the dashboard.
type query struct{ Expr, LegendFormat string }

// exported are the labels of each metric that the agent and the controller have.
type exported map[string]map[string]bool

func (e exported) add(name, label string) {
	if e[name] == nil {
		e[name] = map[string]bool{"instance": true, "le": true} // of Prometheus, and of histograms
	}
	e[name][label] = true
}

var (
	metricName  = regexp.MustCompile(`\b(fabric|controller_runtime|workqueue|rest_client|leader_election|process)_[a-z_]+`)
	description = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	selector    = regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	matcher     = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"`)
	grouping    = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	legend      = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
)

func family(name string) string { return strings.TrimSuffix(name, "_bucket") }

// Every metric of the dashboard is one that the agent or a running controller exports, with the labels that are asked
// for.
func TestDashboard(t *testing.T) {
	c := whole(t)
	stop := control(t)
	defer func() { stop() }()
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dashboard"}})
	addNode(t, c, "dashboard", "dashboard")
	defer removeNodes(t, c)
	apply(t, testfabrics.Object("dashboard", `{}`))
	queries := dashboard(t)

	known := exported{}
	m, err := metrics.New(prometheus.NewRegistry(), survey.Node{}, 0, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc, 64)
	for _, c := range m.Collectors() {
		c.Describe(all)
	}
	close(all)
	for d := range all {
		part := description.FindStringSubmatch(d.String())
		for label := range strings.SplitSeq(part[2], ",") {
			known.add(part[1], label)
		}
	}
	until(t, func() string {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			return err.Error()
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				known.add(f.GetName(), "")
				for _, l := range m.GetLabel() {
					known.add(f.GetName(), l.GetName())
				}
			}
		}
		for _, q := range queries {
			for _, name := range metricName.FindAllString(q.Expr, -1) {
				if known[family(name)] == nil {
					return "nobody exports " + name
				}
			}
		}
		return ""
	})
	for _, q := range queries {
		q.labels(t, known)
	}
}

// labels checks those of selectors, of groups and of the legend.
func (q query) labels(t *testing.T, known exported) {
	t.Helper()
	some := map[string]bool{}
	for _, name := range metricName.FindAllString(q.Expr, -1) {
		for label := range known[family(name)] {
			some[label] = true
		}
	}
	for _, s := range selector.FindAllStringSubmatch(q.Expr, -1) {
		for _, l := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !known[family(s[1])][l[1]] {
				t.Errorf("%s: %s has no label %s", q.Expr, s[1], l[1])
			}
		}
	}
	var names []string
	for _, g := range grouping.FindAllStringSubmatch(q.Expr, -1) {
		names = append(names, strings.Split(g[1], ", ")...)
	}
	for _, l := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
		names = append(names, l[1])
	}
	for _, name := range names {
		if !some[name] {
			t.Errorf("%s, legend %q: no metric has the label %s", q.Expr, q.LegendFormat, name)
		}
	}
}

// dashboard reads the queries, those of the variables as well.
func dashboard(t *testing.T) (out []query) {
	t.Helper()
	b, err := os.ReadFile(manifests + "helm/fabric-cni/files/fabric-cni.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct{ Query any }
		}
		Panels []struct{ Targets []query }
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	for _, v := range d.Templating.List {
		of, ok := v.Query.(map[string]any) // that of the data source is a word
		if !ok {
			continue
		}
		part := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(fmt.Sprint(of["query"]))
		if part == nil {
			t.Fatalf("the variable %v", of)
		}
		out = append(out, query{Expr: part[1], LegendFormat: "{{" + part[2] + "}}"})
	}
	for _, p := range d.Panels {
		out = append(out, p.Targets...)
	}
	if len(out) < 20 {
		t.Fatalf("%d queries", len(out))
	}
	return out
}
