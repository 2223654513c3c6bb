package lab

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/testkit/share"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Guests are bounded by their slots. A suite that waits for its guests must not hold up the report of another.
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestLab runs every guest test on every kernel: TestLab/<kernel>/<suite>/<guest test>. The results come in the order
// in which guests finish the tests.
func TestLab(t *testing.T) {
	if testing.Short() {
		t.Skip("needs minutes")
	}
	kernels, err := Kernels()
	if err != nil {
		t.Fatal(err)
	}
	r := newLabRun(t, kernels)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.run(t)
	}()
	t.Cleanup(func() {
		<-finished
		r.finish(t)
	})
	for _, k := range kernels {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			for _, s := range Suites {
				results, ok := r.results[suiteOn{k.Series, s.Name}]
				if !ok {
					continue
				}
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					for range cap(results) {
						if res := <-results; !res.left {
							t.Run(res.work.name(), func(t *testing.T) { report(t, res) })
						}
					}
				})
			}
		})
	}
}

type suiteOn struct{ series, suite string }

// labRun is one run of TestLab.
type labRun struct {
	crew    *crew
	all     []*work // but left
	left    []*work // what this run leaves out
	passes  map[*work]*pass
	results map[suiteOn]chan *result // with room for all of a suite
	done    []*result
	began   time.Time
}

func newLabRun(t *testing.T, kernels []Kernel) *labRun {
	t.Helper()
	bin := buildAll(t)
	top, rest, _ := strings.Cut(os.Getenv("FABRIC_LAB_RUN"), "/")
	r := &labRun{results: make(map[suiteOn]chan *result), passes: make(map[*work]*pass), began: time.Now()}
	expected, err := readDurations()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kernels {
		for _, s := range Suites {
			if !s.wants(k, asked()) {
				continue
			}
			for _, test := range chosenTests(t, bin, s, top) {
				works, err := s.works(k, test)
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range works {
					w.expected = expected.of(w)
				}
				r.all = append(r.all, works...)
			}
		}
	}
	if sampled() {
		r.all = inSample(r.all)
	}
	r.crew = &crew{bin: bin, rest: rest, verbose: os.Getenv("FABRIC_LAB_VERBOSE") != "", keys: make(map[*work]string)}
	if r.crew.results, err = openResults(); err != nil {
		t.Fatal(err)
	}
	r.key(t, kernels)
	r.choose()
	for _, w := range r.all {
		if _, err := w.suite.userLands(); err != nil {
			t.Fatal(err)
		}
	}
	r.makeChannels()
	return r
}

// choose finds what has passed before, and of the rest what this run does.
func (r *labRun) choose() {
	var todo []*work
	for _, w := range r.all {
		if p := r.crew.results.find(r.crew.keys[w], time.Now()); p != nil {
			r.passes[w] = p
		} else {
			todo = append(todo, w)
		}
	}
	if share.All() || asked() || sampled() {
		return
	}
	_, r.left = takeShare(todo, shareSeconds)
	r.all = slices.DeleteFunc(r.all, func(w *work) bool { return slices.Contains(r.left, w) })
}

// makeChannels makes a channel with room for all results of a suite on a kernel.
func (r *labRun) makeChannels() {
	count := make(map[suiteOn]int)
	for _, w := range r.all {
		count[suiteOn{w.kernel.Series, w.suite.Name}]++
	}
	for on, n := range count {
		r.results[on] = make(chan *result, n)
	}
}

// key computes the keys of all work for the cache of results.
func (r *labRun) key(t *testing.T, kernels []Kernel) {
	t.Helper()
	if r.crew.results == nil {
		return
	}
	accel := "tcg"
	if len(kernels) > 0 && kvmWorks(t.Context(), kernels[0]) {
		accel = "kvm"
	}
	keys, err := newKeys(t.Context(), accel)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.all {
		if r.crew.keys[w], err = keys.of(t.Context(), w, r.crew.bin); err != nil {
			t.Fatal(err)
		}
	}
}

