package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// link is a node's agent as far as the API server sees it.
func (s *skewed) link(node string) (*cluster.Link, func()) {
	s.t.Helper()
	until(s.t, func() string { // for a moment, the API server does not list the kinds of a CRD that it serves
		n := &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: node}} // a new one gets its inventory only later
		if err := s.Client.Create(s.t.Context(), n); client.IgnoreAlreadyExists(err) != nil {
			return err.Error()
		}
		return ""
	})
	l, err := cluster.NewLink(s.Config, node, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	until(s.t, func() string {
		if l.Synced() {
			return ""
		}
		return "no link to the API server"
	})
	return l, func() { cancel(); <-ended }
}

// fullStatus has something in each field.
func fullStatus() *v1alpha1.FabricNodeStatus {
	return &v1alpha1.FabricNodeStatus{
		Agent: "v1", Plugin: v1alpha1.Plugin{Version: "v1", SHA256: "ab"}, RDMAMode: "exclusive",
		Devices: v1alpha1.DeviceCounts{Total: 1, Healthy: 1},
		Fabrics: []v1alpha1.NodeFabric{{Name: "ib", Generation: 1, Devices: []v1alpha1.FabricDevice{
			{ID: "0000:3b:00.0", HCA: "mlx5_0", LinkLayer: "InfiniBand", RateGb: 400},
		}}},
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: metav1.Time{Time: time.Unix(1, 0)},
		}},
		Inventory: &runtime.RawExtension{Raw: []byte(`{"name":"a","hcas":[]}`)},
		Held:      &v1alpha1.HeldAddresses{},
	}
}

// reported waits until the API server has a status, and the agent has seen it there.
func (s *skewed) reported(l *cluster.Link, node string, status *v1alpha1.FabricNodeStatus) {
	s.t.Helper()
	if ok, err := l.Report(s.t.Context(), status); !ok || err != nil {
		s.t.Fatalf("the status is not written: %v", err)
	}
	version := s.version("FabricNode", node)
	until(s.t, func() string {
		if own := l.Own(); own != nil && own.ResourceVersion == version {
			return ""
		}
		return "the agent does not see its FabricNode"
	})
	for range 3 { // it would return false if it had something to write, because that is too soon
		if ok, err := l.Report(s.t.Context(), status.DeepCopy()); !ok || err != nil {
			s.t.Errorf("the same status again: %t, %v", ok, err)
		}
	}
	if now := s.version("FabricNode", node); now != version {
		s.t.Errorf("it is at %s, was at %s", now, version)
	}
}

// An agent and CRDs of the next version: what it does not know is there, and stays.
func TestAgentWithNewerCRDs(t *testing.T) {
	s := startSkewed(t, newer)
	s.apply("ib", `{class: gold, network: {colour: red, mtu: 4092}}`)
	s.patch("Fabric", "ib", `{"status": {"phase": "Settled", "inForce": {"generation": 1,
	  "spec": {"class": "gold", "network": {"colour": "red", "mtu": 4092}}}}}`, "status")
	l, end := s.link("a")
	s.reported(l, "a", fullStatus())
	s.patch("FabricNode", "a", `{"spec": {"zone": "z1", "ranges": [
	  {"fabric": "ib", "subnet": "10.0.0.0/16", "range": "10.0.0.0/26", "weight": 7}]}}`)
	s.patch("FabricNode", "a", `{"status": {"phase": "Settled"}}`, "status")
	until(t, func() string {
		if own := l.Own(); own != nil && len(own.Spec.Ranges) == 1 && own.Spec.Ranges[0].Range == "10.0.0.0/26" {
			return ""
		}
		return "the agent is not told of its range"
	})
	if list := l.Fabrics(); len(list) != 1 || *list[0].Status.InForce.Spec.Network.MTU != 4092 {
		t.Errorf("the agent is told of %v", list)
	}
	end()
	// The next one on this node begins with what is there.
	l, end = s.link("a")
	defer end()
	version := s.version("FabricNode", "a")
	s.reported(l, "a", fullStatus())
	if now := s.version("FabricNode", "a"); now != version {
		t.Errorf("the same status is written again: %s, was %s", now, version)
	}
	phase, zone := s.text("FabricNode", "a", "status", "phase"), s.text("FabricNode", "a", "spec", "zone")
	if phase != "Settled" || zone != "z1" {
		t.Errorf("what the agent does not know is now %s and %s", phase, zone)
	}
}

