package cluster

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// dryRun has the API server judge objects as if it stored them.
func dryRun(t *testing.T, what, objects string) {
	t.Helper()
	cmd := exec.Command("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	cmd.Stdin = strings.NewReader(objects)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", what, err, out)
	}
}

// foreign are the groups of kinds that this cluster does not have.
var foreign = []string{"kubeflow.org", "batch.volcano.sh", "ray.io"}

// The cluster accepts the examples and the networks of conf. integration/controlplane judges what is deployed.
func TestExamples(t *testing.T) {
	var files []string
	for _, pattern := range []string{"deployments/examples/*.yaml", "conf/*.yaml"} {
		more, err := filepath.Glob(filepath.Join(current.repo, pattern))
		if err != nil || len(more) == 0 {
			t.Fatal(pattern, more, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		for _, doc := range strings.Split(read(t, file), "\n---\n") {
			var o map[string]any
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			version, _ := o["apiVersion"].(string)
			if group, _, _ := strings.Cut(version, "/"); slices.Contains(foreign, group) {
				templates(t, file, o)
				continue
			}
			dryRun(t, file, doc)
		}
	}
}

// templates judges the pods in an object whose kind this cluster does not have.
func templates(t *testing.T, file string, o map[string]any) {
	t.Helper()
	for key, v := range o {
		if list, ok := v.([]any); ok {
			for _, e := range list {
				if m, ok := e.(map[string]any); ok {
					templates(t, file, m)
				}
			}
		}
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if key != "template" {
			templates(t, file, m)
			continue
		}
		metadata, ok := m["metadata"].(map[string]any)
		if !ok {
			metadata = map[string]any{}
		}
		metadata["name"] = "example"
		m["apiVersion"], m["kind"], m["metadata"] = "v1", "Pod", metadata
		b, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		dryRun(t, file, string(b))
	}
}
