package health_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/health"
)

// walk does at random what can happen to a port, and holds what the Judge says against it.
func walk(t *testing.T, ops []byte) {
	b := newBench(limits(t, nil))
	downs := uint64(0)
	b.sample.Downs = &downs
	b.look(1)
	harmless := true                                 // nothing but moves, resets and few errors so far
	wellSince, wrong := b.now, b.now.Add(-time.Hour) // at the latest, and when something was wrong for certain
	for _, op := range ops {
		before, last := len(b.said), wrong
		switch op % 8 {
		case 0, 1: // a move: down before it is seen, while it moves and after it, for less than Settle
			b.sample.Active = false
			downs++
			b.sample.Counters["symbol_error"] += 1000
			if op&8 != 0 {
				b.look(1)
				wellSince = b.now // for all that is known then
			}
			b.sample.Place += "x"
			b.sample.Moving = op&16 != 0
			b.look(1 + int(op>>5)%2)
			b.sample.Active, b.sample.Moving = true, false
			b.look(1)
		case 2: // counters start again, or can't be read
			b.sample.Counters["symbol_error"], downs = 0, 0
			b.look(1)
		case 3: // few errors
			b.sample.Counters["symbol_error"] += uint64(op>>3) % 2
			b.look(1)
		case 4:
			b.look(minutes(1) * (1 + int(op>>3)%16))
		case 5: // the port goes, and comes
			b.look(4)
			b.flap(1)
			harmless, wellSince, wrong = false, b.now, b.now.Add(-every)
			b.look(4)
		case 6: // it stays away for a while
			b.look(4)
			b.sample.Active = false
			b.look(2 + int(op>>3))
			b.sample.Active = true
			b.look(1)
			harmless, wellSince, wrong = false, b.now, b.now.Add(-every)
		case 7: // many errors
			b.look(4)
			b.sample.Counters["symbol_error"] += 100
			b.look(1)
			harmless, wellSince, wrong = false, b.now, b.now.Add(-every)
		}
		if harmless && len(b.said) > 0 {
			t.Fatalf("nothing was wrong, and it said %q", b.said)
		}
		well := b.now.Sub(wellSince)
		if well > health.DefaultRecovery+2*time.Minute && op%8 == 4 && b.last.Problem != health.None {
			t.Fatalf("all was well for %s: %+v", well, b.last)
		}
		for i := before; i < len(b.said); i++ {
			if i > 0 && b.said[i] == health.None && b.said[i-1] != health.PortDown &&
				b.now.Sub(last) < health.DefaultRecovery {
				t.Fatalf("%s was withdrawn after %s", b.said[i-1], b.now.Sub(last))
			}
		}
	}
	b.look(minutes(25))
	if b.last.Problem != health.None {
		t.Fatalf("at the end: %+v", b.last)
	}
	checkSaid(t, b.said)
}

// checkSaid fails if something was withdrawn that was not raised, or ended as something that it can't.
func checkSaid(t *testing.T, said []health.Problem) {
	t.Helper()
	was := health.None
	for _, p := range said {
		switch {
		case p == was:
			t.Fatalf("%q is said twice: %q", p, said)
		case was == health.Flapping && p == health.CounterLimit:
			t.Fatalf("%s became %s: %q", was, p, said)
		}
		was = p
	}
}

func TestWalk(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		ops := make([]byte, 100)
		for i := range ops {
			ops[i] = byte(r.Uint32())
			if seed%3 == 0 { // nothing is wrong
				ops[i] = ops[i]&^7 | byte(r.UintN(5))
			}
		}
		walk(t, ops)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWalk(f *testing.F) {
	f.Add([]byte{0, 8, 16, 24, 5, 5, 5, 4, 0xfc})
	f.Add([]byte{7, 7, 6, 0xf6, 2, 4})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) < 1000 {
			walk(t, ops)
		}
	})
}
