package controlplane_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// fabricctl status --wait waits for what a cluster lacks, through its installation: the agent, the controller, which is
// real, a FabricNode, and a Fabric.
func TestCtlStatus(t *testing.T) {
	fresh(t, append(everything, server.Manifests()+"/*")...)
	ctl, c := newCtl(t), whole(t)
	ctl.says(t, 3, []string{
		"agent       FAIL  no DaemonSet of fabric-agent in the namespace fabric-system",
		"controller  FAIL  no pod of the Deployment fabric-system/fabric-controller is ready, of 2",
		"nodes       FAIL  0 of 0 FabricNodes are Ready", "Fabrics     FAIL  there is no Fabric",
		"next: fabricctl doctor cluster", "after 1s still waiting for: agent, controller, ", "nodes, Fabrics\n",
	}, "status", "--wait", "--timeout", "1s")

	if err := server.Apply(t.Context(), "../../deployments/base/daemonset.yaml"); err != nil {
		t.Fatal(err)
	}
	agents(t, daemonSet(t, "fabric-system", "fabric-agent"), 1, 0)
	agents(t, daemonSet(t, "kube-system", "kube-multus-ds"), 1, 0)
	k := &appsv1.Deployment{}
	name := client.ObjectKey{Namespace: "fabric-system", Name: "fabric-controller"}
	if err := c.Get(t.Context(), name, k); err != nil {
		t.Fatal(err)
	}
	k.Status = appsv1.DeploymentStatus{ObservedGeneration: k.Generation, Replicas: 2, UpdatedReplicas: 2,
		ReadyReplicas: 2, AvailableReplicas: 2}
	if err := c.Status().Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	control(t)
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}})
	addNode(t, c, "gpu-1", "rails")
	reported := func(status metav1.ConditionStatus, reason string) {
		n := &v1alpha1.FabricNode{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "gpu-1"}, n); err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions = []metav1.Condition{{Type: v1alpha1.FabricNodeReady, Status: status, Reason: reason,
			LastTransitionTime: metav1.Now()}}
		f := &n.Status.Fabrics[0]
		f.Generation, f.Devices[0].HCA = 1, "mlx5_0"
		if err := c.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	reported(metav1.ConditionFalse, "WrongRDMAMode")
	ctl.says(t, 3, []string{"nodes       FAIL  0 of 1 FabricNodes are Ready; gpu-1: WrongRDMAMode"}, "status")
	reported(metav1.ConditionTrue, "Ready")
	until(t, func() string {
		_, out, _ := ctl.run(t, "status")
		if want := "next: fabricctl generate fabric --cluster"; !strings.Contains(out, want) {
			return "no " + want + " in " + out
		}
		return ""
	})

	defer removeFabrics(t, c)
	time.AfterFunc(3*time.Second, func() {
		if err := server.ApplyText(t.Context(), []byte(testfabrics.Object("rails", `{}`))); err != nil {
			t.Error(err)
		}
	})
	ctl.says(t, 0, []string{
		"waiting for Fabrics: there is no Fabric\n", "ready: Fabrics\n",
		"agent       OK    fabric-system/fabric-agent is ready on 1 of 1 nodes",
		"controller  OK  ", "Multus      OK    kube-system/kube-multus-ds is ready on 1 of 1 nodes",
		"nodes       OK    1 of 1 FabricNodes are Ready",
		"1 of 1 Fabrics are Ready; rails: 1 of 1 devices are healthy, published in default",
		"pods        OK    0 of 1 devices are in pods",
	}, "status", "--wait")
	ctl.says(t, 0, []string{"no pod holds a device"}, "list", "--cluster")
	use(t, c, "gpu-1", "default/train-0")
	ctl.says(t, 0, []string{"pods        OK    1 of 1 devices are in 1 pod"}, "status")
	ctl.says(t, 0, []string{"gpu-1  mlx5_0  -       rails   -     default/train-0  -"}, "list", "--cluster")
}
