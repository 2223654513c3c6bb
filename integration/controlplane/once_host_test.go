package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/internal/ipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/hostlocal"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// host is a node: a real agent, and pods that get their addresses of the plugin's host-local by the file that the
// agent has written.
type host struct {
	t    *testing.T
	name string
	dir  string
	pods int
	stop func()
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{t: t, name: name, dir: t.TempDir(), stop: func() {}}
	h.run()
	t.Cleanup(func() { h.stop() })
	return h
}

// run runs the node's agent.
func (h *host) run() {
	h.t.Helper()
	kubeconfig := filepath.Join(h.dir, "kubeconfig")
	b, err := json.Marshal(tree{"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []tree{{"name": "x", "cluster": tree{
			"server": server.Config.Host, "insecure-skip-tls-verify": true,
		}}},
		"users":    []tree{{"name": "x", "user": tree{"token": server.Config.BearerToken}}},
		"contexts": []tree{{"name": "x", "context": tree{"cluster": "x", "user": "x"}}}})
	if err != nil {
		h.t.Fatal(err)
	}
	for name, text := range map[string][]byte{kubeconfig: b, filepath.Join(h.dir, "fabric"): []byte("the binary")} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	o := &agent.Options{
		Source: h.dir + "/fabric", BinDir: h.dir + "/bin", StateDir: h.dir + "/state", Policy: h.dir + "/policy",
		ConfDir: h.dir + "/conf", Kubeconfig: kubeconfig, Node: h.name, WriteEvery: time.Millisecond,
		Interval: 200 * time.Millisecond, Grace: time.Minute,
		Survey: func() ([]survey.Device, error) {
			port := device.Port{Number: 1, LinkLayer: device.InfiniBand, State: device.PortActive}
			return []survey.Device{{Location: device.LocationOnPCI("0000:3b:00.0"), NUMA: -1, RateGb: 400,
				Netdev: "ibs1", HCA: device.HCA{Name: "mlx5_0", Ports: []device.Port{port}}}}, nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx, o, "v1", slog.New(slog.NewTextHandler(logs{h.t}, nil))) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Error(err)
		}
	})
}

// file is the configuration of a network that pods of the node get.
func (h *host) file(network string) []byte {
	b, err := os.ReadFile(filepath.Join(h.dir, "conf", "fabric-agent-"+network+".conf"))
	if err != nil {
		return nil
	}
	return b
}

func (h *host) delegate(conf []byte, pod int) ipam.Delegate {
	return ipam.Delegate{Type: "host-local", Conf: conf, Policy: policy.Default(h.dir + "/state"), Env: netconf.Env{
		ContainerID: fmt.Sprintf("%s-%d", h.name, pod), IfName: "net1", Netns: "/run/netns/x", Path: "/nowhere",
	}}
}

// start starts pods.
func (h *host) start(network string, n int) {
	h.t.Helper()
	for range n {
		h.pods++
		until(h.t, func() string {
			conf := h.file(network)
			if conf == nil {
				return h.name + " has no configuration of " + network
			}
			if _, err := h.delegate(conf, h.pods).Add(h.t.Context()); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// end ends all pods that are on a network.
func (h *host) end(conf []byte) {
	h.t.Helper()
	for pod := range h.pods {
		if err := h.delegate(conf, pod+1).Del(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}
}

// once counts every address that pods of these nodes have, of all networks, and returns how many there are.
func once(t *testing.T, hosts ...*host) int {
	t.Helper()
	whose := map[netip.Addr]string{}
	for _, h := range hosts {
		networks, err := filepath.Glob(filepath.Join(h.dir, "state", "ipam", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range networks {
			given, err := hostlocal.Given(dir)
			if err != nil {
				t.Fatal(err)
			}
			me := h.name + " on " + filepath.Base(dir)
			for _, a := range given {
				if whose[a] != "" {
					t.Errorf("%s is that of a pod of %s, and of one of %s", a, whose[a], me)
				}
				whose[a] = me
			}
		}
	}
	return len(whose)
}

// agentsSet is the DaemonSet of the agents, with so many nodes, as the controller of DaemonSets counts them.
func agentsSet(t *testing.T, c client.Client, nodes int32) {
	t.Helper()
	labels := map[string]string{"app": "fabric-agent"}
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "fabric-agent", Namespace: "fabric-system"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
			},
		},
	}
	create(t, c, d)
	d.Status.ObservedGeneration, d.Status.DesiredNumberScheduled = d.Generation, nodes
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// controlAll runs a controller that waits for the agents, with the permissions of the manifests.
func controlAll(t *testing.T) (stop func()) {
	t.Helper()
	return controlWith(t, "fabric-controller", &controller.Options{Namespace: "fabric-system", Agents: "fabric-agent"})
}

func untilRanges(t *testing.T, c client.Client, n int) string {
	t.Helper()
	got := ""
	until(t, func() string {
		got = ranges(t, c)
		if have := len(strings.Split(got, ", ")); got == "" || have != n {
			return fmt.Sprintf("%q, want %d ranges", got, n)
		}
		return ""
	})
	return got
}
