package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	nodes "github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const nFabrics = 8

// lookEvery is how often an agent looks at its node.
const lookEvery = 10 * time.Second

// agent is the part of an agent that talks to the API server, with a connection of its own as a real one has.
type agent struct {
	name   string
	link   *cluster.Link
	status *v1alpha1.FabricNodeStatus
	began  time.Time

	ranged    atomic.Int64 // nanoseconds from its start until it had all ranges; 0: not yet
	generated atomic.Int64 // the sum of the generations that it works with and has reported
	last      atomic.Value // what came of its last report, in words
}

func newAgent(r *rig, i int, status *v1alpha1.FabricNodeStatus) (*agent, error) {
	c := r.config()
	ownConnection(c)
	link, err := cluster.NewLink(c, name(i), slog.New(slog.DiscardHandler))
	return &agent{name: name(i), link: link, status: status.DeepCopy()}, err
}

// ownConnection keeps client-go from sharing the connection with the other clients of this process.
func ownConnection(c *rest.Config) {
	d := &net.Dialer{Timeout: 30 * time.Second}
	c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}
}

// run does what the reconciler does: it looks every 10 s, and when it is told of something.
func (a *agent) run(ctx context.Context) {
	a.began = time.Now()
	go a.link.Run(ctx)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.look(ctx)
		select {
		case <-ctx.Done():
		case <-a.link.Changed():
		case <-tick.C:
		}
	}
}

func (a *agent) look(ctx context.Context) {
	var sum int64
	for _, f := range a.link.Fabrics() {
		i := slices.IndexFunc(a.status.Fabrics, func(n v1alpha1.NodeFabric) bool { return n.Name == f.Name })
		if i >= 0 && f.Status.InForce != nil {
			a.status.Fabrics[i].Generation = f.Status.InForce.Generation
			sum += f.Status.InForce.Generation
		}
	}
	if own := a.link.Own(); own != nil {
		a.status.ObservedGeneration = own.Generation
		if len(own.Spec.Ranges) == nFabrics && a.ranged.Load() == 0 {
			a.ranged.Store(int64(time.Since(a.began)))
			a.status.Conditions[0].Status, a.status.Conditions[0].Reason = "True", "Ready"
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ok, err := a.link.Report(ctx, a.status)
	if ok && err == nil {
		a.generated.Store(sum)
	}
	a.last.Store(fmt.Sprintf("generations %d, reported %t, %v", sum, ok, err))
}

// fleet is all agents.
type fleet []*agent

// startFleet starts n agents, so many a second: nodes of a cluster do not boot in the same instant.
func startFleet(ctx context.Context, r *rig, n, perSecond int) (fleet, error) {
	status, err := machine()
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var out fleet
	for i := range n {
		a, err := newAgent(r, i, status)
		if err != nil {
			return nil, err
		}
		go a.run(ctx)
		out = append(out, a)
		<-tick.C
	}
	return out, nil
}

// waits are the times until the agents had their ranges, sorted; it returns false while one has none.
func (f fleet) waits() (out []time.Duration, all bool) {
	for _, a := range f {
		if d := a.ranged.Load(); d > 0 {
			out = append(out, time.Duration(d))
		}
	}
	slices.Sort(out)
	return out, len(out) == len(f)
}

// reported is how many agents have reported that they work with the generations of this sum.
func (f fleet) reported(sum int64) (n int) {
	for _, a := range f {
		if a.generated.Load() >= sum {
			n++
		}
	}
	return n
}

// startProcess starts a whole agent, which has a FabricNode of its own and finds what this machine has.
func startProcess(r *rig, bin, node string) (*exec.Cmd, error) {
	file, err := r.kubeconfig("fabric-agent")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.dir, "agent")
	for _, d := range []string{"bin", "state", "conf"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(bin, "run", // it ends with this process
		"--kubeconfig", file, "--node-name", node, "--source", bin, "--bin-dir", dir+"/bin",
		"--state-dir", dir+"/state", "--policy", dir+"/policy", "--conf-dir", dir+"/conf",
		"--device-plugin-dir", "", "--device-info-dir", "", "--health-address", "", "--metrics-address", "")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

// machine is the status of a node with eight GPUs, recorded, and a device for each Fabric.
func machine() (*v1alpha1.FabricNodeStatus, error) {
	n, err := nodes.Open(machines.H20().FS, journal.Store{})
	if err != nil {
		return nil, err
	}
	b, err := n.Compact(nodes.MaxCompact)
	if err != nil {
		return nil, err
	}
	if len(n.HCAs) == 0 {
		return nil, errors.New("the recorded machine has no device")
	}
	s := &v1alpha1.FabricNodeStatus{
		Agent: "v0.3.0", RDMAMode: "exclusive",
		Plugin:  v1alpha1.Plugin{Version: "v0.3.0", SHA256: strings.Repeat("ab", 32)},
		Devices: v1alpha1.DeviceCounts{Total: nFabrics, Healthy: nFabrics}, Inventory: &runtime.RawExtension{Raw: b},
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "False", Reason: "NodeRangeMissing", LastTransitionTime: metav1.Now(),
		}},
	}
	for i := range nFabrics {
		s.Fabrics = append(s.Fabrics, v1alpha1.NodeFabric{Name: fabricName(i), Devices: []v1alpha1.FabricDevice{{
			ID: fmt.Sprintf("0000:%02x:00.0", 16*i), HCA: fmt.Sprintf("mlx5_%d", i), LinkLayer: "InfiniBand",
			RateGb: 400,
		}}})
	}
	return s, nil
}
