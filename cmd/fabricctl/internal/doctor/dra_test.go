package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// kinds are those of the objects that a test makes: kubectl prints them, and the types do not have them.
func kindOf(o any) string {
	switch o.(type) {
	case *resourceapi.ResourceClaim:
		return "ResourceClaim"
	case *resourceapi.ResourceClaimTemplate:
		return "ResourceClaimTemplate"
	case *resourceapi.ResourceSlice:
		return "ResourceSlice"
	case *resourceapi.DeviceClass:
		return "DeviceClass"
	case *corev1.Event:
		return "Event"
	}
	return "Pod"
}

// printed is an object as kubectl prints it, read into something else.
func printed(t *testing.T, o, into any) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

func draOf(t *testing.T, objects ...any) *DRA {
	t.Helper()
	d := &DRA{}
	for _, o := range objects {
		x := DRAObject{Kind: kindOf(o)}
		printed(t, o, &x)
		if err := d.Add(&x); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func inML(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ml", Name: name} }

func rails(count int64, selectors ...string) resourceapi.ResourceClaimSpec {
	r := &resourceapi.ExactDeviceRequest{DeviceClassName: "ib.fabric.dev", Count: count,
		AllocationMode: resourceapi.DeviceAllocationModeExactCount}
	for _, s := range selectors {
		cel := &resourceapi.CELDeviceSelector{Expression: s}
		r.Selectors = append(r.Selectors, resourceapi.DeviceSelector{CEL: cel})
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "rails", Exactly: r}},
	}}
}

// poolOf is the slice of a node with so many devices of the fabric ib, of which the last ones are down.
func poolOf(node string, devices, down int) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-fabric.dev"}}
	s.Spec = resourceapi.ResourceSliceSpec{Driver: draDriver, NodeName: &node,
		Pool: resourceapi.ResourcePool{Name: node, Generation: 2, ResourceSliceCount: 1}}
	fabric, rate := "ib", int64(400)
	for i := range devices {
		rail := int64(i)
		d := resourceapi.Device{Name: fmt.Sprintf("pci-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"fabric": {StringValue: &fabric}, "rail": {IntValue: &rail}, "rateGb": {IntValue: &rate},
			}}
		if i >= devices-down {
			d.Taints = []resourceapi.DeviceTaint{{Key: "fabric.dev/unhealthy", Value: "PortDown",
				Effect: resourceapi.DeviceTaintEffectNoSchedule}}
		}
		s.Spec.Devices = append(s.Spec.Devices, d)
	}
	return s
}

// claimOf is a claim, with devices of a node if it has any.
func claimOf(name, node string, count int64, pods ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: inML(name), Spec: rails(count)}
	if node != "" {
		a := &resourceapi.AllocationResult{}
		for i := range count {
			a.Devices.Results = append(a.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Request: "rails", Driver: draDriver, Pool: node, Device: fmt.Sprintf("pci-%d", i)})
		}
		c.Status.Allocation = a
	}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: p})
	}
	return c
}

// podOf is a Pending pod of a template, with a claim if Kubernetes has made one, and networks.
func podOf(template, claim string, networks int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: inML("train-0")}
	p.Annotations = map[string]string{
		networksAnnotation: strings.TrimSuffix(strings.Repeat("ib, ", networks), ", "), statusAnnotation: "[]",
	}
	p.UID = "u1"
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "rails", ResourceClaimTemplateName: &template}}
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "rails"}}
	p.Status.Phase = corev1.PodPending
	if claim != "" {
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "rails", ResourceClaimName: &claim}}
	}
	return p
}

var (
	ibClass    = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "ib.fabric.dev"}}
	ibTemplate = &resourceapi.ResourceClaimTemplate{ObjectMeta: inML("train"),
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: rails(8)}}
)

// ibNetworks is the network of the Fabric ib, whose devices come from claims.
func ibNetworks() *NADs {
	var n NAD
	n.Metadata.Name, n.Metadata.Namespace = "ib", "ml"
	n.Metadata.Annotations = map[string]string{resourceAnnotation: "fabric.dev/ib"}
	n.Spec.Config = `{"type":"fabric","name":"ib","allocation":"DRA"}`
	return &NADs{Items: []NAD{n}}
}

