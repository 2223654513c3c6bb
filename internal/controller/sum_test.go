package controller

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// nodeWith is a FabricNode with devices of one Fabric.
func nodeWith(name string, devices ...v1alpha1.FabricDevice) v1alpha1.FabricNode {
	n := v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Fabrics = []v1alpha1.NodeFabric{{Name: "ib", Devices: devices, Addresses: 2}}
	return n
}

func TestSums(t *testing.T) {
	gone := nodeWith("gone", v1alpha1.FabricDevice{ID: "0"})
	gone.Spec.Gone = &metav1.Time{Time: noon}
	found := sums([]v1alpha1.FabricNode{
		nodeWith("a", v1alpha1.FabricDevice{ID: "0", LinkLayer: "InfiniBand", RateGb: 400, Pods: []string{"t/p"}},
			v1alpha1.FabricDevice{ID: "1", LinkLayer: "InfiniBand", RateGb: 400, Pods: []string{"t/p", "t/q"}}),
		nodeWith("b", v1alpha1.FabricDevice{ID: "0", RateGb: 200, Problem: ipamMissing, Pods: []string{"t/p"}},
			v1alpha1.FabricDevice{ID: "1", Problem: notConnected}),
		nodeWith("none"), gone,
	}, map[string]int{"ib": 4})
	s := found["ib"]
	if len(found) != 1 || s == nil {
		t.Fatalf("sums of %d Fabrics", len(found))
	}
	counts := v1alpha1.DeviceCounts{Total: 4, Healthy: 2, NotConnected: 1, Attached: 4}
	if s.devices != counts || s.unhealthy() != 1 || s.nodes != 2 || s.given != 4 {
		t.Errorf("%+v of %d nodes, %d addresses", s.devices, s.nodes, s.given)
	}
	if s.need != (need{inCluster: 16, onNode: 8}) {
		t.Errorf("it needs %+v", s.need)
	}
	if s.pods != 3 || users(s) != "t/p, t/p, t/q" { // one of each node may have this name
		t.Errorf("%d pods: %s", s.pods, users(s))
	}
	if s.layer() != "InfiniBand" || s.rate() != "200G-400G" || s.wrong() != "1 "+ipamMissing+", 1 "+notConnected {
		t.Errorf("%s, %s, %s", s.layer(), s.rate(), s.wrong())
	}
	if fmt.Sprint(s.missing) != "[b]" {
		t.Errorf("without the IPAM plugin: %q", s.missing)
	}
}

// What is wrong is bounded: a node makes up reasons as it likes.
func TestWrong(t *testing.T) {
	s := &sum{problems: map[string]int32{"Flapping": 1, "PortDown": 7, strings.Repeat("x", 99): 1}}
	if got, want := s.wrong(), "7 PortDown, 1 Flapping, 1 "+strings.Repeat("x", 40); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i := range 9 {
		s.problems[fmt.Sprint("y", i)] = 1
	}
	if got := s.wrong(); strings.Count(got, ",") != maxUsers || !strings.HasSuffix(got, ", and others") {
		t.Error(got)
	}
	mixed := &sum{layers: map[string]bool{"InfiniBand": true, "Ethernet": true}, rates: map[int32]bool{400: true}}
	if mixed.layer() != "mixed" || mixed.rate() != "400G" {
		t.Errorf("%s, %s", mixed.layer(), mixed.rate())
	}
}

// The capacity of nodes' ranges: without the network's own address, its broadcast address and a gateway's.
func TestCapacity(t *testing.T) {
	f := fabricOf(t, "ib", of26)
	node := func(r string) (n v1alpha1.FabricNode) {
		n.Spec.Ranges = append(assigned("other", "10.0.0.128/26"), assigned("ib", r)...)
		return n
	}
	first, middle := f.NodeRanges.Ranges[0], "10.0.0.64/26"
	if got := capacity(f, []v1alpha1.FabricNode{node(middle), node("10.0.0.192/26"), {}}); got != 64+63 {
		t.Errorf("%d addresses of %s", got, first.Prefix)
	}
	if got := capacity(nil, []v1alpha1.FabricNode{node(middle)}); got != 0 {
		t.Errorf("%d addresses of no Fabric", got)
	}
}

