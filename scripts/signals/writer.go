package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/agent/metrics"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/controller"
)

// Where the texts are.
const (
	fabricTypes   = "pkg/api/v1alpha1/fabric_status.go"
	fabricReasons = "internal/controller/reasons.go"
	nodeTypes     = "pkg/api/v1alpha1/fabricnode.go"
	nodeReasons   = "internal/agent/condition/types.go"
	nodeMetrics   = "internal/agent/metrics/node.go"
	alertRules    = "deployments/helm/fabric-cni/files/alerts.yaml"
	agentProgram  = "cmd/fabric-agent/main.go"
)

type writer struct {
	root string
	text strings.Builder
}

func (w *writer) f(format string, args ...any) { fmt.Fprintf(&w.text, format, args...) }

// row writes a row of a table.
func (w *writer) row(cells ...string) {
	for _, c := range cells {
		w.f("| %s ", c)
	}
	w.f("|\n")
}

// head writes the head of a table.
func (w *writer) head(cells ...string) {
	w.f("\n")
	w.row(cells...)
	w.f("%s|\n", strings.Repeat("|---", len(cells)))
}

func code(name string) string { return "`" + name + "`" }

func (w *writer) fabric() error {
	types, err := groupNamed(w.root, fabricTypes, "Types of the conditions of a Fabric.")
	if err != nil {
		return err
	}
	w.f("%s", fabricHead)
	w.head("condition", "True says that")
	for _, t := range types {
		w.row(code(t.value), cell(t.meaning))
	}
	w.f("\n`Ready` that is False has the reason of another condition, or one of its own.\n")
	w.head("condition", "reason", "meaning", "what to do")
	for _, t := range types {
		reasons, err := groupNamed(w.root, fabricReasons, "Reasons of the condition "+t.value+".")
		if err != nil {
			return err
		}
		for _, r := range reasons {
			w.row(code(t.value), code(r.value), cell(r.meaning), cell(r.cure))
		}
	}
	return nil
}

// ofNode are the reasons of the conditions of a FabricNode, by the name of the variable and by the name of the reason.
func (w *writer) ofNode() (map[string][]declared, error) {
	vars, err := groupNamed(w.root, nodeReasons, "The reasons.")
	if err != nil {
		return nil, err
	}
	out := map[string][]declared{}
	for _, d := range vars {
		name := d.name
		if name == "RefusedRDMAMode" {
			name = condition.RefusedRDMAMode.Name
		}
		out[name] = append(out[name], d)
	}
	return out, nil
}

func (w *writer) node() error {
	types, err := groupNamed(w.root, nodeTypes, "Types of the conditions of a FabricNode.")
	if err != nil {
		return err
	}
	w.f("%s", nodeHead)
	w.head("condition", "says that")
	for _, t := range types {
		w.row(code(t.value), cell(t.meaning))
	}
	reasons, err := w.ofNode()
	if err != nil {
		return err
	}
	w.head("condition", "reason", "meaning", "what to do")
	for _, t := range condition.Types {
		for i, r := range t.Reasons {
			if i > 0 && t.Reasons[i-1].Name == r.Name {
				continue
			}
			for _, d := range reasons[r.Name] {
				w.row(code(t.Name), code(r.Name), cell(d.meaning), cell(d.cure))
			}
			if len(reasons[r.Name]) == 0 {
				return fmt.Errorf("%s declares no %s", nodeReasons, r.Name)
			}
			delete(reasons, r.Name)
		}
	}
	if len(reasons) > 0 {
		return fmt.Errorf("%s: no condition has the reasons %v", nodeReasons, reasons)
	}
	return nil
}

func (w *writer) events() error {
	happened, err := groupNamed(w.root, nodeReasons, "The reasons of Events that say what has happened")
	if err != nil {
		return err
	}
	w.f("%s", eventsHead)
	w.head("object", "type", "reason", "when")
	var once, again []string
	for _, t := range condition.Types {
		for _, r := range t.Reasons {
			switch name := code(r.Name); {
			case !r.Event || slices.Contains(again, name):
			case r.Once:
				once = append(once, name)
			default:
				again = append(again, name)
			}
		}
	}
	w.row("Node", "Warning", strings.Join(again, ", "), "it begins, or has another message; each is a reason of a "+
		"condition of the FabricNode")
	w.row("Node", "Warning", strings.Join(once, ", "), "it begins, for a device; each is a reason of a "+
		"condition of the FabricNode")
	for _, d := range happened {
		kind := "Warning"
		if d.value == condition.DeviceRecovered {
			kind = "Normal"
		}
		w.row("Node", kind, code(d.value), cell(d.meaning))
	}
	w.row("Fabric", "Warning", "the reasons of its conditions but `Degraded`",
		"a condition becomes False, or has a message that people should know")
	return nil
}

