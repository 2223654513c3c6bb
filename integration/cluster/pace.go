package cluster

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of waits are for a quiet machine. They are multiplied by the factor by which this machine is slower than one,
// which is measured at the start, every half minute, and once more before a wait is given up. The slowest measurement
// counts: what waits may have lost its time long before its limit.
type pace struct {
	mu      sync.Mutex
	slowest float64
	last    time.Time
}

var machine pace

// What a quiet machine needs for one probe. Emulation and Kubernetes are bound by both.
const (
	quietLoops = 100 * time.Millisecond // a loop of additions on each CPU
	quietExecs = 30 * time.Millisecond  // ten processes, one after the other
)

// slowestMachine bounds the factor: beyond it waits would end after the test binary's own time limit.
const slowestMachine = 12

// watch measures until the process ends.
func (p *pace) watch() {
	p.measure()
	go func() {
		for range time.Tick(30 * time.Second) {
			p.measure()
		}
	}()
}

// scaled returns the limit for this machine.
func (p *pace) scaled(limit time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(float64(limit) * max(1, p.slowest))
}

// measure takes a measurement, unless the last one is new.
func (p *pace) measure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < 5*time.Second {
		return
	}
	factor := probe()
	if factor > 1.5*max(1, p.slowest) && p.slowest < slowestMachine {
		fmt.Printf("cluster: the machine is %.1f times slower than a quiet one\n", factor)
	}
	p.slowest = min(max(p.slowest, factor), slowestMachine)
	p.last = time.Now()
}

// probe returns how many times longer than on a quiet machine a fixed work takes: of all CPUs, and of fork and exec.
func probe() float64 {
	began := time.Now()
	var all sync.WaitGroup
	var sum atomic.Int64 // an unused result would not be computed
	for range runtime.NumCPU() {
		all.Go(func() { sum.Add(int64(additions(quietAdditions))) })
	}
	all.Wait()
	loops := time.Since(began)
	began = time.Now()
	for range 10 {
		_ = exec.Command("/bin/true").Run() // the time counts, not the status
	}
	execs := time.Since(began)
	return max(float64(loops)/float64(quietLoops), float64(execs)/float64(quietExecs))
}

// quietAdditions take quietLoops.
const quietAdditions = 200_000_000

//go:noinline
func additions(n int) (sum int) {
	for i := range n {
		sum += i ^ sum
	}
	return sum
}
