package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// ours is the project's driver: the agent, which prepares, and the plugin, which attaches. What happens to a driver at
// a point of the plugin's happens to both at once.
func ours() *subject {
	return &subject{
		name: "fabric", driver: "fabric.dev", patience: 90 * time.Second,
		begin: func(b *testing.B, n *draStage) {
			b.Helper()
			rights(b)
			controller(b)
			agentAccount(b)
			n.steered()
		},
		started: func(b *testing.B) { // so that it goes while there is an agent
			b.Helper()
			benchFabric(b, "allocation: DRA, ")
		},
		command: func(n *draStage) []string {
			var rails []string
			for i := range n.batch * railsOfPod {
				rails = append(rails, fmt.Sprint("rail", i))
			}
			return []string{"env", "FABRIC_FAILPOINT_HOLD=" + holdDir, current.run + "/steered/rigagent",
				strings.Join(rails, ","), "run", "--node-name=rig", "--node-ips=" + nodeIP, "--log-level=debug",
				"--kubeconfig=" + agentConfig(), "--source=" + current.run + "/steered/source/fabric",
				"--health-address=", "--metrics-address=" + agentMetrics}
		},
		objects: `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: rails}
spec: {spec: {devices: {requests: [{name: rails, exactly: {deviceClassName: rails.fabric.dev, count: 8}}]}}}
`,
		pod:     map[string]string{"k8s.v1.cni.cncf.io/networks": strings.Repeat(",rails", railsOfPod)[1:]},
		healthy: networkReady("network-attachment-definition/rails", "deviceclass/rails.fabric.dev"),
		points: []point{
			{name: pointNone},
			{name: pointAlone},
			{name: pointBefore},
			{name: "in prepare", arm: held("dra/prepare")},
			{name: pointPrepared, gate: true},
			{name: "attach begins", gate: true, arm: plugged("ADD-net1", "before/move-netdev")},
			{name: "half attached", gate: true, arm: plugged("ADD-net5", "after/move-netdev")},
			{name: "attached", gate: true, arm: journaled},
			{name: pointEnd, arm: plugged("DEL-net5", "before/move-netdev")},
		},
	}
}

// oursByPlugin is the same without faults, where the agent's device plugin gives the rails.
func oursByPlugin() *subject {
	s := ours()
	s.name, s.driver, s.objects = "device-plugin", "", ""
	s.limits = map[corev1.ResourceName]resource.Quantity{"fabric.dev/rails": *resource.NewQuantity(railsOfPod, "")}
	s.points = s.points[:2]
	s.started = func(b *testing.B) {
		b.Helper()
		benchFabric(b, "")
	}
	s.healthy = networkReady("network-attachment-definition/rails")
	return s
}

// networkReady asserts that the network's configuration and these objects are there.
func networkReady(objects ...string) func() error {
	return func() error {
		_, err := os.Stat("/etc/cni/multus/net.d/fabric-agent-rails.conf")
		_, err2 := output("kubectl", append([]string{"get"}, objects...)...)
		return errors.Join(err, err2)
	}
}

const agentMetrics = "127.0.0.1:19467"

func benchFabric(b *testing.B, allocation string) {
	b.Helper()
	fabric(b, "rails", "{match: {devices: ['rail*']}, "+allocation+"network: {rdma: none}, "+
		"addresses: {nodeRanges: {ranges: [{range: 10.78.0.0/16, perNode: 24}]}}}")
}

// Where agent and plugin, built with the tag failpoint, look for what holds them.
const (
	holdDir  = "/run/dra-hold"
	faultDir = "/run/dra-fault"
)

