package perftest

import (
	"fmt"
	"slices"
)

// measure is one figure of a path that can be compared with the last run's.
type measure struct{ a, b, rail, railB string }

// key is the path by the nodes, if they are known: pods are new ones in each run.
func (r *Result) key() measure {
	k := measure{r.A, r.B, r.Rail, r.RailB}
	if r.NodeA != "" && r.NodeB != "" {
		k.a, k.b = r.NodeA, r.NodeB
	}
	return k
}

// back is the same path seen from the other end.
func (k measure) back() measure {
	if k.railB == "" {
		return measure{k.b, k.a, k.rail, ""}
	}
	return measure{k.b, k.a, k.railB, k.rail}
}

// turned is a result seen from the other end.
func (r *Result) turned() *Result {
	return &Result{Bandwidth: r.Reverse, Reverse: r.Bandwidth, Latency: r.Latency}
}

// leastLatency is how many us latency has to grow before it counts: below that it is noise.
const leastLatency = 0.5

// Compare judges results against those of the last run: what has lost more than MaxRegress per cent is slow, also where
// it is still good by itself. It returns how many figures it has compared, and says what of the last run is missing.
func Compare(list, last []Result, l *Limits) (compared int, missing []string) {
	old := map[measure]*Result{}
	for i := range last {
		old[last[i].key()] = &last[i]
	}
	for i := range list {
		r := &list[i]
		k := r.key()
		o, found := old[k]
		if !found {
			if o, found = old[k.back()]; !found {
				continue
			}
			k = k.back()
			o = o.turned()
		}
		delete(old, k)
		for _, c := range []struct {
			was, is *Bandwidth
			what    string
		}{{o.Bandwidth, r.Bandwidth, ""}, {o.Reverse, r.Reverse, "back "}, {o.GPU, r.GPU, "GPU "}} {
			if c.was == nil || c.is == nil || c.was.AverageGb <= 0 {
				continue
			}
			compared++
			if lost := 100 * (1 - c.is.AverageGb/c.was.AverageGb); lost > l.MaxRegress {
				r.Add(Slow, fmt.Sprintf("%s%.0f %% less than in the last run: %s Gb/s", c.what, lost,
					figure(c.was.AverageGb)))
			}
		}
		if o.Latency != nil && r.Latency != nil && o.Latency.Typical > 0 {
			compared++
			was, is := o.Latency.Typical, r.Latency.Typical
			if grown := 100 * (is/was - 1); grown > l.MaxRegress && is-was > leastLatency {
				r.Add(Slow, fmt.Sprintf("latency %.0f %% more than in the last run: %.2f us", grown, was))
			}
		}
	}
	for k, r := range old {
		if r.Bandwidth == nil && r.Reverse == nil {
			continue
		}
		rail := k.rail
		if k.railB != "" {
			rail += ">" + k.railB
		}
		missing = append(missing, fmt.Sprintf("%s, %s, rail %s", k.a, k.b, rail))
	}
	slices.Sort(missing)
	return compared, missing
}