var aMetric = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("[^"]*"), .*variableLabels: \{([^}]*)\}`)

func (w *writer) metrics() error {
	m, err := metrics.New(prometheus.NewRegistry(), survey.Node{}, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	source, err := os.ReadFile(filepath.Join(w.root, nodeMetrics))
	if err != nil {
		return err
	}
	w.f("%s", metricsHead)
	for _, of := range []struct {
		title string
		list  []prometheus.Collector
	}{{"Of an agent", m.Collectors()}, {"Of the controller", []prometheus.Collector{controller.Exported()}}} {
		w.f("\n### %s\n", of.title)
		w.head("metric", "type", "labels", "meaning")
		var rows [][]string
		for _, c := range of.list {
			found := make(chan *prometheus.Desc, 64)
			c.Describe(found)
			close(found)
			for d := range found {
				parts := aMetric.FindStringSubmatch(d.String())
				if parts == nil {
					return fmt.Errorf("the metric %s can't be read", d)
				}
				help, err := strconv.Unquote(parts[2])
				if err != nil {
					return fmt.Errorf("the metric %s: %w", parts[1], err)
				}
				labels := ""
				if parts[3] != "" {
					labels = code(strings.ReplaceAll(parts[3], ",", "`, `"))
				}
				rows = append(rows, []string{code(parts[1]), kindOf(c, parts[1], string(source)), labels, cell(help)})
			}
		}
		slices.SortFunc(rows, slices.Compare)
		for _, r := range rows {
			w.row(r...)
		}
	}
	return nil
}

// kindOf is the type of a metric. What is read at a scrape has it in the source, or by its name.
func kindOf(c prometheus.Collector, name, source string) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	_, entry, _ := strings.Cut(source, `description("`+name+`"`)
	entry, _, _ = strings.Cut(entry, "description(")
	if strings.Contains(entry, "prometheus.CounterValue") || strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// rules are the alerts of the chart.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, For  string
			Labels      struct{ Severity string }
			Annotations struct {
				Summary, Description string
				Runbook              string `json:"runbook_url"`
			}
		}
	}
}

var (
	aLabel = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
	aValue = regexp.MustCompile(`\{\{ \$value[^}]* \}\}`)
)

func (w *writer) alerts() error {
	b, err := os.ReadFile(filepath.Join(w.root, alertRules))
	if err != nil {
		return err
	}
	r := &rules{}
	if err := yaml.Unmarshal(b, r); err != nil {
		return fmt.Errorf("%s: %w", alertRules, err)
	}
	plain := func(text string) string {
		text = aLabel.ReplaceAllStringFunc(text, func(l string) string {
			return strings.ToUpper(aLabel.FindStringSubmatch(l)[1])
		})
		return cell(aValue.ReplaceAllString(text, "N"))
	}
	w.f("%s", alertsHead)
	w.head("alert", "severity", "after", "says", "what follows")
	for _, g := range r.Groups {
		for _, a := range g.Rules {
			_, anchor, ok := strings.Cut(a.Annotations.Runbook, "/health.html#")
			if !ok {
				return fmt.Errorf("%s: %s has no section of docs/health.md", alertRules, a.Alert)
			}
			w.row("["+a.Alert+"](../health.md#"+anchor+")", a.Labels.Severity, a.For, plain(a.Annotations.Summary),
				plain(a.Annotations.Description))
		}
	}
	return nil
}

func (w *writer) codes() error {
	list, err := groupNamed(w.root, agentProgram, "Exit codes.")
	if err != nil {
		return err
	}
	w.f("%s", codesHead)
	w.head("exit code of `fabric-agent`", "meaning")
	w.row("0", "done")
	for _, c := range list {
		w.row(c.value, cell(c.meaning))
	}
	return nil
}
