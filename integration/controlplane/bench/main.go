// Command bench measures what a cluster's API server has to do for the agents of many nodes and for the controller:
// requests and bytes by verb and resource, the growth of etcd, how long a node waits, the memory of the controller.
// The API server and etcd are real, and so is all that the agents do with them; only the nodes are not there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/internal/journal"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

const nFabrics = 8

func main() {
	n := flag.Int("n", 5000, "nodes")
	steady := flag.Duration("steady", 2*time.Minute, "how long to look at a cluster at rest")
	control := flag.String("controller", "", "be the controller of this API server")
	flag.Parse()
	var err error
	if *control != "" {
		err = beController(*control)
	} else {
		err = run(*n, *steady)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func config(host string) *rest.Config {
	return &rest.Config{
		Host: host, BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 200, Burst: 400,
	}
}

func beController(host string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o := &controller.Options{Namespace: "default", Metrics: "0", Health: "0"}
	return controller.Run(context.Background(), config(host), o, "bench", log)
}

func startController(host string) (*exec.Cmd, error) {
	cmd := exec.Command(os.Args[0], "-controller", host)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, cmd.Start()
}

func run(n int, steady time.Duration) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	server, err := controlplane.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.Apply(ctx, "deployments/crds/fabric.dev_*.yaml", server.Manifests()+"/*"); err != nil {
		return err
	}
	for i := range nFabrics {
		text := fabrics.Object(fmt.Sprintf("rail-%d", i), fmt.Sprintf(
			`{match: {linkLayer: InfiniBand, rail: %d}, addresses: {nodeRanges: {ranges: [{range: 10.%d.0.0/13, perNode: 26}]}}}`,
			i, 8*i))
		if err := server.ApplyText(ctx, []byte(text)); err != nil {
			return err
		}
	}
	if err := makeNodes(ctx, server.Config, n); err != nil {
		return err
	}
	status, err := machine()
	if err != nil {
		return err
	}
	text, _ := json.Marshal(status)
	fmt.Printf("%d nodes, %d fabrics, a status has %d bytes\n", n, nFabrics, len(text))
	m := &meter{server: server, dir: dir}
	if err := m.mark(ctx); err != nil {
		return err
	}

	ctrl, err := startController(server.Config.Host)
	if err != nil {
		return err
	}
	began := time.Now()
	agents, err := startAgents(ctx, server.Config.Host, n, status)
	if err != nil {
		return err
	}
	agents.await(n)
	waits := agents.waits()
	fmt.Printf("bring-up: %.1f s, a node waited %.1f s (median), %.1f s (longest) for its ranges\n",
		time.Since(began).Seconds(), waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds())
	m.report(ctx, "bring-up", n)
	fmt.Printf("controller: %d MiB\n", rss(ctrl.Process.Pid))
	time.Sleep(30 * time.Second)
	_ = m.mark(ctx)
	time.Sleep(steady)
	m.report(ctx, "at rest", n)
	fmt.Printf("controller: %d MiB, agents: %.0f KiB each\n", rss(ctrl.Process.Pid),
		float64(rss(os.Getpid()))*1024/float64(n))
	return nil
}

// machine is the status of a recorded machine.
func machine() (*v1alpha1.FabricNodeStatus, error) {
	n, err := node.Open(machines.H20().FS, journal.Store{})
	if err != nil {
		return nil, err
	}
	b, err := n.Compact(node.MaxCompact)
	if err != nil {
		return nil, err
	}
	s := &v1alpha1.FabricNodeStatus{
		Agent: "v0.3.0", Plugin: v1alpha1.Plugin{Version: "v0.3.0", SHA256: strings.Repeat("ab", 32)}, RDMAMode: "exclusive",
		Devices: v1alpha1.DeviceCounts{Total: nFabrics, Healthy: nFabrics}, Inventory: &runtime.RawExtension{Raw: b},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: metav1.Now()}},
	}
	for i := range nFabrics {
		s.Fabrics = append(s.Fabrics, v1alpha1.NodeFabric{Name: fmt.Sprintf("rail-%d", i), Generation: 1,
			Devices: []v1alpha1.FabricDevice{{ID: fmt.Sprintf("0000:%02x:00.0", 16*i), HCA: fmt.Sprintf("mlx5_%d", i),
				LinkLayer: "InfiniBand", RateGb: 400}}})
	}
	return s, nil
}

func makeNodes(ctx context.Context, c *rest.Config, n int) error {
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	tokens := make(chan struct{}, 32)
	for i := range n {
		tokens <- struct{}{}
		wg.Go(func() {
			defer func() { <-tokens }()
			o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
			if _, err := client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{}); err != nil {
				failed.Store(&err)
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return *e
	}
	return nil
}

func name(i int) string { return fmt.Sprintf("gpu-%04d", i) }

type agents struct {
	mu    sync.Mutex
	times []time.Duration
}

func (a *agents) waits() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.times))
}

func (a *agents) await(n int) {
	for len(a.waits()) < n {
		time.Sleep(100 * time.Millisecond)
	}
}

// startAgents starts the part of an agent that talks to the API server, once for each node, each with a connection of
// its own.
func startAgents(ctx context.Context, host string, n int, status *v1alpha1.FabricNodeStatus) (*agents, error) {
	a := &agents{}
	for i := range n {
		c := config(host)
		d := &net.Dialer{Timeout: 30 * time.Second}
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return d.DialContext(ctx, network, address)
		}
		link, err := cluster.NewLink(c, name(i), slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		go link.Run(ctx)
		go a.agent(ctx, link, status.DeepCopy())
	}
	return a, nil
}

func (a *agents) agent(ctx context.Context, link *cluster.Link, status *v1alpha1.FabricNodeStatus) {
	var told time.Time
	waited := false
	tick := time.NewTicker(time.Second)
	for {
		if ok, err := link.Report(ctx, status); ok && err == nil && told.IsZero() {
			told = time.Now()
		}
		if own := link.Own(); !waited && own != nil && len(own.Spec.Ranges) == nFabrics {
			waited = true
			a.mu.Lock()
			a.times = append(a.times, time.Since(told))
			a.mu.Unlock()
		}
		select {
		case <-link.Changed():
		case <-tick.C:
		}
	}
}

func rss(pid int) (mib int) {
	b, _ := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	for line := range strings.Lines(string(b)) {
		var kb int
		if k, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); k == 1 {
			return kb / 1024
		}
	}
	return 0
}
