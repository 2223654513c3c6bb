package health

import "time"

// window is how much a counter rose, look by look, within the last minute.
type window struct {
	looks []look
}

// look is one reading: how much the counter rose since the one before.
type look struct {
	at   time.Time
	rise uint64
}

const (
	span     = time.Minute
	fewest   = 3           // looks that a rate is made of
	together = time.Second // looks that are closer count as one
)

// add adds a reading.
func (w *window) add(now time.Time, rise uint64) {
	if n := len(w.looks); n >= 2 && w.looks[n-1].at.Sub(w.looks[n-2].at) < together {
		w.looks[n-1].at = now
		w.looks[n-1].rise += rise
	} else {
		w.looks = append(w.looks, look{now, rise})
	}
	for len(w.looks) > fewest && now.Sub(w.looks[0].at) > span {
		w.looks = w.looks[1:]
	}
}

// perMinute is how much the counter rose within the last minute; where looks are rarer, from the last three of them. It
// is 0 while there are fewer, and when the last one is long ago.
func (w *window) perMinute(now time.Time) float64 {
	n := len(w.looks)
	if n < fewest || now.Sub(w.looks[n-1].at) > span {
		return 0
	}
	sum := 0.0
	for _, l := range w.looks[1:] {
		sum += float64(l.rise)
	}
	return perMinute(sum, w.looks[n-1].at.Sub(w.looks[0].at))
}
