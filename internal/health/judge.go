package health

import (
	"time"
)

// Judge knows what was seen of each device. The zero Judge is ready to use, and is for one goroutine.
type Judge struct {
	// Settle is how long a port may take to be what it was, after its place has changed.
	Settle time.Duration
	// Confirm is how long a port must have been found Down, by two looks at least, to be PortDown.
	Confirm time.Duration

	devices map[string]*record
}

const (
	maxFlaps = 1000             // that are remembered of a device
	confirm  = 2                // looks in a row that find a port Down
	forget   = 30 * time.Minute // a device that was gone for so long is another one when it comes
)

// record is what is known of one device.
type record struct {
	verdict Verdict
	placed  bool // place is known
	place   string
	last    *Sample   // nil: none since the place changed
	moved   time.Time // when the place last changed
	seen    time.Time // when it was last looked at
	bad     time.Time // when something was last wrong
	active  bool      // the port has been Active, as far as anything says

	down      int // looks in a row that found it Down
	downSince time.Time

	left    leaves // when it was seen to leave Active
	counted leaves // when Downs rose
	flaps   uint64 // all that there ever were
	rates   map[string]*window
}

// Look judges a device by one look at it, and returns what is wrong with it now.
func (j *Judge) Look(now time.Time, id string, s Sample, l *Limits) Verdict {
	r := j.devices[id]
	if r == nil {
		r = j.add(id)
	}
	r.seen = now
	r.active = r.active || s.Active || s.Was || s.Downs != nil && *s.Downs > 0 // a link goes down that was up
	if !r.placed {
		r.placed, r.place = true, s.Place
	}
	if s.Moving || s.Place != r.place {
		r.place, r.moved, r.last, r.down = s.Place, now, nil, 0
		r.left.pending, r.counted.pending = nil, nil // the move may have been why it left
		clear(r.rates)                               // what rose before it is not what rises now
	}
	// Who moves a device may take its port down, and a link in training has errors: neither is held against it.
	if s.Moving || !r.moved.IsZero() && now.Sub(r.moved) < j.Settle {
		return r.verdict
	}
	news := r.compare(now, &s, j.Settle)
	down := r.down >= confirm && now.Sub(r.downSince) >= j.Confirm && !l.AllowDown
	r.decide(now, &s, l, down, news)
	r.last = &s
	return r.verdict
}

func (j *Judge) add(id string) *record {
	if j.devices == nil {
		j.devices = map[string]*record{}
	}
	r := &record{rates: map[string]*window{}}
	j.devices[id] = r
	return r
}

// Forget drops the devices that were not looked at for half an hour.
func (j *Judge) Forget(now time.Time) {
	for id, r := range j.devices {
		if now.Sub(r.seen) >= forget {
			delete(j.devices, id)
		}
	}
}

// Flaps is how often a device has left Active since the Judge was made. It only rises.
func (j *Judge) Flaps(id string) uint64 {
	if r := j.devices[id]; r != nil {
		return r.flaps
	}
	return 0
}

// compare counts what has happened since the last look, and reports whether the port has flapped.
func (r *record) compare(now time.Time, s *Sample, settle time.Duration) (flapped bool) {
	if s.Active {
		r.down = 0
	} else if r.down++; r.down == 1 {
		r.downSince = now
	}
	downs, steady := uint64(0), false
	if was := r.last; was != nil {
		if was.Active && !s.Active {
			r.left.pending = append(r.left.pending, now)
		}
		if was.Downs != nil && s.Downs != nil && *s.Downs > *was.Downs {
			downs = min(*s.Downs-*was.Downs, maxFlaps)
		}
		steady = was.Active && s.Active && downs == 0
	}
	for range downs {
		r.counted.pending = append(r.counted.pending, now)
	}
	r.count(now, s, steady)
	before := r.flapsNow(now)
	r.left.settle(now, settle)
	r.counted.settle(now, settle)
	news := r.flapsNow(now) - before
	if news > 0 {
		r.flaps += uint64(news)
	}
	return news > 0
}

// count adds what the counters rose by. They are compared only while the link stayed up: one in training has errors
// that say nothing of the trained one. A counter that is smaller than it was has been reset.
func (r *record) count(now time.Time, s *Sample, steady bool) {
	if s.Counters == nil {
		return
	}
	for name, v := range s.Counters {
		if r.rates[name] == nil {
			r.rates[name] = &window{}
		}
		rise := uint64(0)
		if steady {
			rise = risen(r.last.Counters, name, v)
		}
		r.rates[name].add(now, rise)
	}
	for name := range r.rates {
		if _, ok := s.Counters[name]; !ok {
			delete(r.rates, name)
		}
	}
}

// flapsNow is how often the port left Active within FlapWindow. The port's own count has what was between two looks;
// what was seen has what the port does not count, as when a switch takes it down. Both have most, so the larger is
// nearer to the truth, and their sum would count twice.
func (r *record) flapsNow(now time.Time) int {
	return max(len(r.left.recent(now)), len(r.counted.recent(now)))
}

// decide raises and withdraws. Flapping goes before PortDown, so that a port that comes and goes is said once; both go
// before CounterLimit.
func (r *record) decide(now time.Time, s *Sample, l *Limits, down, flapped bool) {
	over := r.over(now, l)
	steady := !flapped && len(r.left.pending)+len(r.counted.pending) == 0
	well := over.Problem == None && (s.Active || l.AllowDown) && steady
	if !well {
		r.bad = now
	}
	recovered := well && now.Sub(r.bad) >= l.Recovery
	flaps := r.flapsNow(now)
	notActive := PortDown
	if !r.active {
		notActive = NotConnected
	}
	switch was := r.verdict.Problem; {
	case was != Flapping && l.Flaps > 0 && flaps >= l.Flaps:
		r.verdict = Verdict{Problem: Flapping, Since: now, Flaps: flaps}
	case was == Flapping && down && now.Sub(r.downSince) >= l.Recovery: // it does not come any more
		r.end()
		r.verdict = Verdict{Problem: PortDown, Since: now}
	case was == Flapping && !recovered:
	case was != notActive && down:
		r.verdict = Verdict{Problem: notActive, Since: now}
	case was == notActive && !s.Active && !l.AllowDown:
	case was == CounterLimit && !recovered:
	case over.Problem != None:
		r.verdict = over
	default:
		r.end()
	}
}

// end withdraws the problem. The flaps that it was about are not those of the next one.
func (r *record) end() {
	if r.verdict.Problem == Flapping {
		r.left, r.counted = leaves{}, leaves{}
	}
	r.verdict = Verdict{}
}

// over is the counter that is furthest over its limit.
func (r *record) over(now time.Time, l *Limits) (v Verdict) {
	worst := 1.0
	for _, name := range l.Counters() {
		w, limit := r.rates[name], l.PerMinute[name]
		if w == nil {
			continue
		}
		if by, is := exceeds(name, w.perMinute(now), limit); by > worst {
			worst, v = by, is
			v.Since = now
		}
	}
	return v
}
