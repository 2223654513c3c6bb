package health

import (
	"slices"
	"time"
)

// Saved is what the next Judge must know of a device: what is wrong with it, and its last flaps. Without it, an agent
// that is restarted would withdraw a problem that is not solved. Counters are not saved: a minute has them again.
type Saved struct {
	Verdict
	Left []time.Time `json:"left,omitempty"` // when the port was seen to leave Active
}

// maxSaved is how many flaps of a device are saved.
const maxSaved = 16

// Save returns what the next Judge must know, by device. Devices that nothing is known against are not in it.
func (j *Judge) Save(now time.Time) map[string]Saved {
	out := map[string]Saved{}
	for id, r := range j.devices {
		left := r.left.recent(now)
		if c := r.counted.recent(now); len(c) > len(left) {
			left = c
		}
		left = left[max(0, len(left)-maxSaved):]
		if r.verdict.Problem != None || len(left) > 0 {
			s := Saved{Verdict: r.verdict}
			for _, t := range left {
				s.Left = append(s.Left, t.Round(0).UTC())
			}
			s.Since = s.Since.Round(0).UTC()
			out[id] = s
		}
	}
	return out
}

// Restore makes the Judge know what another one has saved. A time that is not in the past is the clock's mistake.
func (j *Judge) Restore(now time.Time, saved map[string]Saved) {
	for id, s := range saved {
		r := j.add(id)
		r.seen, r.bad = now, now
		if slices.Contains(Problems, s.Problem) { // else a newer agent has saved it
			r.verdict = s.Verdict
			r.active = s.Problem != None && s.Problem != NotConnected
		}
		for _, t := range s.Left {
			if !t.After(now) && len(r.left.times) < maxSaved {
				r.left.times = append(r.left.times, t)
			}
		}
	}
}
