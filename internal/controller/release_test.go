package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// A lease is free when it was given up, or not renewed for as long as it is valid by this machine's clock, whatever
// its holder's says.
func TestLeaseFree(t *testing.T) {
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		at := metav1.NewMicroTime(renewed)
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at}}
	}
	long := noon.Add(-time.Hour)
	h := &holder{}
	for i, step := range []struct {
		lease *coordinationv1.Lease
		after time.Duration
		want  bool
	}{
		{lease("a", long), 0, false},
		{lease("a", long), leaseDuration, false},
		{lease("a", long), leaseDuration + time.Second, true},
		{lease("a", long.Add(time.Second)), leaseDuration + time.Second, false},
		{lease("a", long.Add(time.Second)), 3 * leaseDuration, true},
		{lease("b", long.Add(time.Second)), 3 * leaseDuration, false},
		{lease("", long), 3 * leaseDuration, true},
		{&coordinationv1.Lease{}, 3 * leaseDuration, true},
	} {
		if got := h.free(step.lease, noon.Add(step.after)); got != step.want {
			t.Errorf("step %d: free: %t", i, got)
		}
	}
}

// The agents' pods get the arguments of uninstall, with the flags that they had, however often it is done.
func TestLeaving(t *testing.T) {
	d := &appsv1.DaemonSet{}
	d.Spec.Template.Spec = corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "install"}},
		Containers: []corev1.Container{{Name: "sidecar"},
			{Args: []string{"run", "--bin-dir=/host", "--force"}, ReadinessProbe: &corev1.Probe{PeriodSeconds: 30}}},
	}
	for _, force := range []bool{false, true, true, false} {
		if err := leaving(d, force); err != nil {
			t.Fatal(err)
		}
		want := []string{"uninstall", "--stay", "--bin-dir=/host"}
		if force {
			want = append(want, "--force")
		}
		pod := &d.Spec.Template.Spec
		if got := pod.Containers[1].Args; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if len(pod.InitContainers) > 0 || pod.Containers[1].ReadinessProbe.PeriodSeconds != 1 ||
			d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String() != "100%" {
			t.Errorf("%+v, %+v", pod, d.Spec.UpdateStrategy)
		}
	}
	if err := leaving(&appsv1.DaemonSet{}, false); !errors.Is(err, ErrRefused) {
		t.Errorf("a DaemonSet that is not that of the agents: %v", err)
	}
}

// What a pod of the agents has not done yet, or nothing.
func TestUnfinished(t *testing.T) {
	pod := func(arg string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}, {Args: []string{arg}}}}}
		p.Name, p.Status.Phase = "agent-x", corev1.PodRunning
		change(p)
		return p
	}
	ready := func(status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		}
	}
	for want, p := range map[string]*corev1.Pod{
		"":                         pod("uninstall", ready(corev1.ConditionTrue)),
		"has not been replaced":    pod("run", ready(corev1.ConditionTrue)),
		"is Running and not ready": pod("uninstall", ready(corev1.ConditionFalse)),
		"has not ended": pod("uninstall", func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: noon}
			ready(corev1.ConditionTrue)(p)
		}),
		"waits: ErrImagePull no such image": pod("uninstall", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
			}}}
		}),
	} {
		if got := unfinished(p); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What the controller has put on a Node goes, and nothing else.
func TestUnmark(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{},
		{Args: []string{"controller", "--taint=t/unhealthy:NoSchedule"}}}
	r := &releaser{taint: taintOf(d)}
	if r.taint != "t/unhealthy" {
		t.Fatalf("the Deployment's taint is %q", r.taint)
	}
	n := &corev1.Node{}
	n.Spec.Taints = []corev1.Taint{{Key: "t/unhealthy"}, {Key: "t/other"}, {Key: "fabric.dev/earlier"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: HealthyCondition}}
	if !r.unmark(n) || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "t/other" || len(n.Status.Conditions) != 1 ||
		n.Status.Conditions[0].Type != corev1.NodeReady {
		t.Errorf("left: %+v, %+v", n.Spec.Taints, n.Status.Conditions)
	}
	if r.unmark(n) {
		t.Error("it finds something again")
	}
	if got := taintOf(&appsv1.Deployment{}); got != "" {
		t.Errorf("a Deployment without: %q", got)
	}
}

// Messages name a few of many, each once.
func TestNamesInMessages(t *testing.T) {
	n := nodeWith("a", v1alpha1.FabricDevice{Pods: []string{"t/q", ""}},
		v1alpha1.FabricDevice{Pods: []string{"t/p", "t/q"}})
	if got := fmt.Sprint(podsOn(&n)); got != "[(no name) t/p t/q]" {
		t.Errorf("pods: %s", got)
	}
	many := []string{"g", "f", "e", "d", "c", "b", "a"}
	if got, want := list(slices.Clone(many)), "a, b, c, d, e and 2 more"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := semicolons(slices.Clone(many)), "a; b; c; d; e; and 2 more nodes"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := list(slices.Clone(many[5:]))+" "+semicolons(many[5:]), "a, b a; b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := short(strings.Repeat("\x1b", 2000) + "\n"); len(got) != 1024 || strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%d bytes: %.20q", len(got), got)
	}
}

// Addresses of a Node that kubelet does not tell its pods: all but the first of each family.
func TestMoreAddresses(t *testing.T) {
	address := func(kind corev1.NodeAddressType, a string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: kind, Address: a}
	}
	const in, ex = corev1.NodeInternalIP, corev1.NodeExternalIP
	var many []corev1.NodeAddress
	for i := range 2 * maxNodeAddresses {
		many = append(many, address(in, fmt.Sprintf("10.0.0.%d", i)))
	}
	for _, tt := range []struct {
		all  []corev1.NodeAddress
		want string
	}{
		{nil, ""},
		{[]corev1.NodeAddress{address(in, "10.0.0.1"), address(in, "fd00::1"), address(corev1.NodeHostName, "a")}, ""},
		{[]corev1.NodeAddress{address(ex, "192.0.2.1"), address(in, "10.0.0.1")}, "192.0.2.1"},
		{[]corev1.NodeAddress{address(ex, "192.0.2.1"), address(in, "fd00::1")}, ""},
		{[]corev1.NodeAddress{address(in, "10.0.0.1"), address(in, "10.0.0.3"), address(in, "10.0.0.2"),
			address(ex, "10.0.0.3"), address(in, "fe80::1%eth0"), address(in, "fe80::2%eth0"), address(in, "x")},
			"10.0.0.2,10.0.0.3,fe80::2"},
	} {
		if got := moreAddresses(tt.all); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.all, got, tt.want)
		}
	}
	if got := strings.Count(moreAddresses(many), ",") + 1; got != maxNodeAddresses {
		t.Errorf("%d of %d addresses", got, len(many))
	}
}
