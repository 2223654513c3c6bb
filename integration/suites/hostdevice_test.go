// Package suites runs tests that others have written for their own plugins against ours. What fails on purpose is in
// differences.txt, with the reason; anything else that fails is a mistake, and so is a line there of what passes.
package suites

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// spec is a test of a suite: its name, and whether it has passed.
type spec struct {
	name   string
	passed bool
	why    string
}

// The tests of containernetworking/plugins' host-device, of the version in go.mod. They make devices of type dummy,
// which not every kernel has: here these are taps.
func TestHostDevice(t *testing.T) {
	sandbox.Root(t)
	dir, err := filepath.Abs("hostdevice")
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	const plugins = "github.com/containernetworking/plugins"
	sandbox.Run(t, "go", "-C", dir, "mod", "download", plugins)
	theirs := sandbox.Run(t, "go", "-C", dir, "list", "-m", "-f", "{{.Dir}}/plugins/main/host-device", plugins)
	theirs = strings.TrimSpace(theirs)
	b, err := os.ReadFile(filepath.Join(theirs, "host-device_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	taps := strings.ReplaceAll(string(b), "&netlink.Dummy{", "&netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TAP,")
	write(t, filepath.Join(tmp, "host-device_test.go"), taps)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(dir, "host-device_test.go"): filepath.Join(tmp, "host-device_test.go"),
		filepath.Join(dir, "suite_test.go"):       filepath.Join(theirs, "host-device_suite_test.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tmp, "overlay.json"), string(overlay))
	sandbox.Run(t, "go", "-C", dir, "test", "-c", "-vet=off", "-overlay", tmp+"/overlay.json", "-o", tmp+"/suite", ".")
	sandbox.Run(t, "go", "build", "-o", tmp+"/", "../../cmd/fabric")
	judge(t, "host-device", ginkgo(t, tmp))
}

// ginkgo runs the suite in a directory on a node of its own: nothing that the plugin writes stays.
func ginkgo(t *testing.T, dir string) (out []spec) {
	t.Helper()
	write(t, filepath.Join(dir, "policy.json"), `{"allowVirtual": true}`)
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-euc", `
mkdir -p /run/netns /run/fabric-cni /etc/cni/fabric.d
for d in /run/netns /run/fabric-cni /etc/cni/fabric.d; do mount -t tmpfs tmpfs $d; done
cp policy.json /etc/cni/fabric.d/
exec ./suite -ginkgo.no-color -ginkgo.json-report=report.json`)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SUITE_PLUGIN="+dir+"/fabric", "SUITE_PATH="+dir)
	text, err := cmd.CombinedOutput() // it fails where a test does
	b, rerr := os.ReadFile(filepath.Join(dir, "report.json"))
	if rerr != nil {
		t.Fatalf("%v, %v\n%s", err, rerr, text)
	}
	var reports []struct {
		SpecReports []struct {
			LeafNodeText, State string
			Failure             struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, s := range reports[0].SpecReports {
		if s.State != "passed" && s.State != "failed" {
			t.Errorf("%q: %s", s.LeafNodeText, s.State)
		}
		out = append(out, spec{s.LeafNodeText, s.State == "passed", s.Failure.Message})
	}
	return out
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var line = regexp.MustCompile(`^(\S+) "([^"]+)" (.{20,}|as above)$`)

// judge compares what has failed with differences.txt.
func judge(t *testing.T, suite string, specs []spec) {
	t.Helper()
	b, err := os.ReadFile("differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for text := range strings.Lines(string(b)) {
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		m := line.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf(`%q: want SUITE "TEST" REASON`, text)
		}
		if m[1] == suite {
			parts = append(parts, m[2])
		}
	}
	passed, used := 0, map[string]bool{}
	for _, s := range specs {
		at := slices.IndexFunc(parts, func(p string) bool { return strings.Contains(s.name, p) })
		switch {
		case s.passed && at >= 0:
			t.Errorf("%q passes, and differences.txt has it", s.name)
		case !s.passed && at < 0:
			t.Errorf("%q fails: %s", s.name, s.why)
		case s.passed:
			passed++
		default:
			used[parts[at]] = true
		}
	}
	for _, p := range parts {
		if !used[p] {
			t.Errorf("differences.txt has %q, of which there is no test", p)
		}
	}
	fmt.Printf("suites: %s: %d of %d pass, %d differ on purpose\n", suite, passed, len(specs), len(specs)-passed)
}
