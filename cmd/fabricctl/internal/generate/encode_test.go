package generate

import (
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fabric-cni/fabric-cni/internal/node"
)

// Values are values, whatever is in them: as many documents, with the same fields, and a parser reads what was given.
func TestValuesAreEncoded(t *testing.T) {
	nodes, wanted := open(t, "roce"), map[string][]map[string]any{}
	for _, kind := range Kinds {
		wanted[kind] = parsed(t, kind, nodes, options())
	}
	for _, text := range []string{
		"a\nkind: ClusterRoleBinding\n---\nkind: Secret", `a", "b": "c`, "a: b # c", "{x: y}", "yes", "1", "*a", "&a b",
		"!!int 3", "slot0tols", "{{.Name}}", "- a", "'", `\`, "a\r\nb", "a\u2028kind: x", "\x1b[2J", "|", " a ",
	} {
		for _, kind := range Kinds {
			o, want := options(), wanted[kind]
			o.Namespace, o.Name, o.Image, o.Prefix = text, text, text, text
			got := parsed(t, kind, nodes, o)
			if len(got) != len(want) {
				t.Fatalf("%q: %s has %d documents, want %d", text, kind, len(got), len(want))
			}
			for i := range got {
				meta, ok := got[i]["metadata"].(map[string]any)
				same := got[i]["kind"] == want[i]["kind"] && len(got[i]) == len(want[i])
				if spec, _ := got[i]["spec"].(map[string]any); kind == "fabric" { // it has no namespace, and names some
					names, _, err := unstructured.NestedStringSlice(spec, "namespaces", "names")
					if err != nil || len(names) == 0 {
						t.Fatalf("namespaces of %v: %v", spec, err)
					}
					meta["namespace"] = names[0]
				}
				if !ok || meta["namespace"] != text || !same {
					t.Errorf("%q: %s: %v", text, kind, got[i])
				}
			}
		}
	}
}

func parsed(t *testing.T, kind string, nodes []*node.Node, o Options) (docs []map[string]any) {
	t.Helper()
	text, err := Generate(kind, nodes, o)
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	for d := yamlv3.NewDecoder(strings.NewReader(text)); ; {
		var v map[string]any
		if d.Decode(&v) != nil {
			break
		}
		docs = append(docs, v)
	}
	if len(docs) == 0 {
		t.Errorf("%s: %s", kind, text)
	}
	return docs
}
