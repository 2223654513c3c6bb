package controlplane_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
)

const (
	manifests = "../../deployments/"
	chart     = manifests + "helm/fabric-cni"
)

// kubeconfig is a file with the way to the API server, of the administrator or of whom the token is.
func kubeconfig(t *testing.T, token string) string {
	t.Helper()
	return kubeconfigOf(t, server.Config.Host, token)
}

// kubeconfigOf is the same for any API server.
func kubeconfigOf(t *testing.T, host, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":%q}}]}`, host, token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// try runs kubectl or helm as the administrator, and returns what it prints; with the error, what it complains of.
func try(t *testing.T, stdin, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), server.Program(name), args...)
	home := t.TempDir() // neither reads what this machine's user has configured
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig(t, server.Config.BearerToken), "HOME="+home)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t, "", name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// render is what the chart makes of values, with the hooks.
func render(t *testing.T, args ...string) string {
	t.Helper()
	return renderIn(t, "fabric-system", args...)
}

func renderIn(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	return do(t, "helm", append([]string{"template", "fabric", chart, "-n", namespace, "--kube-version", "1.34"},
		args...)...)
}

// TestBase has the base rendered from the chart, a file for each template. Only kustomization.yaml and namespace.yaml
// are written by hand.
func TestBase(t *testing.T) {
	const header = "# Rendered from the Helm chart by go test ./integration/controlplane -run '^TestBase$' -update.\n"
	files := map[string]string{}
	text := render(t, "--no-hooks", "--set", "image.repository=fabric-agent,image.tag=latest")
	for _, doc := range strings.Split("\n"+text, "\n---\n")[1:] {
		line, doc, ok := strings.Cut(doc, "\n")
		source, ok2 := strings.CutPrefix(line, "# Source: fabric-cni/templates/")
		if !ok || !ok2 {
			t.Fatalf("not an object of a template: %q", line)
		}
		if source == "agent.yaml" { // what the agent may do is applied alone, too
			source = "rbac.yaml"
			if strings.Contains(doc, "\nkind: DaemonSet\n") {
				source = "daemonset.yaml"
			}
		}
		between := "---\n"
		if files[source] == "" {
			between = header
		}
		files[source] += between + trailing.ReplaceAllString(strings.TrimSpace(doc), "") + "\n"
	}
	for name, text := range files {
		golden.Check(t, manifests+"base/"+name, text)
	}
	committed, err := filepath.Glob(manifests + "base/*.yaml")
	if err != nil || len(committed) != len(files)+2 {
		t.Errorf("the base has files that the chart does not make: %q, %v", committed, err)
	}
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// overlays are the kustomizations, and the values that make the chart do the same.
var overlays = map[string][]string{
	"base":               nil,
	"overlays/exclusive": {"-f", "FABRICS"},
	"overlays/shared":    {"-f", "FABRICS"},
	"overlays/dra":       {"-f", "FABRICS"},
	"components/k3s":     {"--set", "cniBinDir=/var/lib/rancher/k3s/data/cni"},
	"components/rke2": {"--set-json", `tolerations=[{"key":"CriticalAddonsOnly","operator":"Exists"},` +
		`{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"},` +
		`{"key":"node-role.kubernetes.io/etcd","operator":"Exists"}]`},
	"components/openshift": {"--set",
		"cniBinDir=/var/lib/cni/bin,seLinuxType=spc_t,openshift=true,crds.upgrade=false"},
	"components/metrics":     {"--set", "metrics.listen=pod,metrics.secure=true"},
	"components/node-labels": {"--set", "controller.nodeLabels=true"},
	"components/taint": {
		"--set", "controller.nodeCondition=true,controller.taint=fabric.dev/unhealthy:NoSchedule",
	},
	"overlays/exclusive components/k3s components/metrics components/taint components/node-labels": {
		"-f", "FABRICS", "--set", "cniBinDir=/var/lib/rancher/k3s/data/cni,metrics.listen=pod,metrics.secure=true," +
			"controller.nodeLabels=true,controller.nodeCondition=true,controller.taint=fabric.dev/unhealthy:NoSchedule",
	},
	"overlays/shared components/metrics components/taint components/rke2": {
		"-f", "FABRICS", "--set", "metrics.listen=pod,metrics.secure=true,controller.nodeCondition=true," +
			"controller.taint=fabric.dev/unhealthy:NoSchedule",
		"--set-json", `tolerations=[{"key":"CriticalAddonsOnly","operator":"Exists"},` +
			`{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"},` +
			`{"key":"node-role.kubernetes.io/etcd","operator":"Exists"}]`,
	},
}

// kustomized is what kustomize makes of the base or an overlay, and components with it. A component alone has the base.
func kustomized(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	lists := map[string][]string{}
	for _, name := range names {
		path, err := filepath.Abs(manifests + name)
		if err == nil {
			path, err = filepath.Rel(dir, path)
		}
		if err != nil {
			t.Fatal(err)
		}
		list := "resources"
		if strings.HasPrefix(name, "components/") {
			list = "components"
		}
		lists[list] = append(lists[list], path)
	}
	b, err := json.Marshal(lists)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return do(t, "kubectl", "kustomize", dir)
}

// Every overlay is accepted by an API server that refuses unknown fields, and the chart makes the same objects.
func TestManifests(t *testing.T) {
	if err := server.Apply(t.Context(), manifests+"base/namespace.yaml"); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"overlays/*", "components/*"} {
		dirs, err := filepath.Glob(manifests + pattern)
		if err != nil || len(dirs) == 0 {
			t.Fatalf("%s: %q, %v", pattern, dirs, err)
		}
		for _, dir := range dirs {
			if _, ok := overlays[strings.TrimPrefix(dir, manifests)]; !ok {
				t.Errorf("%s: no values of the chart do the same", dir)
			}
		}
	}
	for name, args := range overlays {
		t.Run(name, func(t *testing.T) {
			parts := strings.Fields(name)
			if strings.HasPrefix(parts[0], "components/") {
				parts = append(parts, "base")
			}
			text := kustomized(t, parts...)
			accepted(t, text)
			want := objects(t, text)
			if i := slices.Index(args, "FABRICS"); i >= 0 {
				args = slices.Clone(args)
				args[i] = fabricValues(t, want)
			}
			args = append([]string{"--no-hooks"}, args...)
			accepted(t, renderIn(t, "default", args...)) // in fabric-system there is a Deployment of this name
			got := objects(t, render(t, args...))
			maps.DeleteFunc(want, func(key string, _ map[string]any) bool {
				return key == "Namespace/fabric-system" || strings.HasPrefix(key, "CustomResourceDefinition/")
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("deployments/%s (-) and the chart (+) are not the same:\n%s", name, diff)
			}
		})
	}
}

// The Job that comes before a removal is the same for users of kustomize and of the chart.
func TestReleaseManifests(t *testing.T) {
	text := do(t, "kubectl", "kustomize", manifests+"release")
	accepted(t, text)
	want, got := objects(t, text), map[string]map[string]any{}
	for key, o := range objects(t, render(t)) {
		u := unstructured.Unstructured{Object: o}
		if u.GetAnnotations()["helm.sh/hook"] == "pre-delete" {
			u.SetAnnotations(nil)
			got[key] = u.Object
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deployments/release (-) and the chart (+) are not the same:\n%s", diff)
	}
}

// accepted has the API server judge objects as if it stored them.
func accepted(t *testing.T, text string) {
	t.Helper()
	if _, err := try(t, text, "kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
		t.Error(err)
	}
}

// fabricValues is a file with the values that make these Fabrics.
func fabricValues(t *testing.T, all map[string]map[string]any) string {
	t.Helper()
	var list []any
	for key, o := range all {
		if name, ok := strings.CutPrefix(key, "Fabric/"); ok {
			list = append(list, map[string]any{"name": name, "spec": o["spec"]})
		}
	}
	b, err := json.Marshal(map[string]any{"fabrics": list})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// objects are those of a YAML text by kind and name.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := d.Decode(u)
		if err == io.EOF { //nolint:errorlint // that is what it returns
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if u.Object == nil {
			continue
		}
		key := u.GetKind() + "/" + u.GetName()
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = u.Object
	}
}

// The NetworkPolicy is about the pods of the controller, by all their labels.
func TestNetworkPolicy(t *testing.T) {
	for name, text := range map[string]string{
		"kustomize": do(t, "kubectl", "kustomize", manifests+"base"), "helm": render(t, "--no-hooks"),
	} {
		var policy networkingv1.NetworkPolicy
		var deployment appsv1.Deployment
		for _, doc := range strings.Split(text, "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
				t.Fatal(err)
			}
			var into any
			switch kind.Kind {
			case "NetworkPolicy":
				into = &policy
			case "Deployment":
				into = &deployment
			default:
				continue
			}
			if err := yaml.Unmarshal([]byte(doc), into); err != nil {
				t.Fatal(err)
			}
		}
		got, want := policy.Spec.PodSelector.MatchLabels, deployment.Spec.Template.Labels
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
			t.Errorf("%s: labels of the controller's pods (-), and those that the NetworkPolicy selects (+):\n%s", name,
				diff)
		}
	}
}
