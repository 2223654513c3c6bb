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

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/controller"
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

// overlays are the kustomizations, and the values that make the chart do the same.
var overlays = map[string][]string{
	"base":               nil,
	"overlays/exclusive": {"-f", "FABRICS"},
	"overlays/shared":    {"-f", "FABRICS"},
	"overlays/dra":       {"-f", "FABRICS"},
	"overlays/k3s":       {"--set", "cniBinDir=/var/lib/rancher/k3s/data/cni"},
	"overlays/rke2": {"--set-json", `tolerations=[{"key":"CriticalAddonsOnly","operator":"Exists"},` +
		`{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"},` +
		`{"key":"node-role.kubernetes.io/etcd","operator":"Exists"}]`},
	"overlays/openshift":   {"--set", "cniBinDir=/var/lib/cni/bin,seLinuxType=spc_t,openshift=true,crds.upgrade=false"},
	"overlays/metrics":     {"--set", "metrics.listen=pod,metrics.secure=true"},
	"overlays/node-labels": {"--set", "controller.nodeLabels=true"},
	"overlays/taint": {
		"--set", "controller.nodeCondition=true,controller.taint=fabric.dev/unhealthy:NoSchedule",
	},
}

// Every overlay is accepted by an API server that refuses unknown fields, and the chart makes the same objects.
func TestManifests(t *testing.T) {
	if err := server.Apply(t.Context(), manifests+"base/namespace.yaml"); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(manifests + "overlays/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, ok := overlays["overlays/"+filepath.Base(dir)]; !ok {
			t.Errorf("%s: no values of the chart do the same", dir)
		}
	}
	for name, args := range overlays {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text := do(t, "kubectl", "kustomize", manifests+name)
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

// objects are those of a YAML text by kind and name, without what differs between kustomize and Helm and means nothing.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	defaults := flagDefaults(t)
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
		plain(u.Object, defaults)
		out[key] = u.Object
	}
}

// plain leaves out the label of the release, and flags that say what is the default anyway.
func plain(v any, defaults []string) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "app.kubernetes.io/instance")
		for key, e := range v {
			v[key] = plain(e, defaults)
			if args, ok := e.([]any); ok && key == "args" {
				v[key] = slices.DeleteFunc(args, func(a any) bool { return slices.Contains(defaults, fmt.Sprint(a)) })
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i], defaults)
		}
	}
	return v
}

var flagDefault = regexp.MustCompile(`(?m)^  -([a-z-]+)[^\n]*\n[^\n]*\(default "?([^"\n]*?)"?\)$`)

// flagDefaults are the flags of the agent and of the controller with their defaults.
func flagDefaults(t *testing.T) (out []string) {
	t.Helper()
	var usage bytes.Buffer
	if err := agent.Main(t.Context(), "", []string{"run", "-h"}, io.Discard, &usage); err != nil {
		t.Fatal(err)
	}
	if err := controller.Command(t.Context(), "", []string{"-h"}, &usage); err != nil {
		t.Fatal(err)
	}
	for _, m := range flagDefault.FindAllStringSubmatch(usage.String(), -1) {
		if m[1] != "bin-dir" { // the overlays change it
			out = append(out, "--"+m[1]+"="+m[2])
		}
	}
	if !slices.Contains(out, "--grace=1m0s") || !slices.Contains(out, "--log-level=INFO") {
		t.Fatalf("defaults: %q", out)
	}
	return append(out, "--grace=1m", "--log-level=info")
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
