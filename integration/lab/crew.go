package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// crew runs the work of a queue in guests, one for each slot at most.
type crew struct {
	queue   *queue
	bin     binaries
	rest    string // -test.run of subtests
	results *resultCache
	keys    map[*work]string
	deliver func(*result)                  // called once for each work
	trouble func(ran []*result, err error) // a failure that no work's result reports
	verbose bool

	mu     sync.Mutex
	guests []guestTime
	broken map[*class]int // guests in a row that did not start
}

// guestTime is what a guest cost.
type guestTime struct {
	kernel    Kernel
	wall, cpu time.Duration
	boot      time.Duration
}

// guestLife is how long a guest takes more work. Then its slot is free for a moment: another run may wait for it.
const guestLife = 5 * time.Minute

// run returns when all work has its result.
func (c *crew) run(ctx context.Context) {
	c.broken = make(map[*class]int)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() { c.work(ctx) })
	}
	wg.Wait()
	for _, w := range c.queue.rest() {
		c.deliver(&result{work: w, problem: fmt.Sprintf("did not run: %v", context.Cause(ctx))})
	}
	for _, w := range c.queue.left {
		c.deliver(&result{work: w, left: true})
	}
}

func (c *crew) work(ctx context.Context) {
	for ctx.Err() == nil {
		free, err := takeSlot(ctx, c.queue.idle)
		if err != nil {
			c.trouble(nil, err)
			return
		}
		if free == nil {
			return
		}
		class := c.queue.enter()
		if class == nil {
			free()
			return
		}
		c.guest(ctx, class)
		c.queue.leave(class)
		free()
		time.Sleep(3 * slotPoll) // for others who wait for the slot
	}
}

// queueScript runs what it finds in /out/1, /out/2, ... and leaves there what the host waits for, the exit status last.
// An empty script ends it. The kernel's log is cleared after each, so that every complaint is seen once.
const queueScript = `n=1
while :; do
	until [ -e /out/$n/script ]; do /run/busybox usleep 30000; done
	[ -s /out/$n/script ] || exit 0
	cd /out/$n
	/bin/sh /out/$n/script >/out/$n/output 2>&1
	rc=$?
	dmesg --read-clear >/out/$n/dmesg
	echo $rc >/out/$n/rc.new
	mv /out/$n/rc.new /out/$n/rc
	cd /out
	n=$((n+1))
done
`

// shift is one guest and the work it has done.
type shift struct {
	*crew
	class   *class
	out     string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	begin   time.Time
	number  int   // of the guest
	current *work // what the guest has now
	ran     []*result
	failed  bool
}

var errHung = errors.New("the guest hangs")

// guest boots one guest for a class and gives it work until none is left, or the slot is needed elsewhere.
func (c *crew) guest(ctx context.Context, class *class) {
	out, err := TempDir("out-")
	if err != nil {
		c.trouble(nil, err)
		return
	}
	first := c.queue.peek(class)
	if first == nil {
		_ = os.RemoveAll(out)
		return
	}
	c.mu.Lock()
	c.guests = append(c.guests, guestTime{kernel: first.kernel})
	s := &shift{crew: c, class: class, out: out, number: len(c.guests)}
	c.mu.Unlock()
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	defer s.cancel(nil)

	res, err := s.boot(first)
	c.mu.Lock()
	c.guests[s.number-1] = guestTime{kernel: first.kernel, wall: res.Total, cpu: res.CPU, boot: res.Boot}
	c.mu.Unlock()
	if err == nil {
		if lines := Complaints(res.Dmesg); len(lines) > 0 {
			err = &GuestError{Kernel: first.kernel, Reason: "kernel complains", Lines: lines}
		}
	}
	s.end(first.kernel, err)
}

