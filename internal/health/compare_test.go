package health

import (
	"testing"
	"time"
)

// Two looks are judged as a Judge judges many: what it reports after the last of them, Compare reports of the first and
// the last.
func TestCompareAsJudge(t *testing.T) {
	l := WireLimits()
	for _, d := range Defaults {
		for _, per10s := range []uint64{0, 1, uint64(d.PerMinute) / 8, uint64(d.PerMinute) / 3, uint64(d.PerMinute)} {
			for _, looks := range []int{3, 7} {
				var j Judge
				var v Verdict
				begin := time.Unix(1e9, 0)
				value := func(i int) map[string]uint64 { return map[string]uint64{d.Counter: 7 + per10s*uint64(i)} }
				for i := range looks {
					v = j.Look(begin.Add(time.Duration(i)*10*time.Second), "a", Sample{Active: true,
						Counters: value(i)}, l)
				}
				took := time.Duration(looks-1) * 10 * time.Second
				got := l.Compare(value(0), value(looks-1), took)
				if (v.Problem == CounterLimit) != (len(got) == 1) {
					t.Errorf("%s, %d in 10s, %d looks: the judge says %+v, Compare %+v", d.Counter, per10s, looks,
						v, got)
				}
			}
		}
	}
}

func TestCompare(t *testing.T) {
	l := WireLimits()
	one := func(name string, v uint64) map[string]uint64 { return map[string]uint64{name: v} }
	for name, c := range map[string]struct {
		before, now map[string]uint64
		took        time.Duration
		want        int
	}{
		"one error in a second is one": {one("link_error_recovery", 0), one("link_error_recovery", 1), time.Second, 0},
		"reset":                        {one("symbol_error", 900), one("symbol_error", 500), time.Minute, 0},
		"new":                          {nil, one("symbol_error", 500), time.Minute, 0},
		"gone":                         {one("symbol_error", 500), nil, time.Minute, 0},
		"no time":                      {one("symbol_error", 0), one("symbol_error", 500), 0, 1},
		"no limit":                     {one("port_xmit_wait", 0), one("port_xmit_wait", 1<<60), time.Minute, 0},
	} {
		if got := l.Compare(c.before, c.now, c.took); len(got) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if l := SymptomLimits(6 * time.Second); l.PerMinute["port_xmit_discards"] != 600 ||
		l.PerMinute["local_ack_timeout_err"] != 6 {
		t.Errorf("%+v", l.PerMinute)
	}
	if l := SymptomLimits(time.Hour); l.PerMinute["port_xmit_discards"] != 6000 {
		t.Errorf("%+v", l.PerMinute)
	}
	for up, want := range map[time.Duration]bool{0: false, 30 * time.Minute: false, time.Hour: true,
		24 * time.Hour: false} {
		if FlapsTotals(20, up) != want {
			t.Errorf("20 flaps in %s", up)
		}
	}
}
