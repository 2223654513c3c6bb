package controlplane_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// setReady has kubelet of a node say whether it is there.
func setReady(t *testing.T, c client.Client, node string, ready corev1.ConditionStatus) {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady
	})
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: ready})
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func daemonSet(t *testing.T, namespace, name string) *appsv1.DaemonSet {
	t.Helper()
	d, err := clientset(t).AppsV1().DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// agents does what kube-controller-manager and kubelet do once a DaemonSet is another one: it says in its status that
// the pods of some nodes are ready, and those of others not.
func agents(t *testing.T, d *appsv1.DaemonSet, ready, others int) {
	t.Helper()
	d.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: d.Generation, DesiredNumberScheduled: int32(ready + others),
		CurrentNumberScheduled: int32(ready + others), UpdatedNumberScheduled: int32(ready + others),
		NumberReady: int32(ready),
	}
	if _, err := clientset(t).AppsV1().DaemonSets(d.Namespace).UpdateStatus(t.Context(), d,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// leavingAgents waits until the DaemonSet is patched, and then says that all pods are ready. The returned function
// waits for that.
func leavingAgents(t *testing.T, namespace, name string, nodes int) (wait func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		until(t, func() string {
			d, err := clientset(t).AppsV1().DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && d.Spec.Template.Spec.Containers[0].Args[0] != "uninstall" {
				return "the agents still run"
			}
			if err == nil {
				agents(t, d, nodes, 0)
			}
			return errorOf(err)
		})
	}()
	return func() { <-done }
}

// agentPod is a pod of the DaemonSet on a node.
func agentPod(t *testing.T, c client.Client, d *appsv1.DaemonSet, node string, ready bool) {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-" + node, Namespace: d.Namespace, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d,
				appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	p.Spec.PriorityClassName, p.Spec.NodeName = "", node
	create(t, c, p)
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
		Type: corev1.PodReady, Status: status,
	}}}
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// releaseAs runs `fabric-agent release` with the token of the Job.
func releaseAs(t *testing.T, o controller.ReleaseOptions) (string, error) {
	t.Helper()
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, "fabric-system", "fabric-release")
	o.Namespace, o.Deployment, o.DaemonSet, o.Nodes = "fabric-system", "fabric-controller", "fabric-agent", true
	var log bytes.Buffer
	err := controller.ReleaseAt(t.Context(), rc, &o, slog.New(slog.NewTextHandler(&log, nil)))
	return log.String(), err
}

// Everything leaves the cluster: nothing while pods have devices of nodes that are there, then nodes first. It says
// which node can't leave and why, goes on where it was, and leaves a node that is not there as it is.
func TestReleaseNodes(t *testing.T) {
	fresh(t, slices.Concat(everything, []string{
		manifests + "base/rbac.yaml", manifests + "base/daemonset.yaml", manifests + "release/release.yaml",
	})...)
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	if err := resourceapi.AddToScheme(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	apply(t, testfabrics.Object("ib", `{}`))
	for _, node := range []string{"one", "two", "lost"} {
		createNode(t, c, node)
		setReady(t, c, node, corev1.ConditionTrue)
		addNode(t, c, node, "ib")
		use(t, c, node, "team/on-"+node)
	}
	setReady(t, c, "lost", corev1.ConditionUnknown)
	installed := daemonSet(t, "fabric-system", "fabric-agent")

	waitsForJob(t)
	short := controller.ReleaseOptions{Timeout: 2 * time.Second}
	const want = "not released, and nothing has been changed: pods have devices: node one: pods team/on-one; node " +
		"two: pods team/on-two. Delete these pods first; with --force all is uninstalled all the same, and nothing " +
		"returns their devices to the nodes"
	log, err := releaseAs(t, short)
	if !errors.Is(err, controller.ErrRefused) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if !strings.Contains(log, "node=lost pods=team/on-lost") {
		t.Error(log)
	}
	if diff := cmp.Diff(installed, daemonSet(t, "fabric-system", "fabric-agent")); diff != "" {
		t.Errorf("refused, but:\n%s", diff)
	}

	// A pod gets a device of node two after the look.
	for _, node := range []string{"one", "two"} {
		use(t, c, node)
	}
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "two"}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = append(n.Status.Conditions, metav1.Condition{
		Type: v1alpha1.FabricNodeUninstallPossible, Status: metav1.ConditionFalse, Reason: "UninstallRefused",
		Message: "attachments remain: pod team/late", LastTransitionTime: metav1.Now(),
	})
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		log string
		err error
	}
	answers := make(chan answer)
	go func() {
		log, err := releaseAs(t, controller.ReleaseOptions{Timeout: 20 * time.Second}) // for what is written below
		answers <- answer{log, err}
	}()
	d := installed
	until(t, func() string {
		if d = daemonSet(t, "fabric-system", "fabric-agent"); d.Generation == installed.Generation {
			return "the DaemonSet is as it was"
		}
		return ""
	})
	agentPod(t, c, d, "one", true)
	agentPod(t, c, d, "two", false)
	agentPod(t, c, d, "lost", false)
	agents(t, d, 1, 2)
	got := <-answers
	if !errors.Is(got.err, controller.ErrRefused) ||
		!strings.HasPrefix(got.err.Error(), "not released: node two: attachments remain: pod team/late. ") {
		t.Errorf("%v", got.err)
	}
	deployment, err := clientset(t).AppsV1().Deployments("fabric-system").Get(t.Context(), "fabric-controller",
		metav1.GetOptions{})
	if err != nil || *deployment.Spec.Replicas == 0 {
		t.Errorf("the controller is stopped, %v", err)
	}
	leaves(t, installed, d)

	// The pod ends, and its node is done. What nodes had is deleted; marks of theirs as well, and no other owner's.
	p := &corev1.Pod{}
	key := client.ObjectKey{Namespace: "fabric-system", Name: "fabric-agent-two"}
	if err := c.Get(t.Context(), key, p); err != nil {
		t.Fatal(err)
	}
	p.Status.Conditions[0].Status = corev1.ConditionTrue
	if err := c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	agents(t, daemonSet(t, "fabric-system", "fabric-agent"), 2, 1)
	markNode(t, c, "one")
	offerSlice(t, c, "ours", "fabric.dev")
	offerSlice(t, c, "theirs", "example.com")
	log, err = releaseAs(t, short)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log, "nodes are not there: what is on them stays") || !strings.Contains(log, "nodes=lost") {
		t.Error(log)
	}
	unmarked(t, c, "one")
	nodes, offered := &v1alpha1.FabricNodeList{}, &resourceapi.ResourceSliceList{}
	if err := errors.Join(c.List(t.Context(), nodes), c.List(t.Context(), offered)); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) > 0 || len(offered.Items) != 1 || offered.Items[0].Name != "theirs" {
		t.Errorf("left: %d FabricNodes, %d ResourceSlices", len(nodes.Items), len(offered.Items))
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "ib"}, &v1alpha1.Fabric{}); err != nil {
		t.Errorf("the Fabric is its owner's: %v", err)
	}

	// Back: the manifests, applied again.
	if err := server.Apply(t.Context(), manifests+"base/daemonset.yaml"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(installed.Spec, daemonSet(t, "fabric-system", "fabric-agent").Spec); diff != "" {
		t.Errorf("after going back:\n%s", diff)
	}
	// By force, and when there is no DaemonSet any more.
	addNode(t, c, "one", "ib")
	use(t, c, "one", "team/a")
	wait := leavingAgents(t, "fabric-system", "fabric-agent", 3)
	if _, err = releaseAs(t, controller.ReleaseOptions{Timeout: time.Minute, Force: true}); err != nil {
		t.Error(err)
	}
	wait()
	d = daemonSet(t, "fabric-system", "fabric-agent")
	if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--force") {
		t.Errorf("%q", args)
	}
	if err := clientset(t).AppsV1().DaemonSets(d.Namespace).Delete(t.Context(), d.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if log, err = releaseAs(t, short); err != nil || !strings.Contains(log, "no DaemonSet any more") {
		t.Errorf("%v: %s", err, log)
	}
}