// boot runs the guest, and hands out work from when its clock is known to be right.
func (s *shift) boot(w *work) (res Result, err error) {
	spec := Spec{
		Script: queueScript, OutDir: s.out, Append: w.suite.Append, Devices: w.suite.Devices, NewQEMU: w.suite.NewQEMU,
		Timeout: 6 * time.Hour, // each work has its own
	}
	if s.verbose {
		spec.Console = os.Stderr
	}
	for range clockRetries + 1 {
		fed := make(chan struct{})
		started := false
		spec.started = func() {
			started = true
			go func() {
				defer close(fed)
				s.feed()
			}()
		}
		res, err = boot(s.ctx, w.kernel, spec, s.out)
		if started {
			s.cancel(err) // ends feed, which may wait for a guest that died
			<-fed
		}
		if !errors.Is(err, errClock) {
			break
		}
	}
	return res, err
}

// end deals with what the guest left: work in a guest that died, passes that may be kept.
func (s *shift) end(k Kernel, err error) {
	if cause := context.Cause(s.ctx); errors.Is(cause, errHung) && err != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		err = &GuestError{
			Kernel: k, Reason: err.Error(), Console: tail(filepath.Join(s.out, "console")),
			Dmesg: tail(filepath.Join(s.out, "dmesg")),
		}
	}
	switch {
	case s.current != nil: // the guest died of it, or with it
		if !s.queue.giveBack(s.class, s.current) {
			s.failed = true
			s.deliver(&result{work: s.current, guest: s.number, dir: s.out, problem: fmt.Sprint(err)})
		}
	case err != nil && len(s.ran) == 0:
		s.didNotStart(err)
	case err != nil:
		s.failed = true
		s.trouble(s.ran, err)
	default:
		s.mu.Lock()
		s.broken[s.class] = 0
		s.mu.Unlock()
		s.keep()
	}
	if !s.failed {
		_ = os.RemoveAll(s.out) // TempDir removes what stays
	}
}

// didNotStart gives up a class when two guests in a row did not get as far as its work.
func (s *shift) didNotStart(err error) {
	s.mu.Lock()
	s.broken[s.class]++
	again := s.broken[s.class] < 2
	s.mu.Unlock()
	if again {
		return
	}
	s.failed = true
	for w := s.queue.take(s.class); w != nil; w = s.queue.take(s.class) {
		s.deliver(&result{work: w, problem: fmt.Sprint(err)})
	}
}

// keep caches the passes of a guest that came to a good end: a kernel may complain of a test much later.
func (s *shift) keep() {
	for _, r := range s.ran {
		if !r.ok() {
			continue
		}
		p := pass{Work: r.work.id(), Time: time.Now(), Seconds: r.seconds, Matrix: r.matrix}
		if err := s.results.store(s.keys[r.work], p); err != nil {
			s.trouble(nil, err)
		}
	}
}

// feed hands out work until the guest has enough.
func (s *shift) feed() {
	s.begin = time.Now()
	for n := 1; ; n++ {
		w := s.next()
		if err := s.hand(n, w); err != nil {
			s.cancel(err)
			return
		}
		if w == nil {
			break
		}
		begin := time.Now()
		if !s.await(n, w) {
			return
		}
		r := s.collect(n, w, time.Since(begin))
		s.current = nil
		s.ran = append(s.ran, r)
		s.queue.done(w, r.seconds)
		s.deliver(r)
		s.failed = s.failed || !r.ok() && (r.problem != "" || r.test.Result != "skip")
	}
	// What remains is to power off.
	select {
	case <-time.After(time.Minute):
		s.cancel(errHung)
	case <-s.ctx.Done():
	}
}

// next returns the guest's next work, nil if it is to end: none is left, a test failed and may have spoiled the guest,
// or another program waits for the slot.
func (s *shift) next() *work {
	if s.failed || len(s.ran) > 0 && (time.Since(s.begin) > guestLife || slotWanted()) {
		return nil
	}
	s.current = s.queue.take(s.class)
	return s.current
}

// hand writes the script of the guest's nth work; an empty one ends it.
func (s *shift) hand(n int, w *work) error {
	dir := filepath.Join(s.out, strconv.Itoa(n))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("hand out work: %w", err)
	}
	script := ""
	if w != nil {
		var err error
		if script, err = s.script(w); err != nil {
			return err
		}
	}
	return replaceFile(filepath.Join(dir, "script"), []byte(script))
}

