package controlplane_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/podlabel"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// The chart makes the same policies of its values as fabricctl does of Fabrics.
func TestLabelChart(t *testing.T) {
	for _, tt := range []struct {
		version string
		values  string
		options podlabel.Options
		specs   [][2]string
	}{
		{"v1", `{enabled: true, all: {b: 4}}`, podlabel.Options{All: map[string]int{"b": 4}}, [][2]string{{"b", `{}`}}},
		{"v1beta1", `{enabled: true}`, podlabel.Options{}, [][2]string{
			{"b", `{attachment: IPoIBChild, namespaces: {names: [x, xx]}}`},
			{"a", `{namespaces: {names: [z], selector: {matchLabels: {"a/b": c, x: ""}, matchExpressions: [` +
				`{key: k, operator: In, values: [v, w]}, {key: l, operator: NotIn, values: [v]}, ` +
				`{key: m, operator: Exists}, {key: o, operator: DoesNotExist}]}}}`},
		}},
		{"v1", `{enabled: true, rails: [b]}`, podlabel.Options{Rails: []string{"b"}}, [][2]string{
			{"a", `{namespaces: {selector: {}}}`}, {"b", `{}`},
		}},
		{"v1", `{enabled: true, all: {store: 2}}`, podlabel.Options{All: map[string]int{"store": 2}}, [][2]string{
			{"z", `{match: {rail: 0}}`}, {"v", `{match: {rail: 2}}`}, {"x", `{match: {rail: 10}}`}, {"store", `{}`},
		}},
		{"v1", `{enabled: true}`, podlabel.Options{}, [][2]string{
			{"b", `{match: {rail: 0}}`}, {"a", `{match: {rail: 0}}`},
		}},
	} {
		values := "label: " + tt.values + "\nfabrics:\n"
		for _, s := range tt.specs {
			values += "- {name: " + s[0] + ", spec: " + testfabrics.Spec(s[0], s[1]) + "}\n"
		}
		got := renderLabel(t, values, "--api-versions",
			"admissionregistration.k8s.io/"+tt.version+"/MutatingAdmissionPolicy")
		tt.options.Version = tt.version
		want := objects(t, string(policyOf(t, tt.options, tt.specs...)))
		if diff := cmp.Diff(want, got); diff != "" || len(got) != 4 {
			t.Errorf("%s: fabricctl -, chart +:\n%s", values, diff)
		}
	}
	if got := renderLabel(t, "label: {enabled: true}\nfabrics: [{name: a, spec: {match: {rail: 0}}}]\n"); len(got) > 0 {
		t.Errorf("without the API: %v", got)
	}
}

// renderLabel is the objects that the chart's template of the policies makes.
func renderLabel(t *testing.T, values string, args ...string) map[string]map[string]any {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	all := objects(t, render(t, append([]string{"-f", file}, args...)...))
	maps.DeleteFunc(all, func(key string, _ map[string]any) bool { return !strings.HasSuffix(key, "/"+podlabel.Name) })
	return all
}