// waitsForJob runs the command with which docs/install.md waits for the Job. It ends with one that has failed, too.
func waitsForJob(t *testing.T) {
	t.Helper()
	args := []string{"-n", "fabric-system", "wait", "job/fabric-release",
		"--for=jsonpath={.status.conditions[-1:].status}=True", "--timeout=1s"}
	if out, err := try(t, "", "kubectl", args...); err == nil || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("it has not ended: %s, %v", out, err)
	}
	all := clientset(t).BatchV1().Jobs("fabric-system")
	j, err := all.Get(t.Context(), "fabric-release", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	j.Status.StartTime = &now
	for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now,
		})
	}
	if _, err := all.UpdateStatus(t.Context(), j, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	do(t, "kubectl", args...)
	args[4] = "--for=condition=complete"
	if _, err := try(t, "", "kubectl", args...); err == nil {
		t.Error("it has failed, and is complete")
	}
}

// leaves compares the DaemonSet of agents that leave with the installed one: the same, but for what it runs.
func leaves(t *testing.T, installed, d *appsv1.DaemonSet) {
	t.Helper()
	want, got := installed.DeepCopy().Spec, d.DeepCopy().Spec
	args := want.Template.Spec.Containers[0].Args
	args = append([]string{"uninstall", "--stay"}, args[1:]...)
	if diff := cmp.Diff(args, got.Template.Spec.Containers[0].Args); diff != "" {
		t.Error(diff)
	}
	if len(got.Template.Spec.InitContainers) > 0 || got.UpdateStrategy.RollingUpdate.MaxUnavailable.String() != "100%" {
		t.Errorf("%v", got.UpdateStrategy)
	}
	for _, s := range []*appsv1.DaemonSetSpec{&want, &got} {
		s.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{}
		s.Template.Spec.InitContainers, s.Template.Spec.Containers[0].Args = nil, nil
		s.Template.Spec.Containers[0].ReadinessProbe.PeriodSeconds = 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// markNode has the controller's marks on a Node, and others.
func markNode(t *testing.T, c client.Client, name string) {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	n.Spec.Taints = []corev1.Taint{
		{Key: "fabric.dev/unhealthy", Effect: corev1.TaintEffectNoSchedule},
		{Key: "example.com/mine", Effect: corev1.TaintEffectNoSchedule},
	}
	if err := c.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: controller.HealthyCondition, Status: corev1.ConditionFalse,
	})
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func unmarked(t *testing.T, c client.Client, name string) {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, taint := range n.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") { // the API server's
			got = append(got, taint.Key)
		}
	}
	for i := range n.Status.Conditions {
		got = append(got, fmt.Sprint(n.Status.Conditions[i].Type))
	}
	if diff := cmp.Diff([]string{"example.com/mine", "Ready"}, got); diff != "" {
		t.Errorf("taints and conditions:\n%s", diff)
	}
}

// offerSlice makes a ResourceSlice of a driver.
func offerSlice(t *testing.T, c client.Client, name, driver string) {
	t.Helper()
	node := "one"
	create(t, c, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
		},
	})
}
