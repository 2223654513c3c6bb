package cluster

import (
	"slices"
	"testing"
	"time"
)

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
