// Package suites judges what tests of others, in Ginkgo, report, by a list of those that differ here on purpose.
package suites

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Spec is a test of a suite.
type Spec struct {
	Name  string // with the texts of its containers
	State string // "passed", "failed", "skipped", ...
	Why   string // of a failure
}

// Report reads a report that a suite has written with -ginkgo.json-report.
func Report(t testing.TB, file string) (out []Spec) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, s := range reports[0].SpecReports {
		if s.LeafNodeType == "It" {
			name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
			out = append(out, Spec{name, s.State, s.Failure.Message})
		}
	}
	return out
}

var line = regexp.MustCompile(`^(\S+) "([^"]+)" (.{20,}|as above)$`)

// Differences are the parts of names of tests that a file lists for a suite, in lines SUITE "PART" REASON.
func Differences(t testing.TB, file, suite string) (parts []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(b)) {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf(`%s: %q: want SUITE "PART" REASON`, file, text)
		}
		if m[1] == suite {
			parts = append(parts, m[2])
		}
	}
	return parts
}

// Judge asserts that the tests with one of the parts in their names are in the state differs, "failed" or "skipped",
// that all others have passed, and that each part is in the name of one.
func Judge(t testing.TB, suite string, specs []Spec, parts []string, differs string) {
	t.Helper()
	passed, used := 0, map[string]bool{}
	for _, s := range specs {
		want := "passed"
		at := slices.IndexFunc(parts, func(p string) bool { return strings.Contains(s.Name, p) })
		if at >= 0 {
			want, used[parts[at]] = differs, true
		}
		if s.State != want {
			t.Errorf("%q: %s, want %s: %s", s.Name, s.State, want, s.Why)
		}
		if s.State == "passed" {
			passed++
		}
	}
	for _, p := range parts {
		if !used[p] {
			t.Errorf("the list of differences has %q, of which there is no test", p)
		}
	}
	fmt.Printf("suites: %s: %d of %d pass\n", suite, passed, len(specs))
}
