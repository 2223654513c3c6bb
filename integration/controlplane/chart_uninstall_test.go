package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ofRelease are the objects of a release that are still there; the CRDs are nobody's.
func ofRelease(t *testing.T, name string) (left []string) {
	t.Helper()
	kinds := strings.Fields(do(t, "kubectl", "api-resources", "--verbs=list", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(k string) bool {
		return slices.Contains([]string{"events", "events.events.k8s.io", "namespaces",
			"customresourcedefinitions.apiextensions.k8s.io"}, k)
	})
	out := do(t, "kubectl", "get", strings.Join(kinds, ","), "-A", "--ignore-not-found", "-o", "name")
	for _, o := range strings.Fields(out) {
		_, own, _ := strings.Cut(o, "/")
		if strings.HasPrefix(own, name+"-") || own == name || strings.HasPrefix(own, "sh.helm.release") {
			left = append(left, o)
		}
	}
	return left
}

// Into a cluster that knows nothing of it comes a release with Fabrics, pods use one, and the release goes: at once,
// and nothing stays but the kinds.
func TestChartUninstall(t *testing.T) {
	fresh(t, everything[0])
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	removeKind(t, c, "fabrics.fabric.dev")
	removeKind(t, c, "fabricnodes.fabric.dev")
	values := []string{"--set-json",
		`fabrics=[{"name":"down","spec":{"namespaces":{"names":["default","kube-public"]}}}]`}
	helm := release(t, "down", values...)
	if left := ofRelease(t, "down"); len(left) < 12 {
		t.Errorf("installed: %q", left)
	}
	stop := controlAs(t, "down-system", "down-controller")
	createNode(t, c, "one")
	addNode(t, c, "one", "down")
	use(t, c, "one", "team/a")
	untilHeld(t, c, "down")
	untilDefined(t, c, "down", "default", "kube-public")

	ran := jobs(t, "down-system")
	ended := make(chan struct{})
	go func() { // kubelet and the Deployment's controller would
		defer close(ended)
		until(t, func() string {
			d, err := clientset(t).AppsV1().Deployments("down-system").Get(t.Context(), "down-controller",
				metav1.GetOptions{})
			if err == nil && *d.Spec.Replicas != 0 {
				return "the controller is not ended"
			}
			return errorOf(err)
		})
		stop()
	}()
	helm("uninstall", "--wait", "--timeout", "10m")
	<-ended
	if names := ran(); !slices.Equal(names, []string{"down-release"}) {
		t.Errorf("jobs: %q", names)
	}
	if left := ofRelease(t, "down"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if got := definitions(t, c, "down"); len(got) > 0 {
		t.Errorf("the network is still in %q", got)
	}
}

// Somebody has deleted the kinds before the release, which has Fabrics: Helm can't name what it should delete. Once the
// kinds are back it can.
func TestChartUninstallAfterKinds(t *testing.T) {
	fresh(t, everything[0])
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	helm := release(t, "down", "--set-json", `fabrics=[{"name":"down","spec":{}}]`)
	removeKind(t, c, "fabrics.fabric.dev")
	removeKind(t, c, "fabricnodes.fabric.dev")
	defer jobs(t, "down-system")()
	_, err := try(t, "", "helm", "uninstall", "down", "-n", "down-system", "--timeout", "10m")
	if err == nil {
		t.Error("helm uninstall works without the kinds: docs/kubernetes.md says that it does not")
	}
	if err := server.Apply(t.Context(), everything[0]); err != nil {
		t.Fatal(err)
	}
	until(t, func() string {
		_, err := try(t, "", "kubectl", "get", "fabrics,fabricnodes")
		return errorOf(err)
	})
	helm("uninstall", "--timeout", "10m")
	if left := ofRelease(t, "down"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