// The reasons of nodes that are not Ready are metrics' labels: they are bounded.
func TestNotReady(t *testing.T) {
	node := func(reason string, status metav1.ConditionStatus) (n v1alpha1.FabricNode) {
		n.Status.Conditions = []metav1.Condition{{Type: v1alpha1.FabricNodeReady, Status: status, Reason: reason}}
		return n
	}
	gone := node("NoDevices", metav1.ConditionFalse)
	gone.Spec.Gone = &metav1.Time{Time: noon}
	list := []v1alpha1.FabricNode{node("Ready", metav1.ConditionTrue), gone, {},
		node("NoDevices", metav1.ConditionFalse), node("NoDevices", metav1.ConditionFalse),
		node(strings.Repeat("x", maxReason+1), metav1.ConditionFalse)}
	if got := notReady(list); len(got) != 2 || got["NoDevices"] != 2 || got[otherReason] != 1 {
		t.Errorf("%v", got)
	}
	for i := range 2 * maxReasons {
		list = append(list, node(fmt.Sprint("R", i), metav1.ConditionFalse))
	}
	if got := notReady(list); len(got) > maxReasons+1 || got["NoDevices"] != 2 {
		t.Errorf("%d reasons: %v", len(got), got)
	}
}

// The labels of a Node follow what it has, and stay while a port is down or the mode can't be read.
func TestLabelsOf(t *testing.T) {
	is := map[string]string{"fabric.dev/ib.rate": "400", ModeLabel: "exclusive"}
	for name, tt := range map[string]struct {
		mode    string
		agent   string
		devices []v1alpha1.FabricDevice
		is      map[string]string
		want    string
		known   bool
	}{
		"two ports": {"shared", "v1", []v1alpha1.FabricDevice{{RateGb: 400}, {RateGb: 200}}, nil,
			"map[fabric.dev/ib.devices:2 fabric.dev/ib.rate:200 fabric.dev/rdma-mode:shared]", true},
		"one is down": {"shared", "v1", []v1alpha1.FabricDevice{{RateGb: 200}, {}}, is,
			"map[fabric.dev/ib.devices:2 fabric.dev/ib.rate:400 fabric.dev/rdma-mode:shared]", true},
		"the mode can't be read": {"", "v1", []v1alpha1.FabricDevice{{}}, is,
			"map[fabric.dev/ib.devices:1 fabric.dev/ib.rate:400 fabric.dev/rdma-mode:exclusive]", true},
		"no devices, and no mode":  {"", "v1", nil, is, "map[]", true},
		"a mode that there is not": {"turbo", "v1", nil, nil, "map[]", true},
	} {
		n := nodeWith("a", tt.devices...)
		n.Status.Agent, n.Status.RDMAMode = tt.agent, tt.mode
		got, known := labelsOf(&n, map[string]bool{"ib": true}, tt.is)
		if fmt.Sprint(got) != tt.want || known != tt.known {
			t.Errorf("%s: %v, %t", name, got, known)
		}
	}
	n := nodeWith("a", v1alpha1.FabricDevice{RateGb: 1})
	if got, _ := labelsOf(&n, nil, nil); len(got) != 0 {
		t.Errorf("of a Fabric that is gone: %v", got)
	}
	if _, known := labelsOf(&v1alpha1.FabricNode{}, nil, is); known {
		t.Error("without a word of its agent a Node keeps its labels")
	}
	all := map[string]string{"fabric.dev/ib.rate": "1", "fabric.dev/Ib.rate": "1", "fabric.dev/other": "1", "a": "b"}
	if got := ourLabels(all); len(got) != 1 || got["fabric.dev/ib.rate"] != "1" {
		t.Errorf("the controller's: %v", got)
	}
}

// A Node is marked for its ports, and for nothing that a pod can do.
func TestJudgement(t *testing.T) {
	for _, tt := range []struct {
		problems []string
		want     string
		known    bool
	}{
		{nil, "", false},
		{[]string{"", "RangeMissing"}, "", true},
		{[]string{"", notConnected}, "", true},
		{[]string{"", "PortDown", "Flapping"}, "2 of 3 devices: 1 PortDown, 2 Flapping", true},
	} {
		var devices []v1alpha1.FabricDevice
		for i, p := range tt.problems {
			devices = append(devices, v1alpha1.FabricDevice{ID: fmt.Sprint(i), Problem: p})
		}
		n := nodeWith("a", devices...)
		if got, known := judgement(&n); got != tt.want || known != tt.known {
			t.Errorf("%q: %q, %t", tt.problems, got, known)
		}
	}
}

func TestParseTaint(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "fabric.dev/unhealthy:NoSchedule": "fabric.dev/unhealthy NoSchedule", "a:NoExecute": "a NoExecute",
	} {
		taint, err := ParseTaint(text)
		if err != nil {
			t.Fatal(err)
		}
		if (taint == nil) != (want == "") || taint != nil && taint.Key+" "+string(taint.Effect) != want {
			t.Errorf("%q: %v", text, taint)
		}
	}
	for _, text := range []string{"a", "a:", ":NoSchedule", "a:noschedule", "a b:NoSchedule", "a:NoSchedule:x"} {
		if taint, err := ParseTaint(text); err == nil {
			t.Errorf("%q: %v", text, taint)
		}
	}
}
