package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// What one change of a Fabric makes all its nodes write takes the longer, the more they are. What concerns one agent
// alone waits for nothing.
func TestSpread(t *testing.T) {
	const nodes = 3000 // a minute
	var soon, late int
	for range 200 {
		l := &Link{}
		now := time.Now()
		if l.heard(&v1alpha1.FabricNode{}); !l.due(now) {
			t.Fatal("a FabricNode has changed, and its status may not be written")
		}
		l.heard(&v1alpha1.Fabric{Status: v1alpha1.FabricStatus{Nodes: nodes}})
		if l.due(now.Add(time.Minute / 4)) {
			soon++
		}
		if !l.due(now.Add(time.Minute * 3 / 4)) {
			late++
		}
		if !l.due(now.Add(time.Minute + time.Second)) {
			t.Error("not even after a minute")
		}
		if l.heard(&v1alpha1.Fabric{}); !l.due(time.Now().Add(time.Millisecond)) {
			t.Error("a Fabric without nodes has changed, and the status may not be written")
		}
	}
	if soon < 20 || soon > 80 || late < 20 || late > 80 {
		t.Errorf("of 200 agents %d write in the first quarter, and %d in the last", soon, late)
	}
}

// An API server that can't keep up is asked less and less, and not by all nodes at once.
func TestRetryAfter(t *testing.T) {
	for failed, want := range []time.Duration{10, 20, 40, 80, 120, 120, 120} {
		var all []time.Duration
		for range 100 {
			all = append(all, retryAfter(failed))
		}
		first, last := slices.Min(all), slices.Max(all)
		if want *= time.Second; first < want || last >= want+want/2 || last-first < want/10 {
			t.Errorf("after %d failures: %s to %s, want %s and up to a half more", failed, first, last, want)
		}
	}
	if d := retryAfter(1 << 40); d < writeSeldom || d > 2*writeSeldom {
		t.Errorf("after very many: %s", d)
	}
}