// A next version must not require a field of a status. If it does, the agent says which one it is, and goes on.
func TestAgentWithStricterCRDs(t *testing.T) {
	s := startSkewed(t, strict)
	l, end := s.link("a")
	defer end()
	status := fullStatus()
	_, err := l.Report(t.Context(), status)
	if err == nil || !strings.Contains(err.Error(), "status.phase: Required value") {
		t.Errorf("%v", err)
	}
	if ok, err := l.Report(t.Context(), status); ok || err != nil {
		t.Errorf("it is tried again at once: %t, %v", ok, err)
	}
	s.patch("FabricNode", "a",
		`{"spec": {"ranges": [{"fabric": "ib", "subnet": "10.0.0.0/16", "range": "10.0.0.0/26"}]}}`)
	until(t, func() string {
		if own := l.Own(); own != nil && len(own.Spec.Ranges) == 1 {
			return ""
		}
		return "the agent is not told of its range"
	})
}

// CRDs of the version before: what they do not know is lost, and no agent writes it again and again.
func TestAgentWithOlderCRDs(t *testing.T) {
	s := startSkewed(t, older)
	l, end := s.link("a")
	s.reported(l, "a", fullStatus())
	if got := s.text("FabricNode", "a", "status", "inventory"); got != "<nil>" {
		t.Fatalf("these CRDs know the inventory: %s", got)
	}
	end()
	version := s.version("FabricNode", "a")
	l, end = s.link("a")
	defer end()
	s.reported(l, "a", fullStatus())
	if now := s.version("FabricNode", "a"); now != version {
		t.Errorf("the same status is written again: %s, was %s", now, version)
	}
}

// The controller with CRDs of the version before comes to rest.
func TestControllerWithOlderCRDs(t *testing.T) {
	s := startSkewed(t, older)
	s.apply("ib", "{"+ranged+"}")
	s.addSkewedNode("a")
	c := s.controller()
	c.rounds(4)
	fabric, node := s.version("Fabric", "ib"), s.version("FabricNode", "a")
	c.rounds(4)
	if f, n := s.version("Fabric", "ib"), s.version("FabricNode", "a"); f != fabric || n != node {
		t.Errorf("Fabric at %s, was at %s; FabricNode at %s, was at %s", f, fabric, n, node)
	}
	if got := ranges(t, s.Client); got != "a 10.0.0.0/26" {
		t.Error(got)
	}
	if got := s.condition("ib", v1alpha1.FabricReady); !strings.HasPrefix(got, "True") {
		t.Error(got)
	}
}

// A Fabric with a value that this version does not know keeps what is in force, and a condition tells that.
func TestControllerWithNewerCRDs(t *testing.T) {
	s := startSkewed(t, newer)
	s.apply("ib", "{class: gold, "+ranged+"}")
	s.addSkewedNode("a")
	c := s.controller()
	c.rounds(3)
	if got := s.condition("ib", v1alpha1.FabricAccepted); !strings.HasPrefix(got, "True") {
		t.Fatal(got)
	}
	turbo := strings.Replace(ranged, "WholeDevice", "turbo", 1)
	s.apply("ib", "{class: gold, "+turbo+"}")
	c.rounds(3)
	want := `False Refused: generation 1 stays in force: attachment "turbo": must be WholeDevice or IPoIBChild`
	if got := s.condition("ib", v1alpha1.FabricAccepted); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := s.text("Fabric", "ib", "status", "inForce", "spec", "attachment"); got != "WholeDevice" {
		t.Errorf("attachment %s is in force", got)
	}
	if got := s.text("Fabric", "ib", "spec", "class"); got != "gold" {
		t.Errorf("class %q, which the controller does not know", got)
	}
	if got := ranges(t, s.Client); got != "a 10.0.0.0/26" {
		t.Error(got)
	}
	if got := definitions(t, s.Client, "ib"); len(got) != 1 {
		t.Errorf("networks in %q", got)
	}
}