func (s *shift) script(w *work) (string, error) {
	vars, err := w.suite.userLands()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, v := range append(vars, [][2]string{
		{"FABRIC_BIN_DIR", s.bin.plugins(w.suite)}, {"FABRIC_LAB_SERIES", w.kernel.Series},
		{"FABRIC_LAB_ROUNDS", os.Getenv("FABRIC_LAB_ROUNDS")}, {"FABRIC_LAB_FULL", os.Getenv("FABRIC_LAB_FULL")},
		{"FABRIC_LAB_PIECE", fmt.Sprintf("%d/%d", w.piece, w.pieces)},
		{"FABRIC_WALK_SEED", os.Getenv("FABRIC_WALK_SEED")}, {"FABRIC_WALK_OPS", os.Getenv("FABRIC_WALK_OPS")},
		{"FABRIC_WALK_TRICKS", os.Getenv("FABRIC_WALK_TRICKS")},
		{"FABRIC_WALK_SCRIPT", os.Getenv("FABRIC_WALK_SCRIPT")},
		{"GOGC", "400"}, // of the test binary: snapshots are garbage, and a guest has memory
	}...) {
		fmt.Fprintf(&b, "export %s=%s\n", v[0], v[1])
	}
	// The test binary gives up before the guest is killed: its goroutines say more than the end of a console.
	fmt.Fprintf(&b, "exec %s -test.v=test2json -test.timeout=%s -test.run='%s'\n",
		s.bin.test(w.suite), w.suite.timeout()*8/10, pattern([]string{w.test}, s.rest))
	return b.String(), nil
}

// await waits until the guest is done with its nth work. It reports false if the guest is gone.
func (s *shift) await(n int, w *work) bool {
	stop := func() {}
	if s.verbose {
		stop = follow(filepath.Join(s.out, strconv.Itoa(n), "output"), os.Stderr)
	}
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(w.suite.timeout())
	for {
		if _, err := os.Stat(filepath.Join(s.out, strconv.Itoa(n), "rc")); err == nil {
			return true
		}
		select {
		case <-tick.C:
		case <-timeout:
			s.cancel(errHung)
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// collect reads what the guest has left of its nth work.
func (s *shift) collect(n int, w *work, took time.Duration) *result {
	r := &result{work: w, guest: s.number, seconds: took.Seconds(), dir: filepath.Join(s.out, strconv.Itoa(n))}
	var problems []string
	status, err := os.ReadFile(filepath.Join(r.dir, "rc"))
	if err != nil {
		problems = append(problems, err.Error())
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "output"))
	if err != nil {
		problems = append(problems, err.Error())
	}
	tests, other, err := ParseTests(s.ctx, text)
	if err != nil {
		problems = append(problems, err.Error())
	}
	r.other = other
	if i := slices.IndexFunc(tests, func(g *GuestTest) bool { return g.Name == w.test }); i >= 0 {
		r.test = tests[i]
	} else {
		problems = append(problems, "the guest test did not start")
	}
	if rc := strings.TrimSpace(string(status)); rc != "0" && (r.test == nil || r.test.Result == "pass") {
		problems = append(problems, "the test binary ends with status "+rc)
	}
	dmesg, err := os.ReadFile(filepath.Join(r.dir, "dmesg"))
	if err != nil {
		problems = append(problems, err.Error())
	}
	r.dmesg = string(dmesg)
	if lines := Complaints(r.dmesg); len(lines) > 0 {
		problems = append(problems, "the kernel complains:\n  "+strings.Join(lines, "\n  "))
	}
	lines, err := os.ReadFile(filepath.Join(r.dir, "matrix"))
	if err == nil {
		r.matrix = strings.Split(strings.TrimSpace(string(lines)), "\n")
	} else if !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, err.Error())
	}
	r.problem = strings.Join(problems, "\n")
	return r
}
