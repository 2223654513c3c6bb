package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// nodesThat are FabricNodes whose agents say what pods hold, and further ones that do not.
func nodesThat(say []string, silent ...string) (out []v1alpha1.FabricNode) {
	for _, name := range say {
		out = append(out, v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1alpha1.FabricNodeStatus{Held: &v1alpha1.HeldAddresses{}}})
	}
	for _, name := range silent {
		out = append(out, v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return out
}

// Fresh ranges wait for the agents that may have pods with addresses, and for no others.
func TestHeard(t *testing.T) {
	present := map[string]bool{"a": true, "b": true, "new": true}
	born := map[string]time.Time{"new": noon.Add(time.Second)} // the others were there when the term began
	want := func(n int) Agents { return func(context.Context) (int, bool, error) { return n, true, nil } }
	h := heard{began: noon}
	for _, step := range []struct {
		name    string
		after   time.Duration
		nodes   []v1alpha1.FabricNode
		agents  Agents
		missing string
	}{
		{"a says nothing yet, nor has b a FabricNode", 0, nodesThat(nil, "a"), want(2), "[a b]"},
		{"there are no agents to wait for", 0, nodesThat(nil), nil, "[]"},
		{"as many are heard as there are agents", time.Second, nodesThat([]string{"a"}), want(1), "[]"},
		{"one more agent is wanted", time.Second, nodesThat([]string{"a"}), want(2), "[b]"},
		{"the DaemonSet is gone", time.Second, nodesThat([]string{"a"}),
			func(context.Context) (int, bool, error) { return 0, false, nil }, "[]"},
		{"a's FabricNode is deleted: it was heard in this term", time.Second, nodesThat([]string{"b"}), want(0), "[a]"},
		{"it is silent for a while", patience, nodesThat([]string{"b"}), want(2), "[a]"},
		{"and for too long", patience + 2*time.Second, nodesThat([]string{"b"}), want(2), "[]"},
		{"it is heard again", patience + 3*time.Second, nodesThat([]string{"a", "b"}), want(3), "[]"},
	} {
		now := noon.Add(step.after)
		h.note(step.nodes, present, now)
		got, err := h.missing(t.Context(), step.agents, born, now)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != step.missing {
			t.Errorf("%s: missing are %q, want %s", step.name, got, step.missing)
		}
	}
}

// While it is not known how many agents there are, it waits for those that were there.
func TestHeardUnknown(t *testing.T) {
	h := heard{began: noon}
	h.note(nil, map[string]bool{"a": true}, noon)
	away := errors.New("away")
	got, err := h.missing(t.Context(), func(context.Context) (int, bool, error) { return 0, true, away }, nil, noon)
	if !errors.Is(err, away) || fmt.Sprint(got) != "[a]" {
		t.Errorf("missing are %q, %v", got, err)
	}
}

// A node is done with a former range when it works with its spec, and says that its pods hold nothing of it.
func TestRid(t *testing.T) {
	had := assigned("ib", "10.0.0.0/26")[0]
	says := func(generation int64, held ...string) v1alpha1.FabricNodeStatus {
		return v1alpha1.FabricNodeStatus{ObservedGeneration: generation, Held: &v1alpha1.HeldAddresses{
			Fabrics: []v1alpha1.HeldOfFabric{{Name: "other", Prefixes: held}},
		}}
	}
	for name, tt := range map[string]struct {
		status v1alpha1.FabricNodeStatus
		had    string
		want   bool
	}{
		"it holds nothing":                    {says(3), "", true},
		"it works with an earlier spec":       {says(2), "", false},
		"it holds an address, of any Fabric":  {says(3, "10.0.0.9/32"), "", false},
		"it holds one of another range":       {says(3, "10.0.0.64/32"), "", true},
		"gaps between addresses are closed":   {says(3, "10.0.0.0/23"), "", false},
		"no agent has said anything":          {v1alpha1.FabricNodeStatus{ObservedGeneration: 3}, "", false},
		"an older agent, with devices in use": {older(1), "", false},
		"an older agent, with none in use":    {older(0), "", true},
		"what had no range can't be held":     {says(3), "?", true},
	} {
		r := &Ranges{ledger: ledger{nodes: map[string]entry{"a": {generation: 3}}}}
		had := had
		if tt.had != "" {
			had.Range = tt.had
		}
		n := &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: tt.status}
		if got := r.released(n, had); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// older is what an agent says that does not know which addresses pods hold.
func older(attached int32) v1alpha1.FabricNodeStatus {
	return v1alpha1.FabricNodeStatus{ObservedGeneration: 3, Agent: "v0",
		Devices: v1alpha1.DeviceCounts{Attached: attached}}
}

// What can't be read of what pods hold is left out, and the rest is masked.
func TestHeldOf(t *testing.T) {
	n := &v1alpha1.FabricNode{Status: v1alpha1.FabricNodeStatus{Held: &v1alpha1.HeldAddresses{
		Fabrics: []v1alpha1.HeldOfFabric{{Name: "ib", Prefixes: []string{"10.0.0.9/30", "10.0.0", "fd00::1/128"}}},
	}}}
	if got := fmt.Sprint(heldOf(n)); got != "map[ib:[10.0.0.8/30 fd00::1/128]]" {
		t.Error(got)
	}
	if got := heldOf(&v1alpha1.FabricNode{}); got != nil {
		t.Errorf("of an older agent: %v", got)
	}
}

// The ledger takes over what is newer, and forgets what is gone: a cache may lag behind what was written.
func TestLedgerReads(t *testing.T) {
	l := &ledger{nodes: map[string]entry{}}
	node := func(uid string, generation int64, term string) v1alpha1.FabricNode {
		n := v1alpha1.FabricNode{Spec: v1alpha1.FabricNodeSpec{Allocator: term}}
		n.Name, n.UID, n.Generation = "a", types.UID(uid), generation
		return n
	}
	for _, step := range []struct {
		read []v1alpha1.FabricNode
		want string
	}{
		{[]v1alpha1.FabricNode{node("1", 2, "second")}, "second"},
		{[]v1alpha1.FabricNode{node("1", 1, "first")}, "second"},
		{[]v1alpha1.FabricNode{node("1", 3, "third")}, "third"},
		{[]v1alpha1.FabricNode{node("2", 1, "made again")}, "made again"},
		{nil, ""},
	} {
		l.read(step.read)
		if got := l.entry("a").spec.Allocator; got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
		for i := range step.read {
			if n := &step.read[i]; l.same(n) != (n.Spec.Allocator == step.want) {
				t.Errorf("%q is the same: %t", n.Spec.Allocator, l.same(n))
			}
		}
	}
}

// Who has lost the lease writes nothing, nor what is gone.
func TestLedgerRefuses(t *testing.T) {
	l := &ledger{nodes: map[string]entry{"a": {uid: "1"}}, leading: func() bool { return false }}
	if err := l.write(t.Context(), "a", v1alpha1.FabricNodeSpec{}); !errors.Is(err, errLease) {
		t.Errorf("without the lease: %v", err)
	}
	if err := l.write(t.Context(), "gone", v1alpha1.FabricNodeSpec{}); err == nil || errors.Is(err, errLease) {
		t.Errorf("a FabricNode that is gone: %v", err)
	}
}
