package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/scripts/image"
)

// deploy installs the project as its users do: its image, its kustomization, with these components.
func deploy(t *testing.T, components ...string) {
	t.Helper()
	dir := filepath.Join(current.repo, "deployments/base")
	if len(components) > 0 {
		dir = kustomization(t, "components: ["+strings.Join(components, ", ")+"]\n")
	}
	imported(t, "localhost/fabric-agent:latest", image.Agent("amd64", filepath.Join(current.run, "bin"), "e2e"))
	crds(t)
	k(t, "apply", "-k", dir)
	const arg = `{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":`
	k(t, "-n", "fabric-system", "patch", "daemonset", "fabric-agent", "--type=json",
		"-p", "["+arg+`"--grace=5s"},`+arg+`"--interval=1s"}]`)
	t.Cleanup(func() { removed(t, "-k", dir) })
	rolledOut(t, "fabric-system", "daemonset/fabric-agent")
	rolledOut(t, "fabric-system", "deployment/fabric-controller")
}

// kustomization makes one of the base in a directory beside the manifests, which paths in the text are relative to.
func kustomization(t *testing.T, text string) (dir string) {
	t.Helper()
	top := t.TempDir()
	err := os.CopyFS(filepath.Join(top, "deployments"), os.DirFS(filepath.Join(current.repo, "deployments")))
	if err != nil {
		t.Fatal(err)
	}
	text = "resources: [deployments/base]\n" + text
	if err := os.WriteFile(filepath.Join(top, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return top
}

// nodeEvent waits for an Event on the Node.
func nodeEvent(t *testing.T, reason, text string) {
	t.Helper()
	nodeEventOf(t, "rig", reason, text)
}

func nodeEventOf(t *testing.T, node, reason, text string) {
	t.Helper()
	until(t, "an event on node "+node+": "+reason+" "+text, func() error {
		out, err := output("kubectl", "describe", "node", node)
		_, events, ok := strings.Cut(out, "\nEvents:")
		if err == nil && (!ok || !strings.Contains(events, reason) || !strings.Contains(events, text)) {
			err = textError(events)
		}
		return err
	})
}

func sum(t *testing.T, file string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

func metrics(t *testing.T) string {
	t.Helper()
	res, err := http.Get("http://127.0.0.1:9467/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDeployment(t *testing.T) {
	if err := os.WriteFile("/opt/cni/bin/fabric", []byte("an older version"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := nodeFiles(t)
	deploy(t)
	shipped := filepath.Join(current.run, "bin/fabric")
	if sum(t, "/opt/cni/bin/fabric") != sum(t, shipped) {
		t.Fatal("the plugin is not the image's")
	}
	t.Run("keeps the binary", func(t *testing.T) {
		if err := os.Remove("/opt/cni/bin/fabric"); err != nil {
			t.Fatal(err)
		}
		until(t, "it is back", func() error { _, err := os.Stat("/opt/cni/bin/fabric"); return err })
	})
	t.Run("publishes", testPublish)
	t.Run("notes the node's addresses", testNodeAddresses)
	t.Run("refuses Fabrics", testRefusal)
	t.Run("repairs", testRepair)
	t.Run("is uninstalled", func(t *testing.T) { testUninstall(t, before) })
}

// The interface by whose address the cluster knows the node is no pod's, whatever its routes are.
func testNodeAddresses(t *testing.T) {
	until(t, "the agent has noted them", func() error {
		p, err := policy.Load(policy.DefaultPath, journal.DefaultDir)
		if err == nil && !slices.Contains(p.NodeAddresses, netip.MustParseAddr(nodeIP)) {
			err = textError(fmt.Sprint(p.NodeAddresses))
		}
		return err
	})
}

// The definition of a Fabric comes and goes with it. An edit is undone; a definition of another owner is left as it is,
// and reported.
func testPublish(t *testing.T) {
	fabric(t, "ib-200g", "{match: {rateGb: 200}, network: {mtu: 4092}, "+
		"addresses: {ipam: {type: whereabouts, range: 198.51.100.0/28}}}")
	defined := func(what string, all ...string) {
		t.Helper()
		until(t, "the definition "+what, func() error {
			y, err := output("kubectl", "get", "network-attachment-definition", "ib-200g", "-o", "yaml")
			for _, want := range all {
				if err == nil && !strings.Contains(y, want) {
					err = textError(want + " is missing in\n" + y)
				}
			}
			return err
		})
	}
	defined("is there", "k8s.v1.cni.cncf.io/resourceName: fabric.dev/ib-200g", `"mtu": 4092`)
	row(t, "fabrics", "ib-200g", fabricColumns,
		[]string{"ib-200g", "WholeDevice", "", "", "0", "0", "0", "0", "0/14", "False"})
	row(t, "fabricnodes", "rig", nodeColumns, []string{"rig", "", "0", "0", "0", "e2e", "True", "Ready"})
	described(t, "fabric", "ib-200g", "NoDevices", "no node has a device of this fabric")
	k(t, "patch", "network-attachment-definition", "ib-200g", "--type=merge",
		"-p", `{"spec":{"config":"{\"type\":\"mine\"}"}}`)
	defined("is what it was", `"mtu": 4092`)
	removed(t, "fabric", "ib-200g")
	until(t, "the definition is gone", func() error {
		out, err := output("kubectl", "get", "network-attachment-definition", "-o", "name")
		if err == nil && strings.Contains(out, "/ib-200g\n") {
			err = textError(out)
		}
		return err
	})

	network(t, "theirs", `{"type":"mine"}`)
	fabric(t, "theirs", "{match: {rateGb: 200}}")
	condition(t, "fabric/theirs", "Published", "False", "NetworkConflict", "theirs is in default")
	described(t, "fabric", "theirs", "Warning", "NetworkConflict")
	removed(t, "fabric", "theirs")
	y := k(t, "get", "network-attachment-definition", "theirs", "-o", "yaml")
	if !strings.Contains(y, `{"type":"mine"}`) {
		t.Errorf("somebody else's definition:\n%s", y)
	}
}

// What the API server can see is refused when it is applied, what it can't see by a condition and an Event.
func testRefusal(t *testing.T) {
	err := current.apply(testfabrics.Object("ib", "{match: {rateGb: 200}, network: {mut: 4092}}"))
	if err == nil || !strings.Contains(err.Error(), `unknown field "spec.network.mut"`) {
		t.Errorf("kubectl apply: %v", err)
	}
	fabric(t, "older", "{addresses: {ipam: {type: whereabouts, range: 198.51.100.0/28}}}")
	condition(t, "fabric/older", "Accepted", "True", "Accepted", "")
	fabric(t, "younger", "{addresses: {nodeRanges: {ranges: [{range: 198.51.100.0/24, perNodePrefixLength: 28}]}}}")
	condition(t, "fabric/younger", "Accepted", "False", "Refused", `overlaps 198.51.100.0/28 of fabric "older"`)
	described(t, "fabric", "younger", "Warning", "Refused", "both would give the same addresses")
}

// ifindex is what the plugin knows a veth by, whatever its name: its own, which a move keeps, and its peer's.
func ifindex(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("/sys/class/net/" + name + "/ifindex")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Multus is absent while a pod is deleted: nothing calls the plugin. The device comes back from the dead namespace
// under a name that is not its own, and the agent does what is left. (A veth dies with its namespace, so the test makes
// one that looks like it; hardware would be put there by the kernel.)
func testRepair(t *testing.T) {
	const mac = "02:00:5e:00:53:07"
	ip(t, "link", "add", "rail7", "address", mac, "mtu", "1400", "type", "veth", "peer", "name", "rail7p")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", "rail7p").Run() })
	ip(t, "link", "set", "rail7p", "up")
	ip(t, "addr", "add", "192.0.2.1/24", "dev", "rail7")
	ip(t, "link", "set", "rail7", "up")
	own, peer := ifindex(t, "rail7"), ifindex(t, "rail7p")
	network(t, "ib7", fabricOn("rail7", "ib7"))
	pod(t, "lost", "ib7")
	ready(t, "lost")
	entries, err := journal.Store{Dir: journal.DefaultDir}.List()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	// The runtime is told that all went well, and for as long as this takes: kubelet may stop the sandbox once more.
	if err := os.Rename("/opt/cni/bin/multus", "/opt/cni/bin/multus.away"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Rename("/opt/cni/bin/multus.away", "/opt/cni/bin/multus"); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile("/opt/cni/bin/multus", []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	gone(t, "lost")
	until(t, "the pod's namespace is gone", func() error {
		if _, err := os.Stat(entries[0].NetnsPath); err == nil {
			return textError("still there")
		}
		return nil
	})
	until(t, "the veth is dead", func() error {
		if exec.Command("ip", "link", "show", "rail7p").Run() == nil {
			return textError("still there")
		}
		return nil
	})
	ip(t, "link", "add", "dev99", "index", own, "address", mac, "type", "veth", "peer", "name", "rail7p", "index", peer)
	began := time.Now()
	home(t, "rail7")
	nothingLeft(t)
	t.Logf("home %.1f s after it was there again", time.Since(began).Seconds())
	nodeEvent(t, "DeviceRepaired", "network ib7")
	if m := metrics(t); !strings.Contains(m, `fabric_repaired_total{network="ib7"} 1`) {
		t.Errorf("metrics:\n%s", m)
	}
}

// nodeFiles are the files of a node in all directories in which the agent's things are.
func nodeFiles(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, dir := range []string{"/opt/cni/bin", "/etc/cni", journal.DefaultDir, "/var/lib/kubelet/device-plugins",
		"/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/run/k8s.cni.cncf.io", "/run/cdi"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !d.IsDir() {
				out[path] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// release runs the Job of the removal as docs/install.md does, with less patience. It returns its log, and whether
// the Job was successful.
func release(t *testing.T) (log string, ok bool) {
	t.Helper()
	text := k(t, "kustomize", filepath.Join(current.repo, "deployments/release"))
	patient := strings.Replace(text, "        - release\n", "        - release\n        - --timeout="+
		machine.scaled(5*time.Second).String()+"\n", 1)
	if patient == text {
		t.Fatalf("no arguments in\n%s", text)
	}
	if err := current.apply(patient); err != nil {
		t.Fatal(err)
	}
	k(t, "-n", "fabric-system", "wait", "job/fabric-release", "--for=jsonpath={.status.conditions[-1:].status}=True",
		"--timeout="+machine.scaled(5*time.Minute).String())
	log = k(t, "-n", "fabric-system", "logs", "job/fabric-release")
	_, err := output("kubectl", "-n", "fabric-system", "wait", "job/fabric-release", "--for=condition=complete",
		"--timeout=1s")
	removed(t, "-k", filepath.Join(current.repo, "deployments/release"))
	return log, err == nil
}

// A removal stops at a node where a pod has a device, and goes on when that has ended. Then the node has the files that
// it had before: what came, went.
func testUninstall(t *testing.T, before map[string]bool) {
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	pod(t, "p1", "ib")
	ready(t, "p1")
	out, err := outputWith("", "kubectl", "-n", "fabric-system", "exec", "daemonset/fabric-agent", "--", "fabric-agent",
		"uninstall")
	if err == nil || !strings.Contains(out, "pod default/p1") || !strings.Contains(out, "network ib") {
		t.Errorf("uninstall while a pod has a device: %v, %s", err, out)
	}
	fabric(t, "removed", "{match: {rateGb: 200}}")
	// No Fabric has the device: the look at FabricNodes does not find it, and the node does.
	if log, ok := release(t); ok ||
		!strings.Contains(log, "node rig: uninstall /opt/cni/bin/fabric: attachments remain: "+
			"pod default/p1") {
		t.Errorf("release while a pod has a device: %v, %s", ok, log)
	}
	t.Cleanup(func() { // the tests behind this one need it
		if err := exec.Command("cp", current.run+"/bin/fabric", "/opt/cni/bin/fabric").Run(); err != nil {
			t.Error(err)
		}
	})
	gone(t, "p1")
	home(t, "rail0")
	if log, ok := release(t); !ok || !strings.Contains(log, "nothing is left on the nodes") {
		t.Errorf("release: %v, %s", ok, log)
	}
	if out := k(t, "get", "fabricnodes,network-attachment-definitions", "-A", "-o", "name"); strings.Contains(out,
		"fabricnode") || strings.Contains(out, "/removed") {
		t.Errorf("left:\n%s", out)
	}
	removed(t, "-n", "fabric-system", "daemonset", "fabric-agent", "--cascade=foreground")
	for file := range nodeFiles(t) {
		if !before[file] || strings.HasPrefix(file, journal.DefaultDir) || file == "/opt/cni/bin/fabric" {
			t.Errorf("left: %s", file)
		}
	}
}
