package cluster

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/image"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
)

// deploy installs the project as its users do: its image, its kustomization.
func deploy(t *testing.T) {
	t.Helper()
	deployFrom(t, "deployments/base")
}

func deployFrom(t *testing.T, dir string) {
	t.Helper()
	dir = filepath.Join(current.repo, dir)
	archive, err := current.image("localhost/fabric-agent:latest",
		image.Agent("amd64", filepath.Join(current.run, "bin"), "e2e"))
	if err != nil {
		t.Fatal(err)
	}
	if err := current.load(archive); err != nil {
		t.Fatal(err)
	}
	k(t, "apply", "-k", dir)
	const arg = `{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":`
	k(t, "-n", "fabric-system", "patch", "daemonset", "fabric-agent", "--type=json",
		"-p", "["+arg+`"--grace=5s"},`+arg+`"--interval=1s"}]`)
	t.Cleanup(func() { removed(t, "-k", dir) })
	rolledOut(t, "fabric-system", "fabric-agent")
}

// settings gives the agent fabrics. kubelet brings a ConfigMap to a running pod only after a minute: the pod is made
// again.
func settings(t *testing.T, text string) {
	t.Helper()
	apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fabric-agent, namespace: fabric-system}\n"+
		"data:\n  settings.yaml: |\n    "+strings.ReplaceAll(text, "\n", "\n    ")+"\n")
	removed(t, "-n", "fabric-system", "pod", "-l", "app.kubernetes.io/name=fabric-agent")
	rolledOut(t, "fabric-system", "fabric-agent")
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
	t.Run("refuses settings", func(t *testing.T) {
		settings(t, "fabrics: [{name: ib, match: {rateGb: 200}, network: {mut: 4092}}]")
		nodeEvent(t, "SettingsRefused", `mut`)
	})
	t.Run("repairs", testRepair)
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

func testPublish(t *testing.T) {
	settings(t, `fabrics:
- {name: ib-200g, match: {rateGb: 200}, network: {mtu: 4092, ipam: {type: whereabouts, range: 198.51.100.0/28}}}`)
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "ib-200g") })
	get := func() string { return k(t, "get", "network-attachment-definition", "ib-200g", "-o", "yaml") }
	until(t, "the definition is there", func() error {
		_, err := output("kubectl", "get", "network-attachment-definition", "ib-200g")
		return err
	})
	if y := get(); !strings.Contains(y, "k8s.v1.cni.cncf.io/resourceName: fabric.dev/ib-200g") ||
		!strings.Contains(y, `"mtu": 4092`) {
		t.Errorf("%s", y)
	}
	// A user's edit stays, and is told.
	k(t, "patch", "network-attachment-definition", "ib-200g", "--type=merge",
		"-p", `{"spec":{"config":"{\"type\":\"mine\"}"}}`)
	removed(t, "-n", "fabric-system", "pod", "-l", "app.kubernetes.io/name=fabric-agent")
	nodeEvent(t, "NetworkConflict", "default/ib-200g")
	if y := get(); !strings.Contains(y, `{"type":"mine"}`) {
		t.Errorf("the edit is gone:\n%s", y)
	}
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

// Multus is absent while a pod is deleted: nobody calls the plugin. The device comes back from the dead namespace under
// a name that is not its own, and the agent does what is left. (A veth dies with its namespace, so the test makes one
// that looks like it; hardware would be put there by the kernel.)
func testRepair(t *testing.T) {
	settings(t, "fabrics: []")
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
