package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
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

func TestManifests(t *testing.T) {
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: fabric-system}\n")
	t.Cleanup(func() { k(t, "delete", "namespace", "fabric-system", "--wait") })
	dirs, err := filepath.Glob(filepath.Join(current.repo, "deployments/overlays/*"))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	for _, dir := range append(dirs, filepath.Join(current.repo, "deployments/base")) {
		dryRun(t, dir, k(t, "kustomize", dir))
	}
	var files []string
	for _, pattern := range []string{"deployments/examples/*.yaml", "conf/*.yaml"} {
		more, err := filepath.Glob(filepath.Join(current.repo, pattern))
		if err != nil || len(more) == 0 {
			t.Fatal(pattern, more, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(b), "\n---\n") {
			var o map[string]any
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if v, ok := o["apiVersion"].(string); ok &&
				(strings.HasPrefix(v, "kubeflow.org/") || strings.HasPrefix(v, "batch.volcano.sh/")) {
				templates(t, file, o)
				continue
			}
			dryRun(t, file, doc)
		}
	}
}

// The chart with its defaults and with everything set; values that make no sense are refused by its schema.
func TestChart(t *testing.T) {
	chart := filepath.Join(current.repo, "deployments/helm/fabric-cni")
	helm := func(args ...string) string {
		t.Helper()
		out, err := output("helm", args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	helm("lint", "--strict", chart)
	dryRun(t, "chart", helm("template", "fabric", chart, "--kube-version", "1.34"))
	full := helm(
		"template",
		"fabric",
		chart,
		"--kube-version",
		"1.34",
		"--set",
		"seLinuxType=spc_t,cniBinDir=/var/lib/cni/bin,port=9000,imagePullSecrets[0].name=s,"+
			"metrics.listen=pod,metrics.secure=true,metrics.certSecret=tls",
		"--set-json",
		`fabrics=[{"name":"ib","match":{"rateGb":200},"network":{"mtu":4092,"ipam":{"type":"whereabouts",`+
			`"range":"192.168.10.0/24"}}}]`,
	)
	dryRun(t, "chart with values", full)
	for _, want := range []string{"--bin-dir=/var/lib/cni/bin", "type: spc_t", "name: ib\n", "mtu: 4092",
		"containerPort: 9000", "--metrics-address=[$(POD_IP)]:9000,127.0.0.1:9000", "--metrics-cert-dir=",
		"secretName: tls", "name: fabric-metrics-reader", "name: system:auth-delegator"} {
		if !strings.Contains(full, want) {
			t.Errorf("%q is missing in\n%s", want, full)
		}
	}
	for _, bad := range []string{"imagee=x", "port=0", "cniBinDir=opt", "metrics.listen=all", `fabrics[0].name=IB`} {
		if out, err := output("helm", "template", chart, "--set", bad); err == nil ||
			!strings.Contains(err.Error(), "values don't meet the specifications") {
			t.Errorf("%s: %v\n%s", bad, err, out)
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
