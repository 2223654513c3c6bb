package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const agentDS = `{"metadata":{"name":"fabric-agent","namespace":"fabric-system","generation":2,
"labels":{"app.kubernetes.io/name":"fabric-agent"}},"spec":{"updateStrategy":{"type":"RollingUpdate"}},
"status":{"observedGeneration":2,"desiredNumberScheduled":4,"numberReady":4,"updatedNumberScheduled":4}}`

// installed is a cluster in which all is ready, with a pod that has two devices.
func installed(t *testing.T) *Cluster {
	t.Helper()
	c := agents(t)
	c.DaemonSets = append([]DaemonSet{decode[DaemonSet](t, agentDS)}, c.DaemonSets...)
	c.Controller.Updated = 2
	f := &c.Fabrics[0]
	f.Generation, f.Status.ObservedGeneration = 3, 3
	f.Status.InForce = &v1alpha1.FabricInForce{Generation: 3, Spec: f.Spec}
	f.Status.Published, f.Status.Devices = []string{"default", "ml"}, v1alpha1.DeviceCounts{Total: 12, Healthy: 12}
	for i := range c.FabricNodes {
		for j := range c.FabricNodes[i].Status.Fabrics {
			c.FabricNodes[i].Status.Fabrics[j].Generation = 3
		}
	}
	devices := c.FabricNodes[1].Status.Fabrics[0].Devices
	devices[0].Pods, devices[1].Pods = []string{"ml/train-0"}, []string{"ml/train-0"}
	devices[2].Problem = "PortDown"
	return c
}

// lines are the parts that are not OK, and what to do.
func lines(s *ClusterStatus) (out string) {
	for _, p := range s.Parts {
		if p.Status != OK {
			out += fmt.Sprintf("%s %s %s\n", p.Status, p.Name, p.Text)
		}
	}
	return out + s.Next
}

func TestStatusReady(t *testing.T) {
	s := StatusOf(installed(t), "fabric-system", nil)
	var got []string
	for _, p := range s.Parts {
		got = append(got, fmt.Sprintf("%s %s %s", p.Status, p.Name, p.Text))
	}
	want := []string{
		"OK agent fabric-system/fabric-agent is ready on 4 of 4 nodes",
		"OK controller a leads",
		"OK Multus kube-system/kube-multus-ds is ready on 3 of 3 nodes",
		"OK nodes 4 of 4 FabricNodes are Ready",
		"OK Fabrics 1 of 1 Fabrics are Ready; ib: 12 of 12 devices are healthy, published in default, ml",
		"OK pods 2 of 12 devices are in 1 pod",
	}
	if d := cmp.Diff(want, got); d != "" || !s.Ready || s.Next != "" || s.Pods != 1 || s.Held != 2 {
		t.Errorf("%+v (-want +got):\n%s", s, d)
	}
}

// unready makes a FabricNode not Ready.
func unready(n *FabricNode, reason string) {
	n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: reason, Message: "m"}}
}

const look = "fabricctl doctor cluster"

type statusCase struct {
	name  string
	spoil func(c *Cluster)
	want  string
	ready bool
}

// hasStatus spoils one thing after the other.
func hasStatus(t *testing.T, cases []statusCase) {
	t.Helper()
	for _, c := range cases {
		p := installed(t)
		c.spoil(p)
		s := StatusOf(p, "fabric-system", nil)
		if d := cmp.Diff(c.want, lines(s)); d != "" || s.Ready != c.ready {
			t.Errorf("%s: ready %v (-want +got):\n%s", c.name, s.Ready, d)
		}
	}
}

