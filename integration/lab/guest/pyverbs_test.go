//go:build labguest

package guest

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	//go:embed testdata/pyverbs.py
	pyverbsRunner []byte
	//go:embed testdata/pyverbs.txt
	pyverbsKnown string
)

// rdma-core's own tests of libibverbs and librdmacm pass, in a pod, on the rail that the plugin gave it; those excepted
// that testdata/pyverbs.txt lists, each with a reason.
func TestPyverbs(t *testing.T) {
	known, err := readKnown(pyverbsKnown)
	if err != nil {
		t.Fatal(err)
	}
	UserLand(t)
	Fabric{Num: 1}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	rail := interfaceOf(pod, "net1", network(config{"device": "ib0", "ipam": static("10.1.0.1/24")}))
	rail.add(t)
	pod.sh(t, "ip link set lo up")
	ping(t, pod, "10.1.0.1")
	runner := filepath.Join(t.TempDir(), "run.py")
	if err := os.WriteFile(runner, pyverbsRunner, 0o644); err != nil {
		t.Fatal(err)
	}
	python := pod.Start(t, "/usr/bin/python3.11", "-B", runner, os.Getenv("FABRIC_PYVERBS"), "--dev", "mlx5_0")
	ended := python.Wait(20 * time.Minute)
	if !ended.OK() {
		t.Error(ended)
	}
	results := pyverbsResults(ended.Output)
	count := make(map[string]int)
	for _, r := range results {
		count[r.outcome]++
		want := "pass"
		if line := known.find(r.test); line != nil {
			want = line.outcome
		}
		if r.outcome != want {
			t.Errorf("%s: %s in %s s, want %s: %s", r.test, r.outcome, r.seconds, want, r.reason)
		}
	}
	for _, line := range known {
		if !line.used {
			t.Errorf("pyverbs.txt: %s matches no test", line.pattern)
		}
	}
	t.Logf("%d tests: %v", len(results), count)
	if t.Failed() {
		t.Log(ended.Output)
	}
	rail.del(t)
}

// pyverbsResult is a line of testdata/pyverbs.py.
type pyverbsResult struct{ test, outcome, seconds, reason string }

func pyverbsResults(output string) (all []pyverbsResult) {
	for line := range strings.Lines(output) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "@@ ")
		if f := strings.Split(text, "\t"); ok && len(f) == 4 {
			all = append(all, pyverbsResult{f[0], f[1], f[2], f[3]})
		}
	}
	return all
}

// knownTest is a line of testdata/pyverbs.txt.
type knownTest struct {
	pattern, outcome, reason string
	used                     bool
}

type knownTests []*knownTest

// find returns the first line that matches a test, nil if none does.
func (k knownTests) find(test string) *knownTest {
	for _, line := range k {
		if ok, _ := path.Match(line.pattern, test); ok { // readKnown has checked the pattern
			line.used = true
			return line
		}
	}
	return nil
}

func readKnown(text string) (all knownTests, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) < 3 || f[1] != "skip" && f[1] != "fail" {
			return nil, fmt.Errorf("pyverbs.txt: line %q is not TEST skip|fail REASON", line)
		}
		if _, err := path.Match(f[0], ""); err != nil {
			return nil, fmt.Errorf("pyverbs.txt: %s: %w", f[0], err)
		}
		all = append(all, &knownTest{pattern: f[0], outcome: f[1], reason: strings.Join(f[2:], " ")})
	}
	return all, nil
}