// The controller is set back to this version while the next one has put into force what this one can't read: what is
// there stays. The next version then puts into force what this one did not know.
func TestControllerSetBack(t *testing.T) {
	s := startSkewed(t, newer)
	s.apply("ib", "{"+ranged+"}")
	s.addSkewedNode("a")
	s.controller().rounds(3)
	s.patch("Fabric", "ib", `{"status": {"inForce": {"spec": {"attachment": "turbo"}}}}`, "status")
	s.patch("Fabric", "ib", `{"spec": {"attachment": "turbo"}}`)
	s.patch("Fabric", "ib", `{"status": {"inForce": {"generation": 2}}}`, "status")
	back := s.controller()
	back.rounds(2)
	s.addSkewedNode("b")
	back.rounds(2)
	if got := ranges(t, s.Client); got != "a 10.0.0.0/26" {
		t.Errorf("%q", got)
	}
	if got := definitions(t, s.Client, "ib"); len(got) != 1 {
		t.Errorf("networks in %q", got)
	}
	want := `False Refused: generation 2 is in force, and stays as it is: this controller can't read it`
	if got := s.condition("ib", v1alpha1.FabricReady); !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if got := s.text("Fabric", "ib", "status", "inForce", "spec", "attachment"); got != "turbo" {
		t.Errorf("attachment %s is in force", got)
	}
	// To this version the older one's work looks like this: a field of the same generation is missing.
	s.patch("Fabric", "ib", `{"spec": {"attachment": "WholeDevice", "network": {"mtu": 4092}}}`)
	s.patch("Fabric", "ib",
		`{"status": {"inForce": {"generation": 3, "spec": {"attachment": "WholeDevice", "network": null}}}}`, "status")
	s.controller().rounds(2)
	if got := s.text("Fabric", "ib", "status", "inForce", "spec", "network", "mtu"); got != "4092" {
		t.Errorf("mtu %s is in force", got)
	}
	if got := ranges(t, s.Client); got != "a 10.0.0.0/26, b 10.0.0.64/26" {
		t.Errorf("%q", got)
	}
}

// The next version of the controller has put into force what an agent can't read: the agent goes on with what it had,
// and reports that in its FabricNode.
func TestAgentOfOlderVersion(t *testing.T) {
	s := startSkewed(t, newer)
	s.apply("ib", `{match: {linkLayer: InfiniBand}, attachment: WholeDevice}`)
	s.patch("Fabric", "ib", `{"status": {"inForce": {"generation": 1,
	  "spec": {"match": {"linkLayer": "InfiniBand"}, "attachment": "WholeDevice"}}}}`, "status")
	defer s.runAgent("a")()
	works := func(generation int64) string {
		n := &v1alpha1.FabricNode{}
		if err := s.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
			return err.Error()
		}
		for _, f := range n.Status.Fabrics {
			if f.Name == "ib" && f.Generation == generation && len(f.Devices) == 1 {
				return ""
			}
		}
		return fmt.Sprintf("the node has %+v", n.Status.Fabrics)
	}
	until(t, func() string { return works(1) })
	s.apply("ib", `{match: {linkLayer: InfiniBand}, attachment: turbo}`)
	s.patch("Fabric", "ib", `{"status": {"inForce": {"generation": 2, "spec": {"attachment": "turbo"}}}}`, "status")
	until(t, func() string {
		n := &v1alpha1.FabricNode{}
		if err := s.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
			return err.Error()
		}
		c := apimeta.FindStatusCondition(n.Status.Conditions, v1alpha1.FabricNodeFabricsKnown)
		if c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, `attachment "turbo"`) {
			return works(1)
		}
		return fmt.Sprintf("conditions: %+v", n.Status.Conditions)
	})
}
