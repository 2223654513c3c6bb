package health_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const (
	every  = 10 * time.Second
	settle = 30 * time.Second
)

func limits(t testing.TB, change func(*v1alpha1.Health)) *health.Limits {
	t.Helper()
	h := v1alpha1.Health{}
	if change != nil {
		change(&h)
	}
	l, err := health.ParseLimits(&h, false)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// bench is a Judge with one device, and a clock.
type bench struct {
	health.Judge
	now    time.Time
	sample health.Sample
	limits *health.Limits
	said   []health.Problem // each change of the verdict
	last   health.Verdict
}

func newBench(l *health.Limits) *bench {
	return &bench{Judge: health.Judge{Settle: settle}, now: time.Unix(1e9, 0), limits: l,
		sample: health.Sample{Active: true, Counters: map[string]uint64{"symbol_error": 7, "port_rcv_errors": 0}}}
}

// look looks so often.
func (b *bench) look(times int) {
	for range times {
		b.now = b.now.Add(every)
		s := b.sample
		if s.Counters != nil {
			s.Counters = map[string]uint64{}
			for k, v := range b.sample.Counters {
				s.Counters[k] = v
			}
		}
		if s.Downs != nil {
			v := *s.Downs
			s.Downs = &v
		}
		v := b.Look(b.now, "a", s, b.limits)
		if v.Problem != b.last.Problem {
			b.said = append(b.said, v.Problem)
		}
		b.last = v
	}
}

func (b *bench) flap(times int) {
	for range times {
		b.sample.Active = false
		b.look(1)
		b.sample.Active = true
		b.look(1)
	}
}

func (b *bench) want(t *testing.T, said ...health.Problem) {
	t.Helper()
	if len(b.said) != len(said) {
		t.Fatalf("said %q, want %q", b.said, said)
	}
	for i := range said {
		if b.said[i] != said[i] {
			t.Fatalf("said %q, want %q", b.said, said)
		}
	}
}

func minutes(n int) int { return n * int(time.Minute/every) }

func TestPortDown(t *testing.T) {
	b := newBench(limits(t, nil))
	b.look(3)
	b.sample.Active = false
	b.look(1)
	b.want(t) // it may be on its way
	b.look(20)
	b.want(t, health.PortDown)
	b.sample.Active = true
	b.look(20)
	b.want(t, health.PortDown, health.None)
	if b.Flaps("a") != 1 {
		t.Errorf("%d flaps", b.Flaps("a"))
	}
	b.limits.AllowDown = true
	b.sample.Active = false
	b.look(20)
	b.want(t, health.PortDown, health.None)
}

func TestFlapping(t *testing.T) {
	b := newBench(limits(t, nil))
	b.look(1)
	b.flap(2)
	b.look(5)
	b.want(t)
	b.flap(1)
	b.look(5)
	b.want(t, health.Flapping)
	if got := b.last.String(); got != "the port left Active 3 times within 10 minutes" {
		t.Errorf("%q", got)
	}
	was := b.last
	b.flap(30) // it is said once, and in the same words
	if b.last != was {
		t.Errorf("%+v, was %+v", b.last, was)
	}
	b.look(minutes(9))
	b.flap(1)
	b.look(minutes(9))
	b.want(t, health.Flapping)
	b.look(minutes(2))
	b.want(t, health.Flapping, health.None)
	b.flap(2) // those of the last episode count no more
	b.look(minutes(11))
	b.want(t, health.Flapping, health.None)
	for range 3 { // and too slow to be one
		b.flap(1)
		b.look(minutes(6))
	}
	b.want(t, health.Flapping, health.None)
}

// A port that flapped and then stays Down is Down.
func TestFlappingEndsDown(t *testing.T) {
	b := newBench(limits(t, nil))
	b.look(1)
	b.flap(3)
	b.look(4)
	b.sample.Active = false
	b.look(minutes(5))
	b.want(t, health.Flapping)
	b.look(minutes(6))
	b.want(t, health.Flapping, health.PortDown)
	b.sample.Active = true
	b.look(minutes(1))
	b.want(t, health.Flapping, health.PortDown, health.None)
}

// What happens between two looks is seen by the port's own count; nothing is counted twice.
func TestFlapsBetweenLooks(t *testing.T) {
	b := newBench(limits(t, nil))
	downs := uint64(200)
	b.sample.Downs = &downs
	b.look(1)
	downs += 2
	b.look(2)
	b.want(t)
	b.sample.Active = false
	b.look(1)
	downs++ // the port counts late
	b.look(1)
	b.sample.Active = true
	b.look(8)
	b.want(t, health.PortDown, health.None, health.Flapping)
	if got := b.Flaps("a"); got != 3 {
		t.Errorf("%d flaps", got)
	}
	downs = 0 // reset
	b.look(1)
	downs = 5
	b.sample.Downs = nil
	b.look(1)
	if got := b.Flaps("a"); got != 3 {
		t.Errorf("%d flaps", got)
	}
}

func TestNoFlapLimit(t *testing.T) {
	none := int32(0)
	b := newBench(limits(t, func(h *v1alpha1.Health) { h.FlapsPerTenMinutes = &none }))
	b.look(1)
	b.flap(50)
	b.want(t)
}

// A move takes the port down for a while, before the place is another one, while it moves, and after it.
func TestMove(t *testing.T) {
	b := newBench(limits(t, nil))
	downs := uint64(0)
	b.sample.Downs = &downs
	b.look(2)
	for i := range 20 {
		b.sample.Active = false
		downs++
		b.sample.Counters["symbol_error"] += 5000
		if i%2 == 0 {
			b.look(1) // seen before the move is
		}
		b.sample.Moving = i%3 == 0
		b.sample.Place = string(rune('a' + i))
		b.look(2)
		b.sample.Moving, b.sample.Active = false, true
		b.look(4)
	}
	b.want(t)
	b.flap(3) // and afterwards nothing is forgiven
	b.look(5)
	b.want(t, health.Flapping)
}

// PortDown stays over a move, and is not said again.
func TestDownMoves(t *testing.T) {
	b := newBench(limits(t, nil))
	b.sample.Active, b.sample.Was = false, true
	b.look(3)
	b.sample.Place = "pod"
	b.look(10)
	b.want(t, health.PortDown)
	b.sample.Active, b.sample.Place = true, ""
	b.look(10)
	b.want(t, health.PortDown, health.None)
}

func TestCounterLimit(t *testing.T) {
	b := newBench(limits(t, func(h *v1alpha1.Health) {
		h.Counters = []v1alpha1.CounterLimit{{Counter: "symbol_error", PerMinute: 60}, {Counter: "port_rcv_errors"}}
	}))
	rise := func(by uint64, looks int) {
		for range looks {
			b.sample.Counters["symbol_error"] += by
			b.sample.Counters["port_rcv_errors"] += 1e6
			b.look(1)
		}
	}
	rise(10, minutes(5))
	b.want(t)
	rise(11, minutes(3))
	b.want(t, health.CounterLimit)
	got := b.last.String()
	if !strings.HasPrefix(got, "symbol_error rose by 6") || !strings.HasSuffix(got, "more than 60") {
		t.Errorf("%q", got)
	}
	was := b.last
	rise(500, minutes(3))
	if b.last != was {
		t.Errorf("%+v, was %+v", b.last, was)
	}
	rise(2, minutes(10))
	b.want(t, health.CounterLimit)
	rise(2, minutes(2))
	b.want(t, health.CounterLimit, health.None)
	b.sample.Counters["symbol_error"] = 3 // reset
	b.look(2)
	b.sample.Counters = nil // not readable
	b.look(5)
	b.sample.Counters = map[string]uint64{"symbol_error": 1 << 40}
	b.look(10)
	b.want(t, health.CounterLimit, health.None)
	b.sample.Counters["symbol_error"] += 1000 // a burst
	b.look(2)
	b.want(t, health.CounterLimit, health.None, health.CounterLimit)
}

// A link in training has errors.
func TestTraining(t *testing.T) {
	b := newBench(limits(t, nil))
	b.look(5)
	b.sample.Active = false
	b.sample.Counters["symbol_error"] += 1e6
	b.look(1)
	b.sample.Counters["symbol_error"] += 1e6
	b.sample.Active = true
	b.look(10)
	b.want(t)
}

// Where looks are rarer than a minute, a rate is made of the last three.
func TestRareLooks(t *testing.T) {
	for rise, want := range map[uint64]health.Problem{40: health.None, 60: health.CounterLimit} {
		j := health.Judge{}
		now, v := time.Unix(1e9, 0), uint64(0)
		var got health.Verdict
		for range 5 {
			now, v = now.Add(5*time.Minute), v+rise
			s := health.Sample{Active: true, Counters: map[string]uint64{"symbol_error": v}}
			got = j.Look(now, "a", s, limits(t, nil))
		}
		if got.Problem != want {
			t.Errorf("%d in five minutes: %+v", rise, got)
		}
	}
}

// The next agent knows what was wrong, and how often a port has flapped.
func TestSaved(t *testing.T) {
	b := newBench(limits(t, nil))
	b.look(1)
	restart := func() {
		t.Helper()
		text, err := json.Marshal(b.Save(b.now))
		if err != nil {
			t.Fatal(err)
		}
		var saved map[string]health.Saved
		if err := json.Unmarshal(text, &saved); err != nil {
			t.Fatal(err)
		}
		b.Judge = health.Judge{Settle: settle}
		b.Restore(b.now, saved)
		b.look(1)
	}
	b.flap(2)
	b.look(5)
	restart()
	b.flap(1)
	b.look(5)
	b.want(t, health.Flapping)
	restart()
	b.want(t, health.Flapping)
	b.look(minutes(11))
	restart()
	b.want(t, health.Flapping, health.None)
	b.look(minutes(11))
	if got := b.Save(b.now); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	b.flap(200)
	b.look(5)
	if got := b.Save(b.now)["a"]; len(got.Left) != 16 {
		t.Errorf("%d flaps are saved", len(got.Left))
	}
	b.Restore(b.now, map[string]health.Saved{"b": {Verdict: health.Verdict{Problem: "Melting"}}})
	if v := b.Look(b.now, "b", b.sample, b.limits); v.Problem != health.None {
		t.Errorf("%+v", v)
	}
}

// A device that is gone for long is another one when it comes.
func TestForget(t *testing.T) {
	b := newBench(limits(t, nil))
	b.look(1)
	b.flap(3)
	b.look(5)
	b.want(t, health.Flapping)
	b.Forget(b.now.Add(29 * time.Minute))
	if len(b.Save(b.now)) != 1 {
		t.Error("it is forgotten after 29 minutes")
	}
	b.Forget(b.now.Add(30 * time.Minute))
	b.look(1)
	b.want(t, health.Flapping, health.None)
}

func TestParseLimits(t *testing.T) {
	l := limits(t, nil)
	if l.Flaps != 3 || l.Recovery != 10*time.Minute || l.Withhold || len(l.PerMinute) != len(health.Defaults) {
		t.Errorf("%+v", l)
	}
	l = limits(t, func(h *v1alpha1.Health) {
		h.Action, h.Recovery = "Withhold", &metav1.Duration{Duration: time.Second}
		h.Counters = []v1alpha1.CounterLimit{{Counter: "out_of_sequence", PerMinute: 5}, {Counter: "symbol_error"}}
	})
	if _, ok := l.PerMinute["symbol_error"]; ok || l.PerMinute["out_of_sequence"] != 5 || !l.Withhold ||
		l.Recovery != time.Second {
		t.Errorf("%+v", l)
	}
	many := int32(1001)
	for want, h := range map[string]v1alpha1.Health{
		`action "Reboot": want Report or Withhold`: {Action: "Reboot"},
		"counters[0].counter":                      {Counters: []v1alpha1.CounterLimit{{}}},
		"counters[0].perMinute -1":                 {Counters: []v1alpha1.CounterLimit{{Counter: "a", PerMinute: -1}}},
		"flapsPerTenMinutes 1001":                  {FlapsPerTenMinutes: &many},
		"recovery -1s":                             {Recovery: &metav1.Duration{Duration: -time.Second}},
	} {
		if _, err := health.ParseLimits(&h, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
