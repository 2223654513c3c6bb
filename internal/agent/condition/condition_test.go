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

// A finding is reported once: an Event and a log line when it is new or says something else, a log line when it is
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
	down := func(s *condition.Set) { s.Add(condition.FabricUnmatched, condition.Fabric("a"), "none is %s", "near") }
	report(down)
	report(down)
	report(func(s *condition.Set) {
		s.Add(condition.FabricUnmatched, condition.Fabric("b"), "none is near")
		s.Add(condition.FabricUnmatched, condition.Fabric("a"), "none is there")
		s.Add(condition.StateNotWritable, condition.Node, "disk is full")
		s.Add(condition.RefusedRDMAMode, condition.Node, "mode is shared")
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
	line := `msg="disk is full" condition=PluginReady reason=StateNotWritable`
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
	report := func(of condition.Reason, text string) {
		s := &condition.Set{}
		if text != "" {
			s.Add(of, condition.Device("a"), "%s", text)
		}
		r.Report(s)
	}
	report(condition.PortDown, "a is Down")
	report(condition.PortDown, "a is Init")
	report(condition.Flapping, "a flaps")
	r = newReporter()
	r.Known(condition.Flapping, condition.Device("a"))
	report(condition.Flapping, "a flaps in a pod")
	report(condition.Flapping, "")
	r = newReporter()
	r.Known(condition.Flapping, condition.Device("a"))
	report(condition.Flapping, "") // all that it knows is which
	want := []string{
		"true PortDown: a is Down", "true Flapping: a flaps", "false DeviceRecovered: resolved: a flaps in a pod",
		"false DeviceRecovered: resolved: device/a: Flapping",
	}
	if !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
}

// A set has one finding of a reason and object, the last.
func TestSet(t *testing.T) {
	s := &condition.Set{}
	s.Add(condition.PortDown, condition.Device("a"), "a is Init")
	s.Add(condition.PortDown, condition.Device("b"), "b is Down")
	s.Add(condition.PortDown, condition.Device("a"), "a is Down")
	f, ok := s.Get(condition.PortDown, condition.Device("a"))
	if !ok || f.Message != "a is Down" || f.Reason.Name != "PortDown" {
		t.Errorf("%+v, %v", f, ok)
	}
	if f, ok = s.Get(condition.Flapping, condition.Device("a")); ok {
		t.Errorf("%+v", f)
	}
}

// A condition has the worst of its reasons, and the messages by reason and object, whatever came first.
func TestSum(t *testing.T) {
	s := &condition.Set{}
	s.Add(condition.NotConnected, condition.Device("d"), "d has no cable")
	s.Add(condition.NotOffered, condition.Device("a"), "a has no name")
	s.Add(condition.FabricUnmatched, condition.Fabric("f"), "no device")
	s.Add(condition.CounterLimit, condition.Device("a"), "a has errors")
	s.Add(condition.WrongRDMAMode, condition.Fabric("a"), "a wants the other mode")
	s.Add(condition.RefusedRDMAMode, condition.Fabric("b"), "b works in no mode")
	s.Add(condition.PortDown, condition.Device("c"), "c is Down")
	s.Add(condition.PortDown, condition.Device("b"), "b is Down")
	s.Add(condition.StateNotWritable, condition.Node, "disk is full")
	wrong, notes := s.Sum()
	var got []string
	for _, c := range append(wrong, notes...) {
		got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	want := []string{
		"PluginReady False StateNotWritable: disk is full",
		"RDMAModeFits False WrongRDMAMode: b works in no mode; a wants the other mode",
		"DevicesAvailable False NotOffered: a has no name",
		"PortsHealthy False PortDown: b is Down; c is Down; a has errors",
		"PortsConnected False NotConnected: d has no cable",
		"FabricsUsed False FabricUnmatched: no device",
	}
	if len(notes) != 2 || !slices.Equal(got, want) {
		t.Errorf("%d notes, %q, want %q", len(notes), got, want)
	}
}

// A message is no longer than its bound, and says how many messages were left out.
func TestSumBounded(t *testing.T) {
	s := &condition.Set{}
	for i := range 200 {
		s.Add(condition.PortDown, condition.Device(fmt.Sprintf("%03d", i)), "%s", strings.Repeat("\u00e9", 10))
	}
	wrong, _ := s.Sum()
	if m := wrong[0].Message; len(m) > 1024 || !strings.HasSuffix(m, "\u00e9; and 155 more") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
	s = &condition.Set{}
	s.Add(condition.PortDown, condition.Device("a"), "x%s", strings.Repeat("\u00e9", 1000))
	s.Add(condition.PortDown, condition.Device("b"), "b is Down")
	wrong, _ = s.Sum()
	if m := wrong[0].Message; len(m) > 1024 || !strings.HasSuffix(m, "\u00e9...; and 1 more") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
}
