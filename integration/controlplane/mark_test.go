package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// marksOf is what a Node says of its devices, and its taints: "False 1 of 1 devices: ... [key:effect]".
func marksOf(t *testing.T, c client.Client, name string) string {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	out := "nothing"
	for _, cond := range n.Status.Conditions {
		if cond.Type == controller.HealthyCondition {
			out = fmt.Sprintf("%s %s", cond.Status, cond.Message)
		}
	}
	for _, taint := range n.Spec.Taints {
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") { // the API server's own
			out += fmt.Sprintf(" [%s:%s]", taint.Key, taint.Effect)
		}
	}
	return out
}

func problem(t *testing.T, c client.Client, name, text string) {
	t.Helper()
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Fabrics[0].Devices[0].Problem = text
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// The health of devices is in Nodes if that is asked for, and only the controller's own taint is changed.
func TestMarks(t *testing.T) {
	if err := server.Apply(t.Context(), manifests+"components/taint/rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	c := whole(t)
	defer removeNodes(t, c)
	names := []string{"m1", "m2", "m3", "m4", "m5"}
	for _, n := range names {
		createNode(t, c, n)
		addNode(t, c, n, "any")
	}
	addNode(t, c, "no-node", "any")
	other := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "m1"}, other); err != nil {
		t.Fatal(err)
	}
	other.Spec.Taints = []corev1.Taint{
		{Key: "fabric.dev/unhealthy", Effect: corev1.TaintEffectNoExecute},
		{Key: "mine", Effect: corev1.TaintEffectNoSchedule},
	}
	if err := c.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	taint, err := controller.ParseTaint("fabric.dev/unhealthy:NoSchedule")
	if err != nil {
		t.Fatal(err)
	}
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, "fabric-system", "fabric-controller")
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	limited, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var s *stepper
	restart := func() {
		s = newStepper(t, limited)
		s.Marks = controller.Marks{Condition: true, Taint: taint}
	}
	restart()
	states := func(want ...string) {
		t.Helper()
		s.round(0)
		for i, w := range want {
			if got := marksOf(t, c, names[i]); got != w {
				t.Errorf("%s: %s, want %s", names[i], got, w)
			}
		}
	}
	const (
		ours    = " [fabric.dev/unhealthy:NoSchedule]"
		theirs  = " [fabric.dev/unhealthy:NoExecute] [mine:NoSchedule]"
		healthy = "True all devices are healthy"
		down    = "False 1 of 1 devices: 0000:3b:00.0 PortDown"
	)
	states(healthy+theirs, healthy, healthy, healthy, healthy)
	problem(t, c, "m1", "PortDown")
	states(down+theirs+ours, healthy)
	restart() // it does not matter who has set it
	states(down+theirs+ours, healthy)
	problem(t, c, "m2", "PortDown")
	states(down+theirs+ours, down, healthy) // 2 of 5 nodes: rather the fabric than the nodes
	if err := c.Delete(t.Context(), &v1alpha1.FabricNode{ObjectMeta: other.ObjectMeta}); err != nil {
		t.Fatal(err)
	}
	states(down+theirs+ours, down+ours, healthy) // an agent without a word changes nothing; one of four is few
	addNode(t, c, "m1", "any")
	states(healthy+theirs, down+ours, healthy)
	problem(t, c, "m2", "")
	states(healthy+theirs, healthy, healthy)
	for _, wrong := range []string{"fabric.dev/unhealthy", ":NoSchedule", "a b:NoSchedule", "a:Never"} {
		if _, err := controller.ParseTaint(wrong); err == nil || !strings.Contains(err.Error(), "want KEY:EFFECT") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
