package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestComplaints(t *testing.T) {
	for line, want := range map[string]bool{
		"[    1.0] BUG: kernel NULL pointer dereference":                                          true,
		"[    1.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 f+0x1/0x2":                          true,
		"[    1.0] Oops: 0000 [#1] PREEMPT":                                                       true,
		"[    1.0] unregister_netdevice: waiting for ib0 to become free. Usage count = 2":         true,
		"[    1.0] refcount_t: underflow; use-after-free.":                                        true,
		"[    1.0] infiniband mlx5_0: ref tracker leaked":                                         true,
		"[    1.0] ACPI: please report a bug to the vendor: WARNING":                              false,
		"[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!":                             false,
		"[    1.0] ib1: enabling connected mode will cause multicast packet drops":                false,
		"[    1.0] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaked": false,
	} {
		if got := len(Complaints(line+"\n")) == 1; got != want {
			t.Errorf("%q complains: %v, want %v", line, got, want)
		}
	}
	const lockup = "[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]\n"
	const trace = "[    1.0] Call Trace:\n"
	far := strings.Repeat("[    1.0] RAX: 0\n", mostLines)
	for text, want := range map[string]int{
		lockup + trace + "[    1.0] rcu: RCU grace-period kthread stack dump:\n" + trace: 0,
		"[    1.0] INFO: task rmmod:9 blocked for more than 122 seconds.\n" + trace:      1,
		trace: 1, lockup + trace: 0, lockup + trace + trace: 1, lockup + far + trace: 1,
	} {
		if got := Complaints(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestAssign(t *testing.T) {
	suites := []Suite{
		{Name: "a", Run: "^TestA"},
		{Name: "b", Run: "^TestB"},
		{Name: "ab", Run: "^TestAB", Package: "./other"},
	}
	got, err := assign(suites, guestPackage, []string{"TestAB", "TestA", "TestB"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]string{"a": {"TestAB", "TestA"}, "b": {"TestB"}}, got); diff != "" {
		t.Error(diff)
	}
	if _, err := assign(suites, guestPackage, []string{"TestC"}); err == nil {
		t.Error("a test of no suite is accepted")
	}
	if _, err := assign(append(suites, Suite{Name: "c", Run: "AB"}), guestPackage, []string{"TestAB"}); err == nil {
		t.Error("a test of two suites is accepted")
	}
	if _, err := assign([]Suite{{Run: "("}}, guestPackage, []string{"TestA"}); err == nil {
		t.Error("a bad expression is accepted")
	}
}

func TestWants(t *testing.T) {
	on := func(s Suite, chosen bool) (series []string) {
		for _, name := range Series {
			if s.wants(Kernel{Series: name}, chosen) {
				series = append(series, name)
			}
		}
		return series
	}
	for name, c := range map[string]struct {
		suite         Suite
		plain, chosen []string
	}{
		"all":    {Suite{}, Series, Series},
		"series": {Suite{Series: on612}, on612, on612},
		"night":  {Suite{Night: true}, nil, Series},
	} {
		if diff := cmp.Diff(c.plain, on(c.suite, false)); diff != "" {
			t.Errorf("%s: a plain run: %s", name, diff)
		}
		if diff := cmp.Diff(c.chosen, on(c.suite, true)); diff != "" {
			t.Errorf("%s: a run that asks for it: %s", name, diff)
		}
	}
}

func TestKernelName(t *testing.T) {
	for release, want := range map[string]string{
		"6.1.0-56-amd64": "6.1", "6.12.117+deb12-amd64": "6.12", "7.2.12+deb13-amd64": "7.2",
	} {
		if got := (Kernel{Release: release}).String(); got != want {
			t.Errorf("%s is %q, want %q", release, got, want)
		}
	}
}

func TestParseTests(t *testing.T) {
	// The marks are what -test.v=test2json adds.
	output := strings.ReplaceAll(`before
^=== RUN   TestA
^=== RUN   TestA/x
    a_test.go:1: hello
^--- FAIL: TestA (0.50s)
    ^--- FAIL: TestA/x (0.25s)
^=== RUN   TestB
^=== NAME  TestB
    b_test.go:1: lacks something
^--- SKIP: TestB (0.00s)
^=== RUN   TestC
panic: here
`, "^", "\x16")
	tests, other, err := ParseTests(t.Context(), []byte(output))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(other, "before") {
		t.Errorf("output outside tests is %q", other)
	}
	var got []string
	for _, g := range tests {
		got = append(got, g.Name+" "+g.Result)
		for _, s := range g.Sub {
			got = append(got, g.Name+"/"+s.Name+" "+s.Result)
		}
	}
	if diff := cmp.Diff([]string{"TestA fail", "TestA/x fail", "TestB skip", "TestC "}, got); diff != "" {
		t.Error(diff)
	}
	if tests[0].Seconds != 0.5 || !strings.Contains(strings.Join(tests[0].Sub[0].Output, ""), "hello") {
		t.Errorf("TestA is %+v, its subtest %+v", tests[0], tests[0].Sub[0])
	}
}

func TestScriptUptime(t *testing.T) {
	for _, test := range []struct {
		console string
		want    time.Duration
		ok      bool
	}{
		{"@@ init 3.73\n@@ root 5.28\n", 0, false},
		{"@@ root 5.28\r\n@@ script 6", 0, false},
		{"@@ root 5.28\r\n@@ script 63.43\r\n", 63430 * time.Millisecond, true},
		{"@@ script [ 6.1] oops\n", 0, true},
	} {
		if got, ok := scriptUptime([]byte(test.console)); got != test.want || ok != test.ok {
			t.Errorf("%q: %s, %t", test.console, got, ok)
		}
	}
}

func TestTooFast(t *testing.T) {
	for _, test := range []struct {
		uptime, wall time.Duration
		want         bool
	}{
		{63430 * time.Millisecond, 11500 * time.Millisecond, true}, // as seen
		{9 * time.Second, 10 * time.Second, false},
		{10 * time.Second, 10 * time.Second, false},
	} {
		if got := tooFast(test.uptime, test.wall); got != test.want {
			t.Errorf("up for %s after %s: %t", test.uptime, test.wall, got)
		}
	}
}