func TestStatusPrograms(t *testing.T) {
	hasStatus(t, []statusCase{
		{"nothing installed", func(c *Cluster) { *c = Cluster{Controller: &Controller{}} },
			"FAIL agent no DaemonSet of fabric-agent in the namespace fabric-system\n" +
				"FAIL controller no Deployment of the controller in the namespace fabric-system\n" +
				"FAIL Multus it is not installed: neither its kind nor a DaemonSet is there\n" +
				"FAIL nodes 0 of 0 FabricNodes are Ready\n" +
				"FAIL Fabrics there is no Fabric\nhelm install fabric deployments/helm/fabric-cni -n fabric-system " +
				"--create-namespace, or kubectl apply -k deployments/base (docs/install.md)", false},
		{"an agent that crashes", func(c *Cluster) { c.DaemonSets[0].Status.NumberReady = 3 },
			"FAIL agent fabric-system/fabric-agent is ready on 3 of 4 nodes\n" + look, false},
		{"an agent of another namespace", func(c *Cluster) { c.DaemonSets[0].Namespace = "x" },
			"FAIL agent no DaemonSet of fabric-agent in the namespace fabric-system\n" + look, false},
		{"an agent that fits no node", func(c *Cluster) {
			c.DaemonSets[0].Status = appsv1.DaemonSetStatus{
				ObservedGeneration: 2}
		}, "FAIL agent fabric-system/fabric-agent fits no node: its nodeSelector, affinity " +
			"and tolerations\n" + look, false},
		{"a new agent", func(c *Cluster) { c.DaemonSets[0].Generation = 3 },
			"FAIL agent fabric-system/fabric-agent has a new spec that Kubernetes has not rolled out\n" + look, false},
		{"a rollout", func(c *Cluster) { c.DaemonSets[0].Status.UpdatedNumberScheduled = 1 },
			"FAIL agent fabric-system/fabric-agent has its new version on 1 of 4 nodes\n" + look, false},
		{"a rollout by hand", func(c *Cluster) {
			c.DaemonSets[0].Status.UpdatedNumberScheduled = 1
			c.DaemonSets[0].Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}, "WARN agent fabric-system/fabric-agent has its new version on 1 of 4 nodes\n" + look, true},
		{"half a controller", func(c *Cluster) { c.Controller.Ready = 1 },
			"WARN controller 1 of 2 pods of the Deployment fabric-system/fabric-controller are ready\n" + look, true},
		{"a new controller", func(c *Cluster) { c.Controller.Updated = 1 },
			"FAIL controller fabric-system/fabric-controller has its new spec in 1 of 2 pods\n" + look, false},
		{"no leader", func(c *Cluster) { c.Controller.Leader = "" }, "FAIL controller no controller leads: the Lease " +
			"fabric-system/fabric-controller has no holder\n" + look, false},
		{"Multus without its kind", func(c *Cluster) { c.CRDs = nil },
			"FAIL Multus the API server does not serve its kind NetworkAttachmentDefinition\n" + look, false},
		{"Multus of the nodes' image", func(c *Cluster) { c.DaemonSets = c.DaemonSets[:1] }, "WARN Multus its kind " +
			"NetworkAttachmentDefinition is there, and no DaemonSet has multus in its name\n" + look, true},
		{"Multus on some nodes", func(c *Cluster) { c.DaemonSets[1].Status.NumberReady = 1 },
			"FAIL Multus kube-system/kube-multus-ds is ready on 1 of 3 nodes\n" + look, false},
	})
}

