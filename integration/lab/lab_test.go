package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLab runs every guest test on every kernel: TestLab/<kernel>/<suite>/<guest test>.
func TestLab(t *testing.T) {
	if testing.Short() {
		t.Skip("needs minutes")
	}
	kernels, err := Kernels()
	if err != nil {
		t.Fatal(err)
	}
	bin := buildAll(t)
	t.Cleanup(func() { matrixLines.log(t) })
	for _, k := range kernels {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			for _, s := range Suites {
				if !s.wants(k) {
					continue
				}
				shards := deal(bin.tests[s.Name], s.Shards)
				for i, tests := range shards {
					name := s.Name
					if len(shards) > 1 {
						name = fmt.Sprintf("%s-%d", s.Name, i+1)
					}
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						runSuite(t, k, s, bin, tests)
					})
				}
			}
		})
	}
}

// binaries are what was built for the guests.
type binaries struct {
	dir   string
	tests map[string][]string // suite -> top-level tests, after $FABRIC_LAB_RUN
}

func testBinary(pkg string) string {
	return strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-") + ".test"
}

func buildAll(t *testing.T) binaries {
	t.Helper()
	dir, err := TempDir("bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	builds := slices.Clone(Binaries)
	var packages []string
	for _, s := range Suites {
		if pkg := s.pkg(); !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
			builds = append(builds, Build{Name: testBinary(pkg), Package: pkg, Tags: "labguest,failpoint", Test: true})
		}
	}
	if err := Make(t.Context(), dir, builds); err != nil {
		t.Fatal(err)
	}
	b := binaries{dir: dir, tests: make(map[string][]string)}
	for _, pkg := range packages {
		// Suites are checked against all tests, not only against those chosen.
		all := listTests(t, filepath.Join(dir, testBinary(pkg)), ".")
		if _, err := assign(Suites, pkg, all); err != nil {
			t.Error(err)
		}
		top, _, _ := strings.Cut(os.Getenv("FABRIC_LAB_RUN"), "/")
		if top == "" {
			top = "." // an empty list pattern would run the tests
		}
		chosen, _ := assign(Suites, pkg, listTests(t, filepath.Join(dir, testBinary(pkg)), top))
		for suite, tests := range chosen {
			b.tests[suite] = tests
		}
	}
	return b
}

func listTests(t *testing.T, binary, pattern string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, "-test.list", pattern).CombinedOutput()
	if err != nil {
		t.Fatalf("list tests of %s: %v\n%s", binary, err, out)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(s string) bool { return !strings.HasPrefix(s, "Test") })
}

func runSuite(t *testing.T, k Kernel, s Suite, bin binaries, tests []string) {
	out, err := TempDir("out-")
	if err != nil {
		t.Fatal(err)
	}
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 10 * time.Minute
	}
	_, rest, _ := strings.Cut(os.Getenv("FABRIC_LAB_RUN"), "/")
	// The test binary gives up before the guest is killed: its goroutines say more than the end of a console.
	command := fmt.Sprintf("exec %s/%s -test.v=test2json -test.timeout=%s -test.run='%s'\n",
		bin.dir, testBinary(s.pkg()), timeout*8/10, pattern(tests, rest))
	spec := Spec{
		Script: fmt.Sprintf(
			"export FABRIC_BIN_DIR=%s FABRIC_LAB_SERIES=%s FABRIC_LAB_ROUNDS=%s FABRIC_LAB_FULL=%s\n%s",
			bin.dir,
			k.Series,
			os.Getenv("FABRIC_LAB_ROUNDS"),
			os.Getenv("FABRIC_LAB_FULL"),
			command,
		),
		OutDir:  out,
		Append:  s.Append,
		Devices: s.Devices,
		NewQEMU: s.NewQEMU,
		Timeout: timeout,
	}
	if os.Getenv("FABRIC_LAB_VERBOSE") != "" {
		spec.Output, spec.Console = os.Stderr, os.Stderr
	}
	res, runErr := Run(t.Context(), k, spec)
	t.Logf(
		"kernel %s: boot %.1fs, total %.1fs, attempt %d",
		k.Release,
		res.Boot.Seconds(),
		res.Total.Seconds(),
		res.Attempts,
	)

	matrixLines.add(t, out)

	output, err := os.ReadFile(filepath.Join(out, "output"))
	if err != nil && runErr == nil {
		t.Fatal(err)
	}
	guestTests, other, err := ParseTests(t.Context(), output)
	if err != nil {
		t.Error(err)
	}
	for _, name := range tests {
		i := slices.IndexFunc(guestTests, func(g *GuestTest) bool { return g.Name == name })
		if i < 0 {
			t.Errorf("guest test %s did not start", name)
			continue
		}
		t.Run(name, func(t *testing.T) { replay(t, guestTests[i], slices.Contains(s.AllowSkip, name)) })
	}
	if runErr != nil {
		t.Error(runErr)
	}
	if res.Status != 0 && !t.Failed() {
		t.Errorf("guest tests exit with status %d", res.Status)
	}
	if t.Failed() {
		t.Logf("results are in %s\n%s", out, other)
		if runErr == nil { // which tells it
			t.Logf("end of the kernel log:\n%s", tail(filepath.Join(out, "dmesg")))
		}
		return
	}
	if err := os.RemoveAll(out); err != nil {
		t.Error(err)
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
