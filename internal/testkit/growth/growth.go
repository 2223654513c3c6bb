// Package growth tells work that grows with its input from work that grows with the square of it, on a machine of any
// speed, and however busy that is.
package growth

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	times = 4                      // as much in the second measurement as in the first
	most  = times * times / 2      // times as long: half of what is quadratic
	tries = 5                      // caches are cold, and the collector runs, at any time
	least = 200 * time.Microsecond // below that the clock, and not the work, is measured
)

// Linear fails the test if four times as much work takes more than eight times as long: 16 is quadratic.
func Linear(t testing.TB, what string, n int, work func(n int)) {
	t.Helper()
	var ratio float64
	one, all := time.Hour, time.Hour
	for range tries {
		one = min(one, CPU(func() { work(n) }))
		all = min(all, CPU(func() { work(times * n) }))
		if ratio = float64(all) / float64(max(one, least)); ratio < most {
			return
		}
	}
	t.Errorf("%s: four times as much took %.1f times as long; 16 is quadratic", what, ratio)
}

// CPU is the time that a processor works for this: what others do meanwhile, and waiting for a turn, do not count.
func CPU(work func()) time.Duration {
	runtime.LockOSThread() // the clock is that of the thread
	defer runtime.UnlockOSThread()
	began := clock()
	work()
	return clock() - began
}

func clock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
