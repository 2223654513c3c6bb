package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func someWork() (all []*work) {
	suites := []Suite{
		{Name: "a"}, {Name: "b"}, {Name: "c", Append: exclusive}, {Name: "d", Append: exclusive, NewQEMU: true},
	}
	for _, series := range Series {
		for _, s := range suites {
			for i := range 20 {
				all = append(all, &work{
					kernel: Kernel{Series: series}, suite: s, test: fmt.Sprintf("Test%d", i), piece: 1, pieces: 1,
					expected: float64(i),
				})
			}
		}
	}
	return all
}

// Every work is done exactly once by guests of its machine, and once more if its guest died.
func TestQueueLosesNothing(t *testing.T) {
	t.Setenv("FABRIC_DEADLINE", "") // the gate's may have passed
	all := someWork()
	q := newQueue(all)
	if len(q.classes) != 3*3 {
		t.Errorf("%d classes, want one for each kernel and machine", len(q.classes))
	}
	var mu sync.Mutex
	done, died := make(map[*work]int), make(map[*work]int)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for c := q.enter(); c != nil; c = q.enter() {
				for n := rand.IntN(10); n >= 0; n-- {
					w := q.take(c)
					if w == nil {
						break
					}
					if m := machine(w.kernel, w.suite); m != c.machine {
						t.Errorf("a guest of machine %s has work for %s", c.machine, m)
					}
					mu.Lock()
					dies := died[w] == 0 && rand.IntN(5) == 0
					if dies {
						died[w]++
					} else {
						done[w]++
					}
					mu.Unlock()
					if dies {
						if !q.giveBack(c, w) {
							t.Errorf("%s is not taken back", w.id())
						}
						break
					}
				}
				q.leave(c)
			}
		})
	}
	wg.Wait()
	for _, w := range all {
		if done[w] != 1 || w.tries != 1+died[w] {
			t.Errorf("%s was done %d times in %d tries, its guest died %d times", w.id(), done[w], w.tries, died[w])
		}
	}
	if rest := q.rest(); len(rest) != 0 {
		t.Errorf("%d works were not handed out", len(rest))
	}
}

func TestQueueGivesBackOnce(t *testing.T) {
	t.Setenv("FABRIC_DEADLINE", "") // the gate's may have passed
	q := newQueue(someWork()[:1])
	c := q.enter()
	w := q.take(c)
	if !q.giveBack(c, w) || q.take(c) != w {
		t.Fatal("work of a guest that died does not come back")
	}
	if q.giveBack(c, w) {
		t.Error("work of a second guest that died comes back")
	}
}

func TestQueueOrder(t *testing.T) {
	t.Setenv("FABRIC_DEADLINE", "") // the gate's may have passed
	k := Kernel{Series: "6.12"}
	small := Suite{Name: "small", NewQEMU: true}
	q := newQueue([]*work{
		{kernel: k, suite: Suite{Name: "x"}, test: "TestShort", expected: 1},
		{kernel: k, suite: Suite{Name: "y"}, test: "TestLong", expected: 90},
		{kernel: k, suite: Suite{Name: "x"}, test: "TestMiddle", expected: 30},
		{kernel: k, suite: small, test: "TestSmall", expected: 3},
	})
	c := q.enter()
	var got []string
	for w := q.take(c); w != nil; w = q.take(c) {
		got = append(got, w.test)
		if w.test == "TestMiddle" { // what remains is not worth another guest
			if next := q.enter(); next == c || next == nil || next.waiting[0].test != "TestSmall" {
				t.Errorf("the next guest is for %+v", next)
			}
		}
	}
	if diff := cmp.Diff([]string{"TestLong", "TestMiddle", "TestShort"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPiecesAreWork(t *testing.T) {
	s := Suite{Name: "s", Deal: []Deal{{Run: "Long$", Pieces: 3}}}
	k := Kernel{Series: "6.12"}
	var ids []string
	for _, test := range []string{"TestLong", "TestOther"} {
		works, err := s.works(k, test)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range works {
			ids = append(ids, w.id())
		}
	}
	want := []string{
		"6.12/s/TestLong-1of3", "6.12/s/TestLong-2of3", "6.12/s/TestLong-3of3", "6.12/s/TestOther",
	}
	if !slices.Equal(ids, want) {
		t.Errorf("work is %v, want %v", ids, want)
	}
}