// steered is what the agent installs as plugin: at the interface that a fault is for, once in each pod, it has the
// environment that failpoints read. The device plugin's ID of a veth, which has no bus address, becomes its name.
const steered = `#!/bin/sh
if [ -e "` + faultDir + `/$CNI_COMMAND-$CNI_IFNAME" ]; then
  pod=${CNI_ARGS#*K8S_POD_UID=}
  if mkdir "` + faultDir + `/hit-${pod%%;*}" 2>/dev/null; then . "` + faultDir + `/$CNI_COMMAND-$CNI_IFNAME"; fi
fi
sed 's|"runtimeConfig":{"deviceID":"netdev/\([^"]*\)"}|"device":"\1"|' | "RUN/steered/fabric" "$@"
`

// steered builds agent and plugin with failpoints.
func (n *draStage) steered() {
	n.b.Helper()
	dir := filepath.Join(current.run, "steered")
	must(n.b, command(current.repo, []string{"CGO_ENABLED=0"}, "go", "build", "-tags=failpoint", "-trimpath",
		"-buildvcs=false", "-ldflags", "-s -w -X main.version=bench", "-o", dir+"/", "./cmd/fabric",
		"./integration/cluster/rigagent"))
	must(n.b, os.MkdirAll(dir+"/source", 0o755))
	must(n.b, os.WriteFile(dir+"/source/fabric", []byte(strings.ReplaceAll(steered, "RUN", current.run)), 0o755))
	must(n.b, os.MkdirAll(holdDir, 0o755))
	must(n.b, os.MkdirAll(faultDir, 0o755))
}

// watch strikes the driver once a file is there, and returns whether it was.
func watch(d *draDriver, f fault, pattern string, then func()) (hit func() bool) {
	var seen, end atomic.Bool
	go func() {
		for !end.Load() {
			if files, _ := filepath.Glob(pattern); len(files) > 0 {
				d.strike(f)
				then()
				seen.Store(true)
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return func() bool { end.Store(true); return seen.Load() }
}

// held is a failpoint of the agent's: it waits there until the fault has begun.
func held(failpoint string) func(*draDriver, fault, int) func() bool {
	file := filepath.Join(holdDir, strings.ReplaceAll(failpoint, "/", "-"))
	return func(d *draDriver, f fault, _ int) func() bool {
		_ = os.Remove(file + ".pid")
		_ = os.WriteFile(file, nil, 0o600)
		hit := watch(d, f, file+".pid", func() { _ = os.Remove(file) })
		return func() bool { _ = os.Remove(file); return hit() }
	}
}

// plugged is a failpoint of the plugin's at one interface of each pod: killed there, or held as long as the agent.
func plugged(call, failpoint string) func(*draDriver, fault, int) func() bool {
	return func(d *draDriver, f fault, _ int) func() bool {
		_ = os.RemoveAll(faultDir)
		_ = os.MkdirAll(faultDir, 0o755)
		variable := "FABRIC_FAILPOINT=" + failpoint + ":kill"
		hold := filepath.Join(faultDir, strings.ReplaceAll(failpoint, "/", "-"))
		if f.stop > 0 {
			variable = "FABRIC_FAILPOINT_HOLD=" + faultDir
			_ = os.WriteFile(hold, nil, 0o600)
		}
		_ = os.WriteFile(filepath.Join(faultDir, call), []byte("export "+variable+"\n"), 0o600)
		hit := watch(d, f, faultDir+"/hit-*", func() { time.AfterFunc(f.stop, func() { _ = os.Remove(hold) }) })
		return func() bool {
			defer os.RemoveAll(faultDir)
			return hit()
		}
	}
}

// journaled is when the plugin has attached all rails of all pods.
func journaled(d *draDriver, f fault, pods int) func() bool {
	var seen, end atomic.Bool
	go func() {
		for ; !end.Load(); time.Sleep(5 * time.Millisecond) {
			list, _ := journal.Store{Dir: journal.DefaultDir}.List()
			attached := 0
			for _, e := range list {
				if e.Attached {
					attached++
				}
			}
			if attached == pods*railsOfPod {
				d.strike(f)
				seen.Store(true)
				return
			}
		}
	}()
	return func() bool { end.Store(true); return seen.Load() }
}
