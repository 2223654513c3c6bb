package condition_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
)

// A condition is reported once: an Event and a log line when it is new or says something else, a log line when it is
// resolved.
func TestReport(t *testing.T) {
	var log bytes.Buffer
	var events []string
	var ready []bool
	r := &condition.Reporter{
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
		Event: func(_ bool, reason, message string) { events = append(events, reason+": "+message) },
		Ready: func(ok bool) { ready = append(ready, ok) },
	}
	if got := r.NotReady(); len(got) != 1 {
		t.Errorf("before the first report: %q", got)
	}
	report := func(fail func(*condition.Set)) {
		s := &condition.Set{}
		fail(s)
		r.Report(s)
	}
	down := func(s *condition.Set) { s.Fail(condition.FabricMatched, condition.Fabric("a"), "none is %s", "near") }
	report(down)
	report(down)
	report(func(s *condition.Set) {
		s.Fail(condition.FabricMatched, condition.Fabric("b"), "none is near")
		s.Fail(condition.FabricMatched, condition.Fabric("a"), "none is there")
		s.Fail(condition.StateWritable, condition.Node, "disk is full")
		s.Fail(condition.RDMAModeUsable, condition.Node, "mode is shared")
	})
	if got, want := r.NotReady(), []string{"disk is full", "mode is shared"}; !slices.Equal(got, want) {
		t.Errorf("not ready: %q, want %q", got, want)
	}
	report(func(*condition.Set) {})
	if got := r.NotReady(); len(got) != 0 {
		t.Errorf("not ready: %q", got)
	}
	want := []string{
		"FabricUnmatched: none is near", "FabricUnmatched: none is near", "FabricUnmatched: none is there",
		"WrongRDMAMode: mode is shared",
	}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
	if want := []bool{true, true, false, true}; !slices.Equal(ready, want) {
		t.Errorf("ready %v, want %v", ready, want)
	}
	if n := strings.Count(log.String(), `msg="none is near"`); n != 2 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), `msg="resolved: `); n != 4 {
		t.Errorf("%d are resolved:\n%s", n, log.String())
	}
	line := `msg="disk is full" condition=StateWritable status=False reason=StateNotWritable`
	if !strings.Contains(log.String(), line) {
		t.Errorf("no %q:\n%s", line, log.String())
	}
}

// What is wrong with a device is said once, whatever it says of itself meanwhile, and once that it is over. An agent
// that is restarted does not say it again.
func TestReportDevice(t *testing.T) {
	var events []string
	newReporter := func() *condition.Reporter {
		r := &condition.Reporter{Log: slog.New(slog.DiscardHandler)}
		r.Event = func(warning bool, reason, message string) {
			events = append(events, fmt.Sprint(warning, " ", reason, ": ", message))
		}
		return r
	}
	r := newReporter()
	report := func(of condition.Type, text string) {
		s := &condition.Set{}
		if text != "" {
			s.Fail(of, condition.Device("a"), "%s", text)
		}
		r.Report(s)
	}
	report(condition.PortActive, "a is Down")
	report(condition.PortActive, "a is Init")
	report(condition.PortStable, "a flaps")
	r = newReporter()
	r.Known(condition.PortStable, condition.Device("a"))
	report(condition.PortStable, "a flaps in a pod")
	report(condition.PortStable, "")
	r = newReporter()
	r.Known(condition.PortStable, condition.Device("a"))
	report(condition.PortStable, "") // all that it knows is which
	want := []string{
		"true PortDown: a is Down", "true Flapping: a flaps", "false DeviceRecovered: resolved: a flaps in a pod",
		"false DeviceRecovered: resolved: device/a: Flapping",
	}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
}

// A set has one condition of a type and object, the last; and one sum of a type.
func TestSet(t *testing.T) {
	s := &condition.Set{}
	s.Fail(condition.PortActive, condition.Device("a"), "a is Init")
	s.Fail(condition.FabricMatched, condition.Fabric("f"), "no device")
	s.Fail(condition.PortActive, condition.Device("a"), "a is Down")
	s.Fail(condition.PortActive, condition.Device("b"), "b is Down")
	c, ok := s.Get(condition.PortActive, condition.Device("a"))
	if !ok || c.Message != "a is Down" || c.Status != "False" || c.Reason != "PortDown" {
		t.Errorf("%+v, %v", c, ok)
	}
	wrong, notes := s.Sum()
	if len(wrong) != 1 || len(notes) != 1 ||
		wrong[0].Message != "a is Down; b is Down" || notes[0].Message != "no device" {
		t.Errorf("%+v, %+v", wrong, notes)
	}
	for i := range 200 {
		s.Fail(condition.PortActive, condition.Device(strings.Repeat("x", i+1)), "%s", strings.Repeat("\u00e9", 10))
	}
	if wrong, _ = s.Sum(); len(wrong[0].Message) > 1024 || !strings.HasSuffix(wrong[0].Message, "...") {
		t.Errorf("%d bytes", len(wrong[0].Message))
	}
}