// fleet are 39 nodes with devices of the fabric ib, its class and a template, and more.
func fleet(more ...any) []any {
	for i := range 37 {
		more = append(more, poolOf(fmt.Sprintf("n%02d", i), 7, 0))
	}
	return append(more, poolOf("x1", 6, 2), poolOf("x2", 4, 0), ibClass, ibTemplate)
}

// event is a Warning about the pod that podOf makes.
func event(reason, message string) *corev1.Event {
	return &corev1.Event{Type: "Warning", Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{
		Kind: "Pod", Namespace: "ml", Name: "train-0", UID: "u1"}}
}

type claimCase struct {
	name    string
	pod     *corev1.Pod
	objects []any
	want    string
}

const ofPod = "train-0-rails" // the claim that Kubernetes has made for the pod

const sufficient = "WARN pod-claim-allocated there are enough devices for each request on one node, and the " +
	"scheduler has not given them: requests for the same device, matchAttribute, other drivers or the node's other " +
	"resources decide\n"

// unscheduled are pods of which the scheduler has not found a node, and what is said of them.
func unscheduled() []claimCase {
	other := *ibTemplate
	other.Namespace = "team"
	incomplete := poolOf("n9", 8, 0)
	incomplete.Spec.Pool.ResourceSliceCount = 2
	selects := func(
		count int64, selector string, tolerations ...resourceapi.DeviceToleration,
	) *resourceapi.ResourceClaim {
		c := claimOf(ofPod, "", count)
		c.Spec = rails(count, selector)
		c.Spec.Devices.Requests[0].Exactly.Tolerations = tolerations
		return c
	}
	portDown := resourceapi.DeviceToleration{Key: "fabric.dev/unhealthy", Value: "PortDown"}
	flapping := resourceapi.DeviceToleration{Key: "fabric.dev/unhealthy", Value: "Flapping"}
	return []claimCase{
		{"these rails", podOf("train", ofPod, 3), fleet(selects(3, `device.attributes["fabric.dev"].rail in [1, 2]`)),
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node has 3 devices of fabric ib ` +
				"with `device.attributes[\"fabric.dev\"].rail in [1, 2]` with state Active: 39 nodes have 2\n"},
		{"no such attribute", podOf("train", ofPod, 1), []any{
			selects(1, `device.attributes["fabric.dev"].speed > 1`), poolOf("n1", 1, 0), ibClass},
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no device can be judged: n1 pci-0: ` +
				"selector `device.attributes[\"fabric.dev\"].speed > 1`: no such key: speed\n"},
		{"no CEL", podOf("train", ofPod, 1), fleet(selects(1, "rail == 1")),
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": selector ` + "`rail == 1`: " +
				"compilation failed: ERROR: <input>:1:1: undeclared reference to 'rail' (in container '') | " +
				"rail == 1 | ^\n"},
		{"tolerated", podOf("train", ofPod, 8), []any{selects(8, "true", portDown),
			poolOf("n1", 8, 1), ibClass}, sufficient},
		{"not tolerated", podOf("train", ofPod, 8), []any{selects(8, "true", flapping), poolOf("n1", 8, 1), ibClass},
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node has 8 devices of fabric ib ` +
				"with `true` with state Active: 1 node has 7 (unhealthy: n1 pci-7 PortDown)\n"},
		{"too many", podOf("train", ofPod, 8), fleet(claimOf(ofPod, "", 8)),
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node has 8 devices of fabric ib ` +
				`with state Active: 37 nodes have 7, 2 nodes have 4 (unhealthy: x1 pci-4 PortDown, x1 pci-5 ` +
				"PortDown)\n"},
		{"what the scheduler says of it", podOf("train", ofPod, 8), fleet(claimOf(ofPod, "", 8),
			event("FailedScheduling", "0/39 nodes are available: 39 cannot allocate all claims.")),
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node has 8 devices of fabric ib ` +
				`with state Active: 37 nodes have 7, 2 nodes have 4 (unhealthy: x1 pci-4 PortDown, x1 pci-5 ` +
				"PortDown)\n"},
		{"taken", podOf("train", ofPod, 7), []any{claimOf(ofPod, "", 7),
			claimOf("other", "n1", 1, "train-1"), poolOf("n1", 7, 0), ibClass, ibTemplate},
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node has 7 devices of fabric ib ` +
				"that are free: 1 node has 6 (n1 pci-0 has claim ml/other of pod train-1)\n"},
		{"this rail", podOf("train", ofPod, 1), fleet(selects(1, `device.attributes["fabric.dev"].rail == 7`)),
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node offers 1 device of fabric ib ` +
				"with `device.attributes[\"fabric.dev\"].rail == 7`\n"},
		{"this rate", podOf("train", ofPod, 1), fleet(
			selects(1, `device.attributes["fabric.dev"].?rateGb.orValue(0) >= 800`)),
			`FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node offers 1 device of fabric ib ` +
				"with `device.attributes[\"fabric.dev\"].?rateGb.orValue(0) >= 800`\n"},
		{"something else", podOf("train", ofPod, 1), fleet(claimOf(ofPod, "", 1)),
			sufficient},
		{"no template", podOf("trian", "", 8), fleet(&other),
			`FAIL pod-claim claim "rails": the ResourceClaimTemplate "trian" does not exist in namespace ml` + "\n"},
		{"in another namespace", podOf("train", "", 8), []any{&other, ibClass},
			`FAIL pod-claim claim "rails": the ResourceClaimTemplate "train" does not exist in namespace ml; there ` +
				"is team/train\n"},
		{"not made", podOf("train", "", 7), fleet(),
			`FAIL pod-claim claim "rails": Kubernetes has not made it of the ResourceClaimTemplate "train" yet` + "\n" +
				`FAIL pod-claim-allocated claim "rails", request "rails": no node has 8 devices of fabric ib with ` +
				"state Active: 37 nodes have 7, 2 nodes have 4 (unhealthy: x1 pci-4 PortDown, x1 pci-5 PortDown)\n"},
		{"no claim", podOf("train", "gone", 0), fleet(),
			`FAIL pod-claim claim "rails": the ResourceClaim "gone" does not exist in namespace ml` + "\n"},
		{"no class", podOf("train", ofPod, 4), []any{claimOf(ofPod, "", 4), poolOf("n1", 4, 0),
			&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "roce.fabric.dev"}}},
			`FAIL pod-claim-class claim ml/train-0-rails, request "rails": the DeviceClass "ib.fabric.dev" does not ` +
				"exist; of fabric.dev there are: roce.fabric.dev\n" + sufficient},
		{"incomplete pool", podOf("train", ofPod, 8), []any{claimOf(ofPod, "", 8), incomplete, ibClass},
			"WARN pod-claim-pool pool n9: 1 of 2 slices of generation 2\n"},
	}
}

// scheduled are pods with devices that do not start, and what is said of them.
func scheduled() []claimCase {
	return []claimCase{
		{"in order", podOf("train", ofPod, 4), fleet(claimOf(ofPod, "n00", 4, "train-0")), ""},
		{"two pods", podOf("train", ofPod, 4), fleet(claimOf(ofPod, "n00", 4, "train-0", "train-1")),
			"FAIL pod-claim-shared claim ml/train-0-rails has been given to 2 pods: train-0, train-1\n"},
		{"fewer networks", podOf("train", ofPod, 3), fleet(claimOf(ofPod, "n00", 4, "train-0")), ""},
		{"no network", podOf("train", ofPod, 0), fleet(claimOf(ofPod, "n00", 4, "train-0")), ""},
		{"a network too many", podOf("train", ofPod, 5), fleet(claimOf(ofPod, "n00", 4, "train-0")),
			"FAIL pod-claim-count fabric ib: 5 networks of it in the annotation, 4 devices of it in the pod's " +
				"claims\n"},
		{"driver away", podOf("train", ofPod, 4), fleet(claimOf(ofPod, "n00", 4, "train-0"),
			event("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic resources: "+
				"DRA driver fabric.dev is not registered")),
			"FAIL pod-event FailedPrepareDynamicResources: Failed to prepare dynamic resources: prepare dynamic " +
				"resources: DRA driver fabric.dev is not registered\n"},
		{"no UID", podOf("train", ofPod, 4), fleet(claimOf(ofPod, "n00", 4, "train-0"),
			event("FailedCreatePodSandBox", "plugin type=\"multus-shim\" failed (add): fabric: CNI_ARGS has no "+
				"K8S_POD_UID, and the device is one")),
			"FAIL pod-event FailedCreatePodSandBox: plugin type=\"multus-shim\" failed (add): fabric: CNI_ARGS has " +
				"no K8S_POD_UID, and the device is one\n"},
	}
}

func TestCheckClaims(t *testing.T) {
	for _, c := range append(unscheduled(), scheduled()...) {
		var m Manifest
		c.pod.Kind = "Pod"
		printed(t, c.pod, &m)
		if d := cmp.Diff(c.want, text(CheckClaims(&m, ibNetworks(), draOf(t, c.objects...)))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		m.Status.Phase = "Running"
		for _, f := range CheckClaims(&m, nil, draOf(t, c.objects...)) {
			if f.ID == "pod-event" || f.ID == "pod-claim-count" {
				t.Errorf("%s: running, networks not known: %+v", c.name, f)
			}
		}
	}
}

// What can be said of a pod without the API server, or with the rights of its namespace only.
func TestCheckClaimsWithLess(t *testing.T) {
	var m Manifest
	pod := podOf("train", "train-0-rails", 4)
	pod.Spec.Containers[0].Resources.Claims = nil
	printed(t, pod, &m)
	d := draOf(t, claimOf("train-0-rails", "n1", 8))
	d.Partial, d.Missing = true, []string{"kubectl get resourceslices: forbidden"}
	const want = "WARN pod-claim-access kubectl get resourceslices: forbidden\n" +
		"FAIL pod-claim-container spec.resourceClaims has \"rails\", and no container has it in resources.claims\n"
	if d := cmp.Diff(want, text(CheckClaims(&m, ibNetworks(), d))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := CheckClaims(&m, ibNetworks(), nil); len(got) != 0 {
		t.Errorf("nothing is known of its claims: %v", got)
	}
	m.Kind = "Pod"
	delete(m.Metadata.Annotations, statusAnnotation) // it has no node yet
	if got, err := CheckManifest(&m, nil); err != nil || strings.Contains(text(got), "pod-count") ||
		strings.Contains(text(got), "pod-multus") {
		t.Errorf("%v: %v", got, err)
	}
	m.Spec.Claims = nil
	const reverse = "FAIL pod-claim-count fabric ib: 4 networks of it in the annotation, 0 devices of it in the " +
		"pod's claims\n"
	if d := cmp.Diff(reverse, text(CheckClaims(&m, ibNetworks(), nil))); d != "" {
		t.Errorf("networks without claims (-want +got):\n%s", d)
	}
	m.Spec.Containers[0].Resources.Limits = map[string]any{"fabric.dev/ib": "4"} // an extended resource
	if got := text(CheckClaims(&m, ibNetworks(), nil)); got != "" {
		t.Error(got)
	}
	const four = "FAIL pod-claim-allocated resource fabric.dev/ib: no node has 4 devices of fabric ib with state " +
		"Active: 1 node has 3\n"
	if got := text(CheckClaims(&m, ibNetworks(), draOf(t, ibClass, poolOf("n1", 3, 0)))); got != four {
		t.Error(got)
	}
	m.Spec.Node = "n1"
	if got := text(CheckClaims(&m, ibNetworks(), draOf(t, ibClass, poolOf("n1", 3, 0)))); got != "" || !m.Claimed() {
		t.Error(got)
	}
	bad := &DRAObject{Kind: "ResourceSlice", Spec: json.RawMessage(`{"devices":7}`)}
	if err := d.Add(bad); err == nil || !strings.Contains(err.Error(), "ResourceSlice") {
		t.Error(err)
	}
	if err := d.Add(&DRAObject{Kind: "Secret"}); err == nil {
		t.Error("a Secret is taken")
	}
}

// Devices that the API server keeps no taints of are in no slice: FabricNodes say why.
func TestUnhealthyWithoutTaints(t *testing.T) {
	d := draOf(t, claimOf("train-0-rails", "", 8), poolOf("n1", 7, 0), ibClass)
	n := FabricNode{}
	n.Name = "n1"
	n.Status.Fabrics = []v1alpha1.NodeFabric{{Name: "ib", Devices: []v1alpha1.FabricDevice{
		{ID: "0000:3b:00.0", Problem: "Flapping"}, {ID: "0000:3c:00.0"}}}}
	d.FabricNodes = []FabricNode{n}
	var m Manifest
	printed(t, podOf("train", "train-0-rails", 8), &m)
	const want = `FAIL pod-claim-allocated claim ml/train-0-rails, request "rails": no node has 8 devices of fabric ` +
		"ib with state Active: 1 node has 7 (unhealthy: n1 0000:3b:00.0 Flapping)\n"
	if d := cmp.Diff(want, text(CheckClaims(&m, nil, d))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestClusterDRA(t *testing.T) {
	node := func(name string) FabricNode {
		n := FabricNode{}
		n.Name = name
		n.Status.Fabrics = []v1alpha1.NodeFabric{{Name: "ib", Devices: []v1alpha1.FabricDevice{{ID: "0"}}}}
		return n
	}
	f := v1alpha1.Fabric{}
	f.Name, f.Spec.Allocation = "ib", v1alpha1.DRA
	incomplete := poolOf("n1", 1, 0)
	incomplete.Spec.Pool.ResourceSliceCount = 3
	for _, c := range []struct {
		name    string
		served  bool
		kubelet string
		objects []any
		want    string
	}{
		{"in order", true, "v1.34.4", []any{ibClass, poolOf("n1", 1, 0), poolOf("n2", 1, 0)}, ""},
		{"not served", false, "", nil, "FAIL cluster-dra-api the API server does not serve resource.k8s.io/v1, and " +
			"these Fabrics have allocation DRA: ib\n"},
		{"old kubelet", true, "v1.33.1", []any{ibClass, poolOf("n1", 1, 0), poolOf("n2", 1, 0)},
			"FAIL cluster-dra-api kubelet is older than 1.34 on n1 (v1.33.1)\n"},
		{"no class, no slices", true, "v1.34.4", []any{poolOf("n1", 1, 0)},
			"FAIL cluster-dra-class Fabric ib: no DeviceClass ib.fabric.dev\n" +
				"FAIL cluster-dra-slices Fabric ib: no ResourceSlice of fabric.dev has devices of it on n2\n"},
		{"incomplete", true, "v1.35.0-rc.1", []any{ibClass, incomplete, poolOf("n2", 1, 0)},
			"WARN cluster-dra-slices incomplete pool n1: 1 of 3 slices of generation 2\n"},
	} {
		p := &Cluster{Fabrics: []v1alpha1.Fabric{f}, FabricNodes: []FabricNode{node("n1"), node("n2")}}
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		n.Status.NodeInfo.KubeletVersion = c.kubelet
		p.Nodes = []corev1.Node{n}
		p.DRA = &ClusterDRA{DRA: *draOf(t, c.objects...), Served: c.served}
		if d := cmp.Diff(c.want, text(clusterDRA(p))); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		p.Fabrics[0].Spec.Allocation = ""
		if got := clusterDRA(p); got != nil {
			t.Errorf("%s, without DRA: %v", c.name, got)
		}
	}
}
