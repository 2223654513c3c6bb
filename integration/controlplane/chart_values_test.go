package controlplane_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/deployments/helm"
	"github.com/fabric-cni/fabric-cni/internal/admit"
	"github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// Values that are empty, as people write them to be rid of a default, and each value that is a choice.
func TestChartEmptyValues(t *testing.T) {
	empty := "tolerations=[],nodeSelector={},affinity={},resources={},podAnnotations={},podLabels={}," +
		"imagePullSecrets=[],fabrics=[],metrics.labels={},label.rails=[],label.all={},priorityClassName=\"\"," +
		"controller.tolerations=[],controller.nodeSelector={},controller.affinity={},controller.resources={}," +
		"controller.podAnnotations={},controller.podLabels={}"
	accepted(t, renderIn(t, "default", "--is-upgrade", "--set-json", empty))
	null := "tolerations=null,nodeSelector=null,affinity=null,podAnnotations=null,podLabels=null," +
		"imagePullSecrets=null,fabrics=null,controller.tolerations=null,controller.nodeSelector=null," +
		"controller.affinity=null"
	text := renderIn(t, "default", "--is-upgrade", "--set-json", null)
	accepted(t, text)
	if strings.Contains(text, "operator: Exists") {
		t.Errorf("a toleration that was taken away:\n%s", text)
	}

	text = renderIn(t, "default", "--set-json", `grace="1m30s",maxUnavailable=2,podLabels={"team":"hpc"},`+
		`podAnnotations={"example.com/a":"b"},controller.podAnnotations={"example.com/c":"d"},`+
		`affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[`+
		`{"matchExpressions":[{"key":"rdma","operator":"Exists"}]}]}}},`+
		`controller.affinity={"nodeAffinity":{}},controller.podLabels={"team":"net"},metrics.listen="pod"`)
	accepted(t, text)
	for _, want := range []string{
		"--grace=1m30s", "maxUnavailable: 2", "team: hpc", "example.com/a: b", "example.com/c: d", "key: rdma",
		"team: net", "prometheus.io/scrape: \"true\"",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "podAntiAffinity") {
		t.Errorf("controller.affinity is given:\n%s", text)
	}
}

func TestChartBadValues(t *testing.T) {
	const name = `"app.kubernetes.io/name":"x"`
	text, err := try(t, "", "helm", "template", "fabric", chart, "--kube-version", "1.34", "--set-json",
		`grace="1m30",maxUnavailable="x",podLabels={`+name+`},controller={"podLabels":{`+name+`}},`+
			`imagePullSecrets=["a"]`)
	for _, want := range []string{
		"at '/grace'", "at '/maxUnavailable'", "at '/podLabels/", "at '/controller/podLabels/",
		"at '/imagePullSecrets/0'",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in\n%s", err, want, text)
		}
	}
	for bad, want := range map[string]string{
		`grace="-1m"`: "at '/grace'",
		`fabrics=[{"name":"a","spec":{"match":{"discovered":"ib"}}},{"name":"a","spec":{"match":{"discovered":"ib"}}}]`: `fabrics[1]: "a" is the name of fabrics[0] already`,
	} {
		_, err := try(t, "", "helm", "template", "fabric", chart, "--kube-version", "1.34", "--set-json", bad)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
	}
}

// byServer are mistakes that need arithmetic with addresses, or a look at several items, which a schema has no words
// for: the API server finds them, in an install as well.
var byServer = []string{
	"range with host bits", "part larger than the range", "part without addresses", "two ranges of one family",
	"exclusion elsewhere", "static range elsewhere", "static range of another length", "node with two static ranges",
}

// Values are judged as the objects are: a Fabric that the API server refuses is refused in values too, by their schema
// before anything is sent, or by the API server.
func TestChartWrongFabrics(t *testing.T) {
	type m = map[string]any
	var list, left []any
	var names []string
	for _, w := range fabrics.AllWrong {
		var o m
		if err := yaml.Unmarshal([]byte(w.Object()), &o); err != nil {
			t.Fatal(err)
		}
		v := m{"name": fmt.Sprintf("wrong-%d", len(list)), "spec": o["spec"]}
		if list = append(list, v); slices.Contains(byServer, w.Name) {
			left = append(left, v)
		}
		names = append(names, w.Name)
	}
	values := func(list []any) string {
		t.Helper()
		b, err := json.Marshal(m{"fabrics": list})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "values.json")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	_, err := try(t, "", "helm", "template", "fabric", chart, "--kube-version", "1.34", "-f", values(list))
	for i, name := range names {
		found := strings.Contains(fmt.Sprint(err), fmt.Sprintf("at '/fabrics/%d/spec", i))
		if found == slices.Contains(byServer, name) {
			t.Errorf("%s: refused by the schema of the values: %v", name, found)
		}
	}
	text := renderIn(t, "default", "--show-only", "templates/fabrics.yaml", "-f", values(left))
	_, err = try(t, text, "kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	if n := strings.Count(fmt.Sprint(err), "is invalid: "); n != len(byServer) {
		t.Errorf("the API server refuses %d of %d: %v", n, len(byServer), err)
	}
}

// valueOf is a value before the words of a rule.
var valueOf = regexp.MustCompile(`^("[^"]*"|[0-9]+): `)

// What says of a Fabric what the API server would say, in fabricctl validate, says it of each of them.
func TestAdmit(t *testing.T) {
	judge, err := admit.New(helm.Fabrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range fabrics.AllWrong {
		got, err := judge.Judge(w.Object())
		said := fmt.Sprint(server.Create(t.Context(), []byte(w.Object())))
		if err != nil || got == "" {
			t.Errorf("%s: nothing is wrong (%v); the API server: %s", w.Name, err, said)
		}
		for line := range strings.SplitSeq(got, "\n") {
			// Up to Kubernetes 1.34 a rule's error has the type in the place of the value.
			field, message, _ := strings.Cut(line, ": Invalid value: ")
			message = valueOf.ReplaceAllString(message, "")
			if !strings.Contains(said, field) || !strings.Contains(said, message) {
				t.Errorf("%s: %q; the API server: %s", w.Name, line, said)
			}
		}
	}
}
