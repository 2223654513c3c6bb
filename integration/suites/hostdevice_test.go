// Package suites runs tests that others have written for their own plugins against ours. What fails on purpose is in
// differences.txt, with the reason; anything else that fails is a mistake, and so is a line there of what passes.
package suites

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
	"github.com/fabric-cni/fabric-cni/internal/testkit/suites"
)

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
	const suite = "host-device"
	suites.Judge(t, suite, ginkgo(t, tmp), suites.Differences(t, "differences.txt", suite), "failed")
}

// ginkgo runs the suite in a directory on a node of its own: nothing that the plugin writes stays.
func ginkgo(t *testing.T, dir string) []suites.Spec {
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
	if _, serr := os.Stat(filepath.Join(dir, "report.json")); serr != nil {
		t.Fatalf("%v, %v\n%s", err, serr, text)
	}
	return suites.Report(t, filepath.Join(dir, "report.json"))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
