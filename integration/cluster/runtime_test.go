package cluster

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/cri"
	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// The deployed agent reaches the runtime through the node's /proc, as it is not privileged and has no directory of it,
// and counts the calls of the plugin.
func TestDeployedAgentAsksAndCounts(t *testing.T) {
	deploy(t)
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	network(t, "typo", `{"cniVersion":"1.0.0","name":"typo","type":"fabric","device":"rail0","mut":9000}`)
	pod(t, "p1", "ib")
	ready(t, "p1")
	pod(t, "p2", "typo")
	event(t, "p2", "mut")
	gone(t, "p1", "p2")
	logs := ""
	until(t, "the agent has asked the runtime", func() (err error) {
		if logs, err = output("kubectl", "-n", "fabric-system", "logs", "daemonset/fabric-agent"); err == nil &&
			!strings.Contains(logs, "container runtime answers") {
			err = textError(logs)
		}
		return err
	})
	if strings.Contains(logs, "does not answer") {
		t.Errorf("%s", logs)
	}
	counted(t, `fabric_cni_duration_seconds_count{verb="ADD"}`, `fabric_cni_duration_seconds_count{verb="DEL"}`,
		`fabric_cni_errors_total{code="7",verb="ADD"}`)
	home(t, "rail0")
	nothingLeft(t)
}

// counted waits for lines of the agent's metrics.
func counted(t *testing.T, lines ...string) {
	t.Helper()
	until(t, "it is counted", func() error {
		m := metrics(t)
		for _, want := range lines {
			if !strings.Contains(m, want) {
				return textError(want + " is missing in\n" + m)
			}
		}
		return nil
	})
}

// The real container runtime knows the sandbox by the id that the journal has, as long as it lives.
func TestSandboxes(t *testing.T) {
	rail(t, "rail0")
	network(t, "ib", fabricOn("rail0", "ib"))
	pod(t, "p1", "ib")
	ready(t, "p1")
	entries, err := journal.Store{Dir: journal.DefaultDir}.List()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	id := entries[0].ContainerID
	for _, r := range []cri.Runtime{{}, {HostProc: "/proc"}, {Socket: "unix:///run/containerd/containerd.sock"}} {
		list, err := r.Sandboxes(t.Context())
		if err != nil || !list[id] {
			t.Errorf("%+v: %v, %v, want %s to be ready", r, list, err, id)
		}
	}
	gone(t, "p1")
	until(t, "the sandbox is gone or not ready", func() error {
		list, err := cri.Runtime{}.Sandboxes(t.Context())
		if err == nil && list[id] {
			err = textError("still ready")
		}
		return err
	})
	home(t, "rail0")
	nothingLeft(t)
}
