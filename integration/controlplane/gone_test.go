package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// stateOf is what a FabricNode is: "gone 10.0.0.0/26", "present", "deleted".
func stateOf(t *testing.T, c client.Client, name string) string {
	t.Helper()
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); apierrors.IsNotFound(err) {
		return "deleted"
	} else if err != nil {
		t.Fatal(err)
	}
	out := []string{"present"}
	if n.Spec.Gone != nil {
		out[0] = "gone"
	}
	for _, r := range n.Spec.Ranges {
		out = append(out, r.Range)
	}
	return strings.Join(out, " ")
}

// The FabricNode of a Node that is gone is deleted: at once, if it has no ranges, and otherwise after the longest
// reclaim of their fabrics. A Node that comes back before that has its ranges again.
func TestGone(t *testing.T) {
	c := whole(t)
	defer removeNodes(t, c)
	apply(t, testfabrics.Object("gone-day",
		`{addresses: {nodeRanges: {ranges: [{range: 10.21.0.0/24, perNodePrefixLength: 26}]}}}`))
	apply(t, testfabrics.Object("gone-now", `{addresses: {nodeRanges: {reclaim: 1s,
	  ranges: [{range: 10.22.0.0/24, perNodePrefixLength: 26}]}}}`))
	defer removeFabrics(t, c)
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	wants := map[string][]string{"both": {"gone-day", "gone-now"}, "day": {"gone-day"}, "now": {"gone-now"},
		"bare": nil}
	for name, fabrics := range wants {
		create(t, c, node(name))
		addNode(t, c, name, fabrics...)
	}
	defer control(t)()
	until(t, func() string {
		if got := strings.Count(ranges(t, c), "/26"); got != 4 {
			return fmt.Sprint(got, " ranges are given, want 4")
		}
		return ""
	})
	was := map[string]string{}
	for name := range wants {
		was[name] = stateOf(t, c, name)
		if err := c.Delete(t.Context(), node(name)); err != nil {
			t.Fatal(err)
		}
	}
	untilStates := func(want map[string]string) {
		t.Helper()
		until(t, func() string {
			for name, state := range want {
				if got := stateOf(t, c, name); got != state {
					return fmt.Sprintf("%s: %s, want %s", name, got, state)
				}
			}
			return ""
		})
	}
	marked := func(name string) string { return strings.Replace(was[name], "present", "gone", 1) }
	untilStates(map[string]string{"both": marked("both"), "day": marked("day"), "now": "deleted", "bare": "deleted"})
	create(t, c, node("both"))
	create(t, c, node("now"))
	addNode(t, c, "now", "gone-now")
	untilStates(map[string]string{"both": was["both"], "day": marked("day"), "now": was["now"]})
}

// Nothing is deleted because of a cache that lags behind: neither that of Nodes, nor that of FabricNodes.
func TestNotGone(t *testing.T) {
	c := whole(t)
	defer removeNodes(t, c)
	list := []fabrics.Fabric{fabric(t, "ib", perNode26)}
	lag := &lagging{Reader: c}
	r := rounds(c, lag, "one", yes)
	now := time.Now()
	r.Now = func() time.Time { return now }
	round := func() {
		t.Helper()
		lag.seen = nil
		if _, err := r.Round(t.Context(), list, nil); err != nil {
			t.Fatal(err)
		}
	}
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "there"}})
	addNode(t, c, "there", "ib")
	addNode(t, c, "alive")
	round() // both are marked: the cache has no Node
	now = now.Add(2 * time.Hour)
	old := &v1alpha1.FabricNodeList{}
	if err := c.List(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "alive"}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Agent = "v2" // its agent writes after the cache was filled
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	r.Cached = &fixed{c, old}
	if _, err := r.Round(t.Context(), list, nil); err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, c, "there") + ", " + stateOf(t, c, "alive"); got != "gone, gone" {
		t.Errorf("%s, want both there", got)
	}
	r.Cached = c
	round()
	if got := stateOf(t, c, "there") + ", " + stateOf(t, c, "alive"); got != "gone, deleted" {
		t.Errorf("%s, want that without a Node deleted", got)
	}
}
