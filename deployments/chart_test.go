package deployments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
)

const chart = "helm/fabric-cni/"

// The chart refuses a Fabric with an unknown field: the API server would only warn Helm of it.
func TestChartSchema(t *testing.T) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct{ Properties map[string]any }
				}
			}
		}
	}
	read(t, chart+"crds/fabric.dev_fabrics.yaml", &crd)
	var schema map[string]any
	read(t, chart+"values.schema.json", &schema)
	spec, _ := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].(map[string]any)
	err := unstructured.SetNestedField(schema, jsonSchema(t, spec),
		"properties", "fabrics", "items", "properties", "spec")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(schema); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, chart+"values.schema.json", out.String())
}

func compact(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// jsonSchema makes a JSON schema of the schema of a CRD, with its rules as far as that has words for them. What it
// leaves out, the API server checks.
func jsonSchema(t *testing.T, in map[string]any) map[string]any {
	t.Helper()
	out := map[string]any{}
	if in["x-kubernetes-list-type"] == "set" {
		out["uniqueItems"] = true
	}
	defaults := map[string]any{}
	properties, _ := in["properties"].(map[string]any)
	for name, p := range properties {
		if s, _ := p.(map[string]any); s["default"] != nil {
			defaults[name] = s["default"]
		}
	}
	list, _ := in["x-kubernetes-validations"].([]any)
	var all []map[string]any
	for _, v := range list {
		rule, _ := v.(map[string]any)["rule"].(string)
		all = append(all, flat(ruleSchema(t, rule, defaults))...)
	}
	for _, s := range all { // what is not in allOf has shorter errors
		taken := func(key string) bool { return out[key] != nil || in[key] != nil }
		if slices.ContainsFunc(slices.Collect(maps.Keys(s)), taken) {
			list, _ := out["allOf"].([]any)
			out["allOf"] = append(list, s)
			continue
		}
		maps.Copy(out, s)
	}
	for key, v := range in {
		switch m, _ := v.(map[string]any); {
		case key == "properties":
			properties := map[string]any{}
			for name, p := range m {
				s, _ := p.(map[string]any)
				properties[name] = jsonSchema(t, s)
			}
			out[key] = properties
			if in["x-kubernetes-preserve-unknown-fields"] != true {
				out["additionalProperties"] = false
			}
		case key == "items" || key == "additionalProperties" && m != nil:
			out[key] = jsonSchema(t, m)
		case !strings.HasPrefix(key, "x-kubernetes-") && key != "format" && key != "default" && key != "description":
			out[key] = v
		}
	}
	return out
}

// flat takes allOf apart.
func flat(s map[string]any) (out []map[string]any) {
	list, ok := s["allOf"].([]any)
	if !ok && s != nil {
		return []map[string]any{s}
	}
	for _, o := range list {
		m, _ := o.(map[string]any)
		out = append(out, flat(m)...)
	}
	return out
}

func read(t *testing.T, file string, to any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = k8syaml.Unmarshal(b, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// The chart's README has the values with their defaults and comments.
func TestChartREADME(t *testing.T) {
	b, err := os.ReadFile(chart + "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(b, &values); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	rows(t, &table, "", values.Content[0])
	file := chart + "README.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- values: written by go test ./deployments -update -->\n", "<!-- end of values -->\n"
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the values", file)
	}
	golden.Check(t, file, head+begin+table.String()+end+tail)
}

// whole are values that are one row although they are objects.
var whole = []string{"nodeSelector", "tolerations", "resources", "affinity"}

func rows(t *testing.T, out *strings.Builder, prefix string, n *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := prefix + key.Value
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && !slices.Contains(whole, key.Value) {
			rows(t, out, name+".", value)
			continue
		}
		var v any
		if err := value.Decode(&v); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		comment := strings.TrimSpace(key.HeadComment + " " + key.LineComment + value.LineComment)
		comment = strings.Join(strings.Fields(strings.ReplaceAll(comment, "#", "")), " ")
		fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", name, text, comment)
	}
}

// Artifact Hub shows the kinds that the chart brings.
func TestChartAnnotations(t *testing.T) {
	var meta struct{ Annotations map[string]string }
	read(t, chart+"Chart.yaml", &meta)
	var crds []struct{ Kind, Name, Version string }
	if err := k8syaml.Unmarshal([]byte(meta.Annotations["artifacthub.io/crds"]), &crds); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	files, err := filepath.Glob(chart + "crds/fabric.dev_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names    struct{ Kind string }
				Versions []struct{ Name string }
			}
		}
		read(t, file, &crd)
		want[crd.Metadata.Name] = crd.Spec.Names.Kind + " " + crd.Spec.Versions[0].Name
	}
	got := map[string]string{}
	for _, c := range crds {
		got[c.Name] = c.Kind + " " + c.Version
	}
	if !maps.Equal(got, want) {
		t.Errorf("Chart.yaml has %v, the CRDs are %v", got, want)
	}
	for _, key := range []string{"artifacthub.io/crdsExamples", "artifacthub.io/links"} {
		var list []map[string]any
		if err := k8syaml.Unmarshal([]byte(meta.Annotations[key]), &list); err != nil || len(list) == 0 {
			t.Errorf("%s: %v, %v", key, list, err)
		}
	}
}