func TestStatusObjects(t *testing.T) {
	hasStatus(t, []statusCase{
		{"no FabricNode", func(c *Cluster) { c.FabricNodes = nil }, "FAIL nodes 0 of 0 FabricNodes are Ready; the " +
			"agent runs, and has made no FabricNode: cp, g1, g2, g3\n" + look, false},
		{"a FabricNode is missing", func(c *Cluster) { c.FabricNodes = c.FabricNodes[:3] }, "FAIL nodes 3 of 3 " +
			"FabricNodes are Ready; the agent runs, and has made no FabricNode: g3\n" + look, false},
		{"a FabricNode without a report", func(c *Cluster) { c.FabricNodes[1].Status.Conditions = nil },
			"FAIL nodes 3 of 4 FabricNodes are Ready; g1: its agent has reported nothing yet\n" + look, false},
		{"the worst node is named", func(c *Cluster) {
			unready(&c.FabricNodes[1], "PortDown")
			unready(&c.FabricNodes[2], "WrongRDMAMode")
			unready(&c.FabricNodes[3], "PluginMissing")
		}, "FAIL nodes 1 of 4 FabricNodes are Ready; g2: WrongRDMAMode: m\n" + look, false},
		{"a port is down", func(c *Cluster) { unready(&c.FabricNodes[1], "PortDown") },
			"WARN nodes 3 of 4 FabricNodes are Ready; g1: PortDown: m\n" + look, true},
		{"a node is gone", func(c *Cluster) {
			unready(&c.FabricNodes[1], "WrongRDMAMode")
			c.FabricNodes[1].Spec.Gone = &metav1.Time{Time: metav1.Now().Time}
		}, "", true},
		{"no Fabric", func(c *Cluster) { c.Fabrics = nil }, "FAIL Fabrics there is no Fabric\nfabricctl generate " +
			"fabric --cluster | kubectl apply -f -", false},
		{"a Fabric that no controller has seen", func(c *Cluster) {
			c.Fabrics = append(c.Fabrics, v1alpha1.Fabric{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
		}, "FAIL Fabrics 1 of 2 Fabrics are Ready; Fabric new: no controller has looked at it; 0 of 0 devices are " +
			"healthy, published in no namespace\n" + look, false},
		{"a Fabric that was changed", func(c *Cluster) { c.Fabrics[0].Generation = 4 }, "FAIL Fabrics 0 of 1 Fabrics " +
			"are Ready; Fabric ib: the controller has not looked at generation 4; 12 of 12 devices are healthy, " +
			"published in default, ml\n" + look, false},
		{"a node that works with an earlier spec", func(c *Cluster) {
			c.FabricNodes[2].Status.Fabrics[0].Generation = 2
		}, "FAIL Fabrics 0 of 1 Fabrics are Ready; Fabric ib: the spec of g2 is older than generation 3; 12 of 12 " +
			"devices are healthy, published in default, ml\n" + look, false},
		{"a Fabric that is deleted, and in use", func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[0] = metav1.Condition{Type: "Ready", Status: "False", Reason: "InUse"}
		}, "WARN Fabrics 0 of 1 Fabrics are Ready; Fabric ib is not Ready: InUse; 12 of 12 devices are healthy, " +
			"published in default, ml\n" + look, true},
		{"a Fabric that is degraded", func(c *Cluster) {
			c.Fabrics[0].Status.Conditions[1] = metav1.Condition{
				Type: "Degraded", Status: "True", Reason: "DevicesUnhealthy", Message: "PortDown 2"}
			c.Fabrics[0].Status.Devices.Healthy = 10
		}, "WARN Fabrics 1 of 1 Fabrics are Ready; Fabric ib: DevicesUnhealthy: PortDown 2; 10 of 12 devices are " +
			"healthy, published in default, ml\n" + look, true},
	})
}

// What could not be asked for is not ready, and is not taken for something that is missing.
func TestStatusUnknown(t *testing.T) {
	c := installed(t)
	c.Fabrics, c.Controller = nil, nil
	s := StatusOf(c, "fabric-system", map[string]string{
		PartFabrics: "list fabrics: forbidden", PartController: strings.Repeat("x", 1000)})
	want := "FAIL controller not known: " + strings.Repeat("x", 300) + "...\nFAIL Fabrics not known: list fabrics: " +
		"forbidden\nfabricctl doctor cluster"
	if d := cmp.Diff(want, lines(s)); d != "" || s.Ready {
		t.Errorf("ready %v (-want +got):\n%s", s.Ready, d)
	}
}

func TestDevices(t *testing.T) {
	c := installed(t)
	gone := fabricNode(t, "h20", "g4")
	gone.Spec.Gone = &metav1.Time{Time: metav1.Now().Time}
	long := strings.Repeat("x", 1000)
	odd := FabricNode{}
	odd.Name, odd.Status.Fabrics = "g9", []v1alpha1.NodeFabric{{Name: "ipoib", Devices: []v1alpha1.FabricDevice{
		{ID: long, HCA: long, Problem: "NoRange", Pods: []string{"ml/a", long}}}}}
	nodes := []FabricNode{c.FabricNodes[1], gone, odd}
	short := long[:maxDeviceText] + "..."
	h := c.FabricNodes[1].Status.Fabrics[0].Devices
	if c.FabricNodes[1].netdevOf(h[0].HCA) == "" {
		t.Fatal("the machine's first device has no interface: the test tests nothing")
	}
	netdev := func(i int) string { return c.FabricNodes[1].Node.HCA(h[i].HCA).Ports[0].Netdev }
	row := func(i int, state, pod, problem string) Device {
		return Device{Node: "g1", Device: h[i].ID, HCA: h[i].HCA, Netdev: netdev(i), Fabric: "ib", State: state,
			Pod: pod, Problem: problem}
	}
	held := []Device{
		row(0, DeviceHeld, "ml/train-0", ""), row(1, DeviceHeld, "ml/train-0", ""),
		{Node: "g9", Device: short, HCA: short, Fabric: "ipoib", State: DeviceHeld, Pod: "ml/a", Problem: "NoRange"},
		{Node: "g9", Device: short, HCA: short, Fabric: "ipoib", State: DeviceHeld, Pod: short, Problem: "NoRange"},
	}
	if d := cmp.Diff(held, Devices(nodes, false)); d != "" {
		t.Errorf("held (-want +got):\n%s", d)
	}
	all := append(held[:2:2], row(2, DeviceUnhealthy, "", "PortDown"), row(3, DeviceFree, "", ""))
	all = append(all, held[2:]...)
	if d := cmp.Diff(all, Devices(nodes, true)); d != "" {
		t.Errorf("all (-want +got):\n%s", d)
	}
}
