package health_test

import (
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/health"
)

// A port that was never Active is NotConnected, and not PortDown, whatever says that it was: a look, the agent of
// before, the port's own count.
func TestNotConnected(t *testing.T) {
	one := uint64(1)
	for name, tt := range map[string]struct {
		before func(*bench)
		want   health.Problem
	}{
		"never":              {func(*bench) {}, health.NotConnected},
		"seen":               {func(b *bench) { b.sample.Active = true; b.look(1) }, health.PortDown},
		"known of before":    {func(b *bench) { b.sample.Was = true }, health.PortDown},
		"its count of downs": {func(b *bench) { b.sample.Downs = &one }, health.PortDown},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(limits(t, nil))
			tt.before(b)
			b.sample.Active = false
			b.look(20)
			b.want(t, tt.want)
			next := health.Judge{Settle: settle} // the next agent
			next.Restore(b.now, b.Save(b.now))
			b.Judge = next
			b.look(3)
			b.want(t, tt.want)
			b.sample.Active = true
			b.look(3)
			b.sample.Active = false
			b.look(3)
			if b.last.Problem != health.PortDown {
				t.Errorf("once it was Active: %q", b.last.Problem)
			}
		})
	}
}
