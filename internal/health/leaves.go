package health

import (
	"slices"
	"time"
)

// leaves are the times at which a port left Active.
type leaves struct {
	pending []time.Time // a move that is seen soon may still explain them
	times   []time.Time // of the others, when they were settled
}

// settle takes the leaves that no move has explained in time.
func (l *leaves) settle(now time.Time, after time.Duration) {
	for len(l.pending) > 0 && now.Sub(l.pending[0]) >= after {
		l.times, l.pending = append(l.times, now), l.pending[1:]
	}
	l.times = l.recent(now)
}

// recent are the times within FlapWindow, the last ones.
func (l *leaves) recent(now time.Time) []time.Time {
	from := now.Add(-FlapWindow)
	i := slices.IndexFunc(l.times, func(t time.Time) bool { return t.After(from) })
	if i < 0 {
		return nil
	}
	return l.times[max(i, len(l.times)-maxFlaps):]
}
