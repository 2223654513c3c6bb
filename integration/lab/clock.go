package lab

import (
	"bytes"
	"strconv"
	"time"
)

// fastClock is how much faster than this machine's clock a guest's may go. A guest measures the frequency of its TSC in
// the first milliseconds of its life (linux 6.12, arch/x86/kernel/tsc.c, pit_hpet_ptimer_calibrate_cpu). When the
// machine is so busy that the emulation stands still meanwhile, it gets that wrong, sees seconds fly by for ever, and
// all its timeouts are too short: a clock of 6.6 times has been seen.
const fastClock = 1.25

// clockRetries is how many guests with such a clock are thrown away. They cost no more than their boot.
const clockRetries = 4

// tooFast tells whether a guest that has been up for uptime by its own clock, since after it was powered on wall ago,
// has a clock that goes too fast.
func tooFast(uptime, wall time.Duration) bool { return uptime > time.Duration(fastClock*float64(wall)) }

// scriptUptime finds a guest's mark for the begin of the script on its console: how long it has been up by its own
// clock. Not ok until the line is complete.
func scriptUptime(console []byte) (uptime time.Duration, ok bool) {
	_, rest, ok := bytes.Cut(console, []byte(scriptMark))
	if !ok {
		return 0, false
	}
	line, _, ok := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(string(bytes.TrimSpace(line)), 64)
	if err != nil {
		return 0, true // a mark all the same: something has written into the line
	}
	return time.Duration(seconds * float64(time.Second)), true
}
