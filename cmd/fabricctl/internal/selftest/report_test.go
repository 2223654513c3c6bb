package selftest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/perftest"
)

func TestDiff(t *testing.T) {
	was, now := State{}, State{}
	was.put("ibs108 mtu", 4092)
	was.put("ibs108 txqueuelen", 256)
	was.put("rule from all", "yes")
	was.put("rule from all", "yes")
	was.put("rule from all", "yes")
	now.put("ibs108 mtu", 2044)
	now.put("ibs108 txqueuelen", 256)
	now.put("rule from all", "yes")
	now.put("rule from all", "yes")
	now.put("ibs108 alias", "x")
	want := []string{"+ ibs108 alias: x", "- ibs108 mtu: 4092", "+ ibs108 mtu: 2044", "- rule from all #3: yes"}
	if d := cmp.Diff(want, was.Diff(now)); d != "" {
		t.Error(d)
	}
	if d := was.Diff(was); len(d) > 0 {
		t.Errorf("a state differs from itself: %q", d)
	}
	if got := few(make([]string, maxLines+2)); len(got) != maxLines+1 || got[maxLines] != "2 more lines" {
		t.Errorf("%q", got[maxLines:])
	}
}

// Whatever a text has, the report has it in one line, bounded, and without what is hidden; versions stay.
func TestRedacted(t *testing.T) {
	long := strings.Repeat("x", 5000)
	r := Report{
		Kernel: "6.12.1-1.2.3.4\x1b[2J", Warnings: []string{"secret " + long}, Left: []string{"secret"},
		Adapters: []Adapter{{Device: "secret", Firmware: "28.39.1002", DriverVersion: long}},
		Steps:    []Step{{Device: "secret", Text: "secret\n" + long, Diff: []string{"- a: secret"}}, {Name: "check"}},
	}
	out := r.Redacted(func(s string) string { return strings.ReplaceAll(s, "secret", "(1)") })
	for _, text := range []string{out.Warnings[0], out.Left[0], out.Adapters[0].Device, out.Steps[0].Device,
		out.Steps[0].Text, out.Steps[0].Diff[0]} {
		if strings.Contains(text, "secret") || !strings.Contains(text, "(1)") || len(text) > maxText+3 ||
			strings.Contains(text, "\n") {
			t.Errorf("%q", text)
		}
	}
	if out.Kernel != `6.12.1-1.2.3.4\x1b[2J` || len(out.Adapters[0].DriverVersion) > maxWord+3 ||
		out.Adapters[0].Firmware != "28.39.1002" {
		t.Errorf("%+v", out)
	}
	if r.Steps[0].Device != "secret" || out.Steps[1].Diff != nil {
		t.Error("the report itself was changed, or has empty lists")
	}
}

// A report is good if all passed, or was left out for a reason that leaves no gap.
func TestGood(t *testing.T) {
	for _, c := range []struct {
		steps    []Step
		restored bool
		good     bool
	}{
		{[]Step{{Result: Pass}, {Result: Skip}}, true, true},
		{[]Step{{Result: Pass}}, false, false},
		{[]Step{{Result: Pass}, {Result: Skip, Missed: true}}, true, false},
		{[]Step{{Result: Pass}, {Result: Fail}}, true, false},
	} {
		r := Report{Steps: c.steps, Restored: c.restored}
		if r.Sum(); r.Good() != c.good {
			t.Errorf("%+v: %t", r, r.Good())
		}
	}
}

// What changes nothing comes first, nothing is looked at before it is attached, and the page has all steps.
func TestSteps(t *testing.T) {
	var names []string
	for _, s := range deviceSteps {
		names = append(names, s.name)
	}
	order := []string{"wrong-config", "attach", "verbs", "check", "return", "pod-death", "repair", "kill"}
	if !slices.Equal(names, order) {
		t.Errorf("%q, want %q", names, order)
	}
	page, err := os.ReadFile("../../../../docs/hardware.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, "traffic", "host") {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/hardware.md has no step %s", name)
		}
	}
}

// No traffic between Ethernet ports proves nothing; perftest without a figure is no failure of the path.
func TestJudge(t *testing.T) {
	one := func(ping string, v perftest.Verdict) []perftest.Result {
		return []perftest.Result{{Ping: ping, Verdict: v, Text: "text"}}
	}
	for _, c := range []struct {
		list     []perftest.Result
		together bool
		want     Status
	}{
		{one("reachable", perftest.Good), true, Pass},
		{one("reachable", perftest.Skipped), true, Pass},
		{one("reachable", perftest.Failed), false, Fail},
		{one("unreachable", perftest.Failed), true, Fail},
		{one("unreachable", perftest.Failed), false, Skip},
		{nil, true, Skip},
	} {
		if got := judge(c.list, nil, c.together); got.status != c.want {
			t.Errorf("%+v: %s, want %s", c.list, got.status, c.want)
		}
	}
}
