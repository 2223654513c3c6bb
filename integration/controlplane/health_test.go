package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// port is a device whose port comes and goes with each look while it flaps.
type port struct {
	flapping  atomic.Bool
	looks     atomic.Int64
	exclusive atomic.Bool // the node's RDMA mode; else the node has none
}

func (p *port) mode() (device.NetnsMode, error) {
	if p.exclusive.Load() {
		return device.NetnsExclusive, nil
	}
	return 0, survey.ErrNoRDMA
}

func (p *port) survey() ([]survey.Device, error) {
	state := device.PortActive
	if p.flapping.Load() && p.looks.Add(1)%2 == 1 {
		state = device.PortDown
	}
	const pci = "0000:3b:00.0"
	return []survey.Device{{
		Location: device.LocationOnPCI(pci), Netdev: "ibs1", AdminUp: true, NUMA: -1, RateGb: 200,
		HCA: device.HCA{
			Name:  "mlx5_0",
			Ports: []device.Port{{Number: 1, State: state, Phys: device.PhysPolling, LinkLayer: device.InfiniBand}},
		},
	}}, nil
}

// runAgent runs the agent of a node with the token that kubelet would give it, until stop is called.
func runAgent(t *testing.T, dir, node, kubeconfig string, p *port) (stop func()) {
	t.Helper()
	return runAgentWith(t, agentOptions(t, dir, node, kubeconfig, p))
}

func agentOptions(t *testing.T, dir, node, kubeconfig string, p *port) *agent.Options {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "image"), []byte("the plugin"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &agent.Options{
		Source: filepath.Join(dir, "image"), BinDir: filepath.Join(dir, "bin"), StateDir: filepath.Join(dir, "state"),
		Policy: filepath.Join(dir, "policy.json"), Node: node, Kubeconfig: kubeconfig,
		Interval: 200 * time.Millisecond, Grace: time.Hour, Survey: p.survey, Mode: p.mode,
		WriteEvery: time.Millisecond,
	}
}

func runAgentWith(t *testing.T, o *agent.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx, o, "test", slog.New(slog.NewJSONHandler(io.Discard, nil))) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// ofNode is what kubectl get fabricnodes prints of a node, and the problem of its device.
func ofNode(t *testing.T, c client.Client, name string) string {
	t.Helper()
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		return err.Error()
	}
	problem := ""
	for _, f := range n.Status.Fabrics {
		for _, d := range f.Devices {
			problem = d.Problem
		}
	}
	ready := apimeta.FindStatusCondition(n.Status.Conditions, v1alpha1.FabricNodeReady)
	if ready == nil {
		return "not judged"
	}
	return fmt.Sprintf("%d/%d %s %s %q", n.Status.Devices.Healthy, n.Status.Devices.Total, ready.Status, ready.Reason,
		problem)
}

// untilNode waits until ofNode returns what is wanted.
func untilNode(t *testing.T, c client.Client, name, want string) {
	t.Helper()
	until(t, func() string {
		if got := ofNode(t, c, name); got != want {
			return fmt.Sprintf("FabricNode %s: %s, want %s", name, got, want)
		}
		return ""
	})
}

// wholeWithAgents adds the rules for agents and a controller to whole, and removes Fabrics and Nodes after the test.
func wholeWithAgents(t *testing.T) client.Client {
	t.Helper()
	c := whole(t)
	agentRules(t)
	control(t)
	t.Cleanup(func() {
		removeFabrics(t, c)
		removeNodes(t, c)
	})
	return c
}

// A port that flaps is in the FabricNode, in the Fabric and in one Event; that it is over, likewise. The agent is
// restarted meanwhile, and says nothing again.
func TestHealth(t *testing.T) {
	c := wholeWithAgents(t)
	const node = "gpu-flaps"
	config := agentOf(t, node)
	apply(t, `{apiVersion: fabric.dev/v1alpha1, kind: Fabric, metadata: {name: flaps}, spec: {
		match: {linkLayer: InfiniBand, rateGb: 200}, health: {recovery: 5s, action: Withhold}}}`)
	dir := t.TempDir()
	p := &port{}
	file := kubeconfig(t, config.BearerToken)
	stop := runAgent(t, dir, node, file, p)
	becomes := func(want string) {
		t.Helper()
		untilNode(t, c, node, want)
	}
	becomes(`1/1 True Ready ""`)
	p.flapping.Store(true)
	becomes(`0/1 False Flapping "Flapping"`)
	untilCondition(t, c, "flaps", v1alpha1.FabricDegraded, "True")
	stop()
	stop = runAgent(t, dir, node, file, p)
	becomes(`0/1 False Flapping "Flapping"`)
	p.flapping.Store(false)
	becomes(`1/1 True Ready ""`)
	untilCondition(t, c, "flaps", v1alpha1.FabricDegraded, "False")
	stop() // what it has said is with the API server then

	var events bytes.Buffer
	reasons := map[string]int32{}
	until(t, func() string {
		list := &corev1.EventList{}
		if err := c.List(t.Context(), list, client.InNamespace("default")); err != nil {
			return err.Error()
		}
		events.Reset()
		clear(reasons)
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == node {
				fmt.Fprintf(&events, "%s %s %d: %s\n", e.Type, e.Reason, e.Count, e.Message)
				if strings.Contains(e.Message, "mlx5_0 (0000:3b:00.0)") {
					reasons[e.Type+" "+e.Reason] += e.Count
				}
			}
		}
		if reasons["Normal DeviceRecovered"] == 0 {
			return "no Event DeviceRecovered: " + events.String()
		}
		return ""
	})
	var all []string
	for reason, n := range reasons {
		all = append(all, fmt.Sprint(reason, " ", n))
	}
	slices.Sort(all)
	if want := []string{"Normal DeviceRecovered 1", "Warning Flapping 1"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q:\n%s", all, want, events.String())
	}
}
