package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// allWork is what there is on every kernel, by the sources of the guest tests.
func allWork(t *testing.T) (all []*work) {
	t.Helper()
	expected, err := tableDurations() // not what this machine measured: a slow one is no fault of the choice
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
	for _, pkg := range packages(Suites) {
		files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %s: %v", pkg, err)
		}
		var tests []string
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(source), "//go:build labguest\n") {
				continue
			}
			for _, m := range function.FindAllStringSubmatch(string(source), -1) {
				tests = append(tests, m[1])
			}
		}
		owners, err := assign(Suites, pkg, tests)
		if err != nil {
			t.Fatal(err)
		}
		for _, series := range Series {
			k := Kernel{Series: series, Release: series + ".0"}
			for _, s := range Suites {
				for _, test := range owners[s.Name] {
					if s.pkg() != pkg || !s.wants(k, false) {
						continue
					}
					works, err := s.works(k, test)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, works...)
				}
			}
		}
	}
	for _, w := range all {
		w.expected = expected.of(w)
	}
	return all
}

// TestSampleIsThere: each entry of the sample is a test, and all of them take less than seven minutes with their boots.
func TestSampleIsThere(t *testing.T) {
	t.Setenv("FABRIC_LAB_FULL", "")
	all := allWork(t)
	for _, e := range sample {
		for _, name := range e.works {
			if n := len(slices.DeleteFunc(slices.Clone(all), func(w *work) bool {
				return w.kernel.Series != sampleKernel || w.name() != name
			})); n != 1 {
				t.Errorf("the sample names %s, which is the name of %d tests", name, n)
			}
		}
	}
	var seconds float64
	machines := make(map[string]bool)
	for _, w := range inSample(all) {
		seconds += w.expected
		machines[machine(w.kernel, w.suite)] = true
	}
	if seconds += float64(bootSeconds * len(machines)); seconds > 7*60 {
		t.Errorf("the sample takes %.0f s in %d guests", seconds, len(machines))
	}
	t.Logf("%.0f s in %d guests", seconds, len(machines))
}

// TestShareIsFair: each test of the lab runs with some seed, none much more seldom than another one, and a share keeps
// to its time.
func TestShareIsFair(t *testing.T) {
	t.Setenv("FABRIC_LAB_FULL", "")
	all := allWork(t)
	const seeds = 400
	count := make(map[string]int)
	for seed := range seeds {
		t.Setenv("FABRIC_SEED", fmt.Sprint("seed", seed))
		mine, left := takeShare(all, shareSeconds)
		if len(mine)+len(left) != len(all) {
			t.Fatalf("%d tests and %d that are left out are not all %d", len(mine), len(left), len(all))
		}
		var seconds float64
		for _, w := range mine {
			count[w.id()]++
			seconds += w.expected
		}
		if seconds > shareSeconds+2*bundleSeconds {
			t.Errorf("a share of %d s takes %.0f s", shareSeconds, seconds)
		}
	}
	least, most := seeds, 0
	for _, w := range all {
		n := count[w.id()]
		if w.first != (n == seeds) {
			t.Errorf("%s ran %d times with %d seeds", w.id(), n, seeds)
		}
		if !w.first {
			least, most = min(least, n), max(most, n)
		}
	}
	if least == 0 {
		t.Errorf("a test ran with none of %d seeds", seeds)
	}
	t.Logf("%d tests; each that is not in every share ran with %d to %d of %d seeds", len(all), least, most, seeds)
}

func TestLeftOut(t *testing.T) {
	k := Kernel{Series: "6.12", Release: "6.12.1"}
	left := []*work{
		{kernel: k, suite: Suite{Name: "b"}}, {kernel: k, suite: Suite{Name: "a"}},
		{kernel: k, suite: Suite{Name: "b"}},
		{kernel: Kernel{Release: "6.1.9"}, suite: Suite{Name: "a"}},
	}
	const want = "lab: 4 tests are left out, make test-full has them: on 6.1: a 1 on 6.12: a 1 b 2\n"
	if got := leftOut(left); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := leftOut(nil); got != "" {
		t.Errorf("nothing left out: %q", got)
	}
}

// TestQueueKeepsTheDeadline: what would end too late at the pace of this machine is left out, what comes first is not.
func TestQueueKeepsTheDeadline(t *testing.T) {
	k := Kernel{Series: "6.12"}
	all := []*work{
		{kernel: k, suite: Suite{Name: "x"}, test: "TestLong", expected: 300},
		{kernel: k, suite: Suite{Name: "x"}, test: "TestMiddle", expected: 100},
		{kernel: k, suite: Suite{Name: "x"}, test: "TestFirst", expected: 10, first: true},
	}
	t.Setenv("FABRIC_DEADLINE", strconv.FormatInt(time.Now().Add(250*time.Second).Unix(), 10))
	q := newQueue(all)
	c := q.enter()
	if w := q.take(c); w == nil || w.test != "TestFirst" {
		t.Errorf("the first work is %v", w)
	}
	if len(q.left) != 1 || q.left[0].test != "TestLong" {
		t.Errorf("left out: %v", q.left)
	}
	q.done(&work{expected: 100}, 500) // five times as slow as expected
	if w := q.take(c); w != nil || !q.idle() || len(q.left) != 2 {
		t.Errorf("%v is handed out", w)
	}
}
