package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// GuestTest is a test of a guest, as its test binary reported it.
type GuestTest struct {
	Name    string
	Result  string // pass, fail, skip, or "" if the guest ended before the test
	Seconds float64
	Output  []string
	Sub     []*GuestTest
}

// testEvent is what cmd/test2json prints; see go doc test2json.
type testEvent struct {
	Action  string
	Test    string
	Elapsed float64
	Output  string
}

// ParseTests reads the output of a test binary that ran with -test.v=test2json. It returns the top-level tests in the
// order of their start, and the output that belongs to none of them: a panic, a race, what TestMain printed.
func ParseTests(ctx context.Context, output []byte) (tests []*GuestTest, other string, err error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t")
	cmd.Stdin = bytes.NewReader(output)
	events, err := cmd.Output()
	if err != nil {
		return nil, "", fmt.Errorf("run go tool test2json: %w", err)
	}
	var b strings.Builder
	known := make(map[string]*GuestTest)
	for dec := json.NewDecoder(bytes.NewReader(events)); ; {
		var e testEvent
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			return tests, b.String(), nil
		} else if err != nil {
			return nil, "", fmt.Errorf("decode output of test2json: %w", err)
		}
		if e.Test == "" {
			b.WriteString(e.Output)
			continue
		}
		t := known[e.Test]
		if t == nil {
			t = &GuestTest{Name: e.Test}
			known[e.Test] = t
			if parent, name, ok := splitLast(e.Test); ok && known[parent] != nil {
				t.Name = name
				known[parent].Sub = append(known[parent].Sub, t)
			} else {
				tests = append(tests, t)
			}
		}
		t.apply(e)
	}
}

func (t *GuestTest) apply(e testEvent) {
	switch e.Action {
	case "output":
		if !strings.HasPrefix(strings.TrimLeft(e.Output, " "), "===") {
			t.Output = append(t.Output, e.Output)
		}
	case "pass", "fail", "skip":
		t.Result, t.Seconds = e.Action, e.Elapsed
	}
}

// splitLast splits the name of a subtest from its parent's.
func splitLast(name string) (parent, last string, ok bool) {
	i := strings.LastIndex(name, "/")
	if i < 0 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}
