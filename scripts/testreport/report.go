package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc cmd/test2json; the build-* actions: go help buildjson).
type event struct {
	Action     string
	Package    string
	ImportPath string // build-output, build-fail
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

type key struct{ pkg, test string }

// maxDepth is how deep -v looks: TestLab/<kernel>/<suite>/<guest test>.
const maxDepth = 3

type report struct {
	out     io.Writer
	verbose bool

	output                   map[key][]string // of tests and packages that have not ended
	passed, skipped, failed  int
	packages, failedPackages int
	skippedTests             []key
	took                     []duration // of packages, and of tests of the first three levels
	said                     []saying   // by the tests that failed
}

// saying is a message of a test that failed.
type saying struct {
	key
	text string
}

type duration struct {
	key
	seconds float64
}

// What is worth a line at the end.
const (
	slowPackage = 10.0 // seconds
	slowTests   = 12   // so many tests, the slowest
	failures    = 40   // so many messages of tests that failed
)

// leftOut matches what a suite says of tests that it leaves to make test-full (internal/testkit/share).
var leftOut = regexp.MustCompile(`^\w+: .*\btest-full\b`)

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.take(e)
			} else {
				fmt.Fprint(r.out, string(line)) // not an event: a message of the go command
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (r *report) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if leftOut.MatchString(e.Output) {
			fmt.Fprint(r.out, e.Output)
		}
		r.output[k] = append(r.output[k], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(k, e)
		} else {
			r.endTest(k, e)
		}
		delete(r.output, k)
	}
}

func (r *report) endTest(k key, e event) {
	if strings.Count(k.test, "/") < maxDepth {
		r.took = append(r.took, duration{k, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		r.passed++
		if r.verbose && strings.Count(e.Test, "/") <= maxDepth {
			fmt.Fprintf(r.out, "--- PASS: %s (%.2fs)\n", e.Test, e.Elapsed)
		}
	case "fail":
		r.failed++
		r.print(k)
		for _, text := range messages(r.output[k]) {
			r.said = append(r.said, saying{k, text})
		}
		r.repeat(k)
	case "skip":
		r.skipped++
		r.skippedTests = append(r.skippedTests, k)
		r.print(k)
	}
}

func (r *report) endPackage(k key, e event) {
	r.packages++
	r.took = append(r.took, duration{k, e.Elapsed})
	if e.Action == "fail" {
		r.failedPackages++
		r.interrupted(e.Package)
	}
	for _, line := range r.output[k] {
		// A package that passed needs only its line "ok"; its other output (PASS, coverage: ...) tells nothing more.
		if e.Action == "fail" || strings.HasPrefix(line, "ok ") {
			fmt.Fprint(r.out, line)
		}
	}
}

// interrupted prints what the tests had written that never ended: a panic, or the timeout.
func (r *report) interrupted(pkg string) {
	for k := range r.output {
		if k.pkg == pkg && k.test != "" {
			r.print(k)
			delete(r.output, k)
		}
	}
}

func (r *report) print(k key) {
	for _, line := range r.output[k] {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.out, line)
		}
	}
}

// A message begins with the place in a test file that it is from: t.Error, t.Fatal, and t.Log, which look alike. The
// test may write more after its last one, logs for instance, but seldom less than a screen.
var place = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

const messageColumns, messageLines, screen = 300, 12, 40

// messages are the first lines of the last messages of a test.
func messages(output []string) (lines []string) {
	for _, line := range output {
		if place.MatchString(line) {
			line = strings.TrimSpace(line)
			lines = append(lines, strings.ToValidUTF8(line[:min(len(line), messageColumns)], ""))
		}
	}
	return lines[max(0, len(lines)-messageLines):]
}

// repeat prints once more what a test and those below it said when they failed, if more than a screen has come since.
func (r *report) repeat(k key) {
	if len(r.output[k]) < screen {
		return
	}
	for _, s := range r.said {
		if s.pkg == k.pkg && (s.test == k.test || strings.HasPrefix(s.test, k.test+"/")) {
			r.tell(s)
		}
	}
}

func (r *report) tell(s saying) {
	fmt.Fprintf(r.out, "testreport: failed: %s %s: %s\n", path.Base(s.pkg), s.test, s.text)
}

// durations prints how long slow packages and the slowest tests took, the slowest first.
func (r *report) durations() {
	slices.SortStableFunc(r.took, func(a, b duration) int { return cmp.Compare(b.seconds, a.seconds) })
	tests := 0
	for _, d := range r.took {
		name := path.Base(d.pkg)
		if d.test != "" {
			name += " " + d.test
			tests++
		}
		if d.test == "" && d.seconds >= slowPackage || d.test != "" && d.seconds >= 1 && tests <= slowTests {
			fmt.Fprintf(r.out, "testreport: seconds: %7.1f s  %s\n", d.seconds, name)
		}
	}
}

// verdict is nil when everything passed. A stream without any package is no success either.
func (r *report) verdict() error {
	r.durations()
	for _, s := range r.said[:min(len(r.said), failures)] {
		r.tell(s)
	}
	fmt.Fprintf(r.out, "testreport: %d packages, %d tests passed, %d failed, %d skipped\n",
		r.packages, r.passed, r.failed, r.skipped)
	switch {
	case r.packages == 0:
		return errors.New("no package was tested")
	case r.failedPackages > 0:
		return fmt.Errorf("%d of %d packages failed", r.failedPackages, r.packages)
	case len(r.output) > 0:
		return errors.New("the stream ended before the tests did")
	}
	return nil
}

// checkSkips returns an error for each skipped test whose package has no file that may skip in CI.
func (r *report) checkSkips(allowed map[string]bool) error {
	var errs []error
	for _, k := range r.skippedTests {
		ok := false
		for dir := range allowed {
			ok = ok || strings.HasSuffix(k.pkg, "/"+dir)
		}
		if !ok {
			errs = append(errs, fmt.Errorf("%s %s: skipped in CI: it should have run here", k.pkg, k.test))
		}
	}
	return errors.Join(errs...)
}

// readSkips returns the directories with a file that may skip in CI.
func readSkips(in io.Reader) (map[string]bool, error) {
	dirs := map[string]bool{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 3 || f[1] != "local" && f[1] != "ci" {
			return nil, fmt.Errorf("line %q: want FILE, local or ci, and a reason", lines.Text())
		}
		if f[1] == "ci" {
			dirs[path.Dir(f[0])] = true
		}
	}
	return dirs, lines.Err()
}
