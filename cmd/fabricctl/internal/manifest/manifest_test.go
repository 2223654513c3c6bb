package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

// A file of a tenant: whatever is in it, it is read within bounds or refused with the place.
func TestObjects(t *testing.T) {
	const pod = "kind: Pod\napiVersion: v1\n"
	for _, c := range []struct{ name, text, want string }{
		{"YAML", pod + "---\n# nothing\n---\n" + pod, "2 objects"},
		{"a list of YAML", "kind: List\nitems: [{kind: Pod}, {kind: Pod}, {kind: Service}]\n", "3 objects"},
		{"JSON", `{"kind":"Pod"}` + "\n" + `{"kind":"PodList","items":[{"kind":"Pod"},{"kind":"Pod"}]}`, "3 objects"},
		{"YAML that begins as JSON", "{kind: Pod}", "1 objects"},
		{"items of an object that is no list", `{"kind":"Order","items":[{},{}]}`, "1 objects"},
		{"merged keys", "x: &x {replicas: 1}\ny: {<<: *x, replicas: 2}\n", "1 objects"},
		{"empty", " \n", "it is empty"},
		{"a text", "hello", "document 1: no object of Kubernetes: json: cannot unmarshal string"},
		{"a template", "{{ if .Values }}\na: b\n", "document 1: yaml: .*: helm template writes what it stands for"},
		{"broken", pod + "---\na: b: c\n", "document 2: yaml: "},
		{"depth", strings.Repeat("[", 1<<20), "document 1: yaml: exceeded max depth"},
		{"depth of JSON", `{"a":` + strings.Repeat("[", 1<<20), "document 1: yaml: exceeded max depth"},
		{"an alias of itself", "a: &a [*a]\n", "document 1: its aliases make it larger than 32 MiB"},
		{"a large value many times", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 3000) +
			"]\n",
			"document 1: its aliases make it larger than 32 MiB"},
		{"a few lines",
			"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n" +
				"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n" +
				"g: [*f,*f,*f,*f,*f,*f,*f,*f]\n", "document 1: its aliases make it larger than 32 MiB"},
		{"a large document", "a: " + strings.Repeat("x", 5<<20), "document 1: it has more than 4 MiB: as JSON it may"},
		{"many documents", strings.Repeat("a: b\n---\n", manifest.MaxDocuments+1), "it has more than 10000 documents"},
		{"many objects", `{"kind":"List","items":[` + strings.Repeat("{},", manifest.MaxObjects) + `{}]}`,
			"there are more than 100000 objects"},
	} {
		out, err := manifest.Objects(strings.NewReader(c.text))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%d objects", len(out))
		}
		want, rest, _ := strings.Cut(c.want, ".*")
		if !strings.HasPrefix(got, want) || !strings.Contains(got, rest) {
			t.Errorf("%s: %.200s, want %s", c.name, got, c.want)
		}
	}
}
