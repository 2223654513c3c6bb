package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofRelease are the objects of a release that are still there; the CRDs belong to no release.
func ofRelease(t *testing.T, name string) (left []string) {
	t.Helper()
	kinds := strings.Fields(do(t, "kubectl", "api-resources", "--verbs=list", "-o", "name"))
	others := []string{"events", "events.events.k8s.io", "namespaces", "customresourcedefinitions.apiextensions.k8s.io"}
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return slices.Contains(others, k) })
	out := do(t, "kubectl", "get", strings.Join(kinds, ","), "-A", "--ignore-not-found", "-o", "name")
	for _, o := range strings.Fields(out) {
		_, own, _ := strings.Cut(o, "/")
		if strings.HasPrefix(own, name+"-") || own == name || strings.HasPrefix(own, "sh.helm.release") {
			left = append(left, o)
		}
	}
	return left
}

// controllerLabels are those of the pods of the controller's Deployment.
func controllerLabels(t *testing.T, namespace, name string) map[string]string {
	t.Helper()
	d, err := clientset(t).AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Labels
}

// scaledDown does what a cluster does once the Deployment of the controller is scaled to 0: it ends the controller, and
// then its pod is gone. The returned function waits for that.
func scaledDown(t *testing.T, namespace, name string, stop func()) (wait func()) {
	t.Helper()
	c := whole(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: controllerLabels(t, namespace, name),
		},
		Spec: corev1.PodSpec{ServiceAccountName: name, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}
	create(t, c, pod)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		until(t, func() string {
			d, err := clientset(t).AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && *d.Spec.Replicas != 0 {
				return namespace + "/" + name + " is not scaled to 0"
			}
			return errorOf(err)
		})
		stop()
		if err := c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	}()
	return func() { <-ended }
}

// Into a cluster that knows nothing of it comes a release with Fabrics, and pods use one: it stays as it is, by Helm's
// account too. When the pods have ended it goes, and nothing stays but the kinds.
func TestChartUninstall(t *testing.T) {
	fresh(t, everything[0])
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	removeKind(t, c, "fabrics.fabric.dev")
	removeKind(t, c, "fabricnodes.fabric.dev")
	helm := release(t, "down", "--set-json",
		`fabrics=[{"name":"down","spec":{"match":{"discovered":"ib"},"namespaces":{"names":["default","kube-public"]}}}]`)
	if left := ofRelease(t, "down"); len(left) < 12 {
		t.Errorf("installed: %q", left)
	}
	stop := controlAs(t, "down-system", "down-controller")
	createNode(t, c, "one")
	setReady(t, c, "one", corev1.ConditionTrue)
	addNode(t, c, "one", "down")
	use(t, c, "one", "team/a")
	untilHeld(t, c, "down")
	untilDefined(t, c, "down", "default", "kube-public")

	ran := jobs(t, "down-system", "node one: pods team/a.")
	before := ofRelease(t, "down")
	_, err := try(t, "", "helm", "uninstall", "down", "-n", "down-system", "--timeout", "10m")
	if err == nil || !strings.Contains(err.Error(), "job down-release failed") {
		t.Errorf("helm uninstall while pods have devices: %v", err)
	}
	left := ofRelease(t, "down")
	for _, o := range before {
		if !slices.Contains(left, o) {
			t.Errorf("refused, but %s is gone", o)
		}
	}
	untilDefined(t, c, "down", "default", "kube-public")
	if text := do(t, "helm", "list", "-n", "down-system", "--all"); !strings.Contains(text, "uninstalling") {
		t.Error(text)
	}
	helm("rollback", "1") // the way back that docs/install.md has
	if text := do(t, "helm", "list", "-n", "down-system"); !strings.Contains(text, "deployed") {
		t.Error(text)
	}

	use(t, c, "one")
	gone := leavingAgents(t, "down-system", "down-agent", 1)
	wait := scaledDown(t, "down-system", "down-controller", stop)
	helm("uninstall", "--wait", "--timeout", "10m")
	wait()
	gone()
	if names := ran(); !slices.Equal(names, []string{"down-release", "down-release"}) {
		t.Errorf("jobs: %q", names)
	}
	if nodes := do(t, "kubectl", "get", "fabricnodes", "-o", "name"); nodes != "" {
		t.Errorf("left: %s", nodes)
	}
	if left := ofRelease(t, "down"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if got := definitions(t, c, "down"); len(got) > 0 {
		t.Errorf("the network is still in %q", got)
	}
}

// An administrator has deleted the kinds before the release, which has Fabrics: Helm can't name what it should delete.
// Once the kinds are back it can.
func TestChartUninstallAfterKinds(t *testing.T) {
	fresh(t, everything[0])
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	helm := release(t, "down", "--set", "uninstall.nodes=false", "--set-json",
		`fabrics=[{"name":"down","spec":{"match":{"discovered":"ib"}}}]`)
	removeKind(t, c, "fabrics.fabric.dev")
	removeKind(t, c, "fabricnodes.fabric.dev")
	defer jobs(t, "down-system")()
	_, err := try(t, "", "helm", "uninstall", "down", "-n", "down-system", "--timeout", "10m")
	if err == nil {
		t.Error("helm uninstall works without the kinds: docs/install.md says that it does not")
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