// run delivers the result of all work, that of what has passed before at once.
func (r *labRun) run(t *testing.T) {
	deliveries := make(chan *result, len(r.all))
	r.crew.deliver = func(res *result) {
		deliveries <- res
		r.results[suiteOn{res.work.kernel.Series, res.work.suite.Name}] <- res
	}
	r.crew.trouble = func(ran []*result, err error) {
		var names []string
		for _, res := range ran {
			names = append(names, res.work.id())
		}
		t.Errorf("a guest that ran %v: %v", names, err)
	}
	var todo []*work
	for _, w := range r.all {
		if p := r.passes[w]; p != nil {
			r.crew.deliver(&result{work: w, cached: p, matrix: p.Matrix})
			continue
		}
		todo = append(todo, w)
	}
	r.crew.queue = newQueue(todo)
	r.crew.run(context.WithoutCancel(t.Context())) // guests still power off when the last test has ended
	close(deliveries)
	for res := range deliveries {
		if res.left {
			r.left = append(r.left, res.work)
		} else {
			r.done = append(r.done, res)
		}
	}
}

// report reports a result as if the guest test had run here.
func report(t *testing.T, r *result) {
	if r.cached != nil {
		t.Logf("cached: passed on %s in %.1fs", r.cached.Time.Format(time.DateTime), r.cached.Seconds)
		return
	}
	if r.problem != "" {
		t.Error(r.problem)
	}
	if r.test != nil {
		replay(t, r.test, slices.Contains(r.work.suite.AllowSkip, r.work.test))
	}
	if t.Failed() {
		t.Logf("results are in %s\n%s", r.dir, r.other)
		t.Logf("the kernel logged meanwhile:\n%s", r.dmesg)
	}
}

// replay reports a guest test as if it had run here. A skip is a failure: it hides that a guest lacks something.
func replay(t *testing.T, g *GuestTest, maySkip bool) {
	for _, sub := range g.Sub {
		t.Run(sub.Name, func(t *testing.T) { replay(t, sub, maySkip) })
	}
	t.Logf("in the guest: %.2fs\n%s", g.Seconds, strings.Join(g.Output, ""))
	switch g.Result {
	case "pass":
	case "skip":
		if !maySkip {
			t.Error("skipped in the guest; tests that may skip are listed in the suite's AllowSkip")
			return
		}
		t.Skip("skipped in the guest")
	case "fail":
		t.Fail()
	default:
		t.Error("did not finish in the guest")
	}
}

// buildAll builds what the guests run.
func buildAll(t *testing.T) binaries {
	t.Helper()
	dir, err := TempDir("bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := binaries{dir: dir}
	if err := b.make(t.Context(), Suites); err != nil {
		t.Fatal(err)
	}
	for _, pkg := range packages(Suites) {
		// Suites are checked against all tests, not only against those chosen.
		if _, err := assign(Suites, pkg, listTests(t, filepath.Join(dir, testBinary(pkg)), ".")); err != nil {
			t.Error(err)
		}
	}
	return b
}

// chosenTests returns the tests of a suite whose names match.
func chosenTests(t *testing.T, b binaries, s Suite, match string) []string {
	t.Helper()
	if match == "" {
		match = "." // an empty list pattern would run the tests
	}
	chosen, err := assign(Suites, s.pkg(), listTests(t, b.test(s), match))
	if err != nil {
		t.Fatal(err)
	}
	return chosen[s.Name]
}

func listTests(t *testing.T, binary, pattern string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, "-test.list", pattern).CombinedOutput()
	if err != nil {
		t.Fatalf("list tests of %s: %v\n%s", binary, err, out)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(s string) bool { return !strings.HasPrefix(s, "Test") })
}

// finish remembers what the tests took, and prints the tables, also to the file $FABRIC_LAB_SUMMARY.
func (r *labRun) finish(t *testing.T) {
	t.Helper()
	expected, err := readDurations()
	if err != nil {
		t.Error(err)
	}
	for _, res := range r.done {
		if res.ok() && r.crew.rest == "" {
			expected[res.work.id()] = float64(int(res.seconds*10)) / 10
		}
	}
	if err := expected.write(); err != nil {
		t.Error(err)
	}
	var table matrixTable
	for _, res := range r.done {
		table.add(t, res.matrix)
	}
	if r.crew.rest == "" && len(r.left) == 0 && !sampled() && !t.Failed() {
		table.complete(t)
	}
	text := table.text() + summary(r.done, r.crew.guests, time.Since(r.began)) + leftOut(r.left)
	if sampled() {
		text += sampleLine()
	}
	t.Log("\n" + text)
	if file := os.Getenv("FABRIC_LAB_SUMMARY"); file != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(fmt.Errorf("write summary: %w", err))
		}
	}
}
