package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Fault is what a binary built with the tag failpoint does at a point.
type Fault string

// The faults. A plugin that is killed says nothing and cleans nothing up.
const (
	FaultError Fault = "error"
	FaultKill  Fault = "kill"
)

// Faults are all faults.
var Faults = []Fault{FaultError, FaultKill}

// Points runs the plugin without a fault and returns the outcome and the failpoints it passed, in their order, each
// once. They are what RunWithFault can stop at.
func Points(t testing.TB, c Call) ([]string, Outcome) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "points")
	c.Env = append(append([]string{}, c.Env...), "FABRIC_FAILPOINT_TRACE="+trace)
	out := c.Exec(t)
	data, err := os.ReadFile(trace)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var points []string
	seen := make(map[string]bool)
	for _, p := range strings.Fields(string(data)) {
		if !seen[p] {
			seen[p] = true
			points = append(points, p)
		}
	}
	return points, out
}

// RunWithFault runs the plugin with a fault at a failpoint. It fails the test if the fault did not strike: a matrix
// that misses its points passes for nothing.
func RunWithFault(t testing.TB, c Call, point string, fault Fault) Outcome {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "points")
	c.Env = append(
		append([]string{}, c.Env...),
		"FABRIC_FAILPOINT_TRACE="+trace,
		fmt.Sprintf("FABRIC_FAILPOINT=%s:%s", point, fault),
	)
	out := c.Exec(t)
	data, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains("\n"+string(data), "\n"+point+"\n") {
		t.Errorf("%s did not pass failpoint %s: %s", c.Command, point, out)
	}
	if fault == FaultKill && !out.Killed {
		t.Errorf("%s survived the kill at %s: %s", c.Command, point, out)
	}
	return out
}
