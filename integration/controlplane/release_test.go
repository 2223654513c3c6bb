package controlplane_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// all that the cluster has before fabric-cni is installed, and its own.
var everything = []string{
	"../../deployments/helm/fabric-cni/crds/fabric.dev_*.yaml", "../../deployments/base/namespace.yaml",
	"../../deployments/base/controller.yaml", "../../deployments/base/admission.yaml",
}

// use has a pod on the device of a node.
func use(t *testing.T, c client.Client, node string, pods ...string) {
	t.Helper()
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Fabrics[0].Devices[0].Pods = pods
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func untilHeld(t *testing.T, c client.Client, name string) {
	t.Helper()
	until(t, func() string {
		f := &v1alpha1.Fabric{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, f); err != nil {
			return err.Error()
		}
		if len(f.Finalizers) == 0 {
			return name + " has no finalizer"
		}
		return ""
	})
}

const foreign = `{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition,
  metadata: {name: foreign, namespace: default, labels: {app.kubernetes.io/managed-by: fabric-agent}}, spec: {}}`

// After `fabric-agent release` everything can be deleted, in any order and at once, although pods use a Fabric.
func TestRelease(t *testing.T) {
	fresh(t, everything...)
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	stop := control(t)
	apply(t, foreign)
	apply(t, foreignClass)
	apply(t, testfabrics.Object("used", `{allocation: DRA, namespaces: {selector: {}}}`))
	createNode(t, c, "one")
	addNode(t, c, "one", "used")
	use(t, c, "one", "team/a", "team/b")
	untilHeld(t, c, "used")
	untilDefined(t, c, "used", "default", "fabric-system", "kube-node-lease", "kube-public", "kube-system")

	// The controller's pod, which kubelet would end.
	labels := controllerLabels(t, "fabric-system", "fabric-controller")
	create(t, c, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fabric-controller-1", Namespace: "fabric-system", Labels: labels},
		Spec: corev1.PodSpec{ServiceAccountName: "fabric-controller",
			Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	})
	direct, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	deployments, pods := direct.AppsV1().Deployments("fabric-system"), direct.CoreV1().Pods("fabric-system")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		until(t, func() string {
			d, err := deployments.Get(t.Context(), "fabric-controller", metav1.GetOptions{})
			if err != nil || *d.Spec.Replicas != 0 {
				return "the Deployment is not scaled"
			}
			return ""
		})
		if err := pods.Delete(t.Context(), "fabric-controller-1", *metav1.NewDeleteOptions(0)); err != nil {
			t.Error(err)
		}
		stop() // the process ends later than its pod: it has the lease
	}()
	var log bytes.Buffer
	o := &controller.ReleaseOptions{Namespace: "fabric-system", Deployment: "fabric-controller",
		Timeout: 2 * time.Minute}
	release := func() {
		t.Helper()
		if err := controller.ReleaseAt(t.Context(), server.Config, o,
			slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
	}
	release()
	<-ended
	if !strings.Contains(log.String(), `fabric=used pods="team/a, team/b"`) {
		t.Error(log.String())
	}
	if got := definitions(t, c, "used"); len(got) > 0 {
		t.Errorf("the network is still in %q", got)
	}
	untilClasses(t, c, map[string]string{"mine.fabric.dev": theirClass})
	if got := definitions(t, c, "foreign"); len(got) != 1 {
		t.Error("somebody else's definition is gone")
	}
	lease, err := direct.CoordinationV1().Leases("fabric-system").Get(t.Context(), "fabric-controller",
		metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("%v, %v", lease.Name, err)
	}
	release() // again
	removeKind(t, c, "fabrics.fabric.dev")
	removeKind(t, c, "fabricnodes.fabric.dev")
	removeKind(t, c, "network-attachment-definitions.k8s.cni.cncf.io")
	release() // when nothing is left
	if err := deployments.Delete(t.Context(), "fabric-controller", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	release()
}

// A pod of the controller that never ends, because its node is lost, holds nothing up for ever.
func TestReleaseWithLostNode(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "lost", Namespace: "fabric-system",
			Labels: controllerLabels(t, "fabric-system", "fabric-controller"),
		},
		Spec: corev1.PodSpec{
			NodeName: "lost-node", ServiceAccountName: "fabric-controller", Containers: []corev1.Container{{Name: "c",
				Image: "c"}},
		},
	}
	create(t, c, pod)
	defer func() { _ = c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)) }()
	apply(t, strings.Replace(testfabrics.Object("held", `{}`), "name: held",
		"name: held, finalizers: [fabric.dev/in-use]", 1))
	var log bytes.Buffer
	o := &controller.ReleaseOptions{Namespace: "fabric-system", Deployment: "fabric-controller", Timeout: time.Second}
	if err := controller.ReleaseAt(t.Context(), server.Config, o,
		slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "pod=lost node=lost-node") {
		t.Error(log.String())
	}
	f := &v1alpha1.Fabric{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "held"}, f); err != nil || len(f.Finalizers) > 0 {
		t.Errorf("%q, %v", f.Finalizers, err)
	}
}

// An administrator deletes the kinds while the controller runs and pods use a Fabric: nothing hangs, no network is
// left, and when the kinds are back all is as it was.
func TestKindsFirst(t *testing.T) {
	fresh(t, everything...)
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	defer control(t)()
	apply(t, testfabrics.Object("first", `{}`))
	createNode(t, c, "one")
	addNode(t, c, "one", "first")
	use(t, c, "one", "team/a")
	untilHeld(t, c, "first")
	untilDefined(t, c, "first", "default")
	removeKind(t, c, "fabricnodes.fabric.dev")
	removeKind(t, c, "fabrics.fabric.dev")
	untilDefined(t, c, "first")
	if err := server.Apply(t.Context(), everything[0]); err != nil {
		t.Fatal(err)
	}
	apply(t, testfabrics.Object("first", `{}`))
	until(t, func() string { return errorOf(c.List(t.Context(), &v1alpha1.FabricNodeList{})) })
	addNode(t, c, "one", "first")
	untilDefined(t, c, "first", "default")
	untilCondition(t, c, "first", v1alpha1.FabricReady, "True Ready")
}
