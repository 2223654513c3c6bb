package controlplane_test

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/agent"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/policy"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// addressesOf sets the addresses of a Node.
func addressesOf(t *testing.T, c client.Client, name string, all ...corev1.NodeAddress) {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses = all
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// With no more rights than its token gives it, an agent notes for the plugin each address by which others know its
// node: those that kubelet tells it, those of the Node that it can't read, and the one from which the node reaches the
// API server, although the agent's own connection goes to an address that the node translates: here to the loopback.
func TestNodeAddressesNoted(t *testing.T) {
	agentRules(t)
	c := whole(t)
	defer removeNodes(t, c)
	config := agentOf(t, "far")
	internal := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "198.51.100.1"}
	addressesOf(t, c, "far", internal,
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "198.51.100.2"},
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "2001:db8::7"},
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.7"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "203.0.113.8"})

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fabric"), []byte("the binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := agent.Parse([]string{
		"run", "--node-name=far", "--node-ips=198.51.100.1,2001:db8::7", "--source=" + dir + "/fabric",
		"--bin-dir=" + dir + "/bin", "--state-dir=" + dir + "/state", "--policy=" + dir + "/policy", "--conf-dir=",
		"--device-plugin-dir=", "--kubelet-plugins-dir=", "--kubeconfig=" + kubeconfig(t, config.BearerToken),
		"--interval=200ms",
		"--health-address=", "--metrics-address=",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.Survey = func() ([]survey.Device, error) { return nil, nil }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- agent.Run(ctx, o, "v1", slog.New(slog.NewTextHandler(logs{t}, nil))) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	server := endpointOf(t)
	noted := func(want ...string) {
		t.Helper()
		want = append(want, "198.51.100.1", "2001:db8::7", server)
		slices.Sort(want)
		until(t, func() string {
			p, err := policy.Load(dir+"/policy", dir+"/state")
			if err != nil {
				return err.Error()
			}
			var got []string
			for _, a := range p.NodeAddresses {
				got = append(got, a.String())
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				return "noted: " + strings.Join(got, " ") + ", want " + strings.Join(want, " ")
			}
			return ""
		})
	}
	noted()
	s := newStepper(t, c)
	annotated := func() {
		t.Helper()
		until(t, func() string {
			s.round(time.Second)
			n := &v1alpha1.FabricNode{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "far"}, n); err != nil {
				return err.Error()
			}
			if got := n.Annotations[v1alpha1.NodeAddressesAnnotation]; got != "198.51.100.2,203.0.113.7" {
				return "annotation " + got
			}
			return ""
		})
	}
	annotated()
	noted("198.51.100.2", "203.0.113.7")

	// A FabricNode that is made again, by this agent, gets them again.
	if err := c.Delete(t.Context(), &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: "far"}}); err != nil {
		t.Fatal(err)
	}
	annotated()
	noted("198.51.100.2", "203.0.113.7")

	addressesOf(t, c, "far", internal)
	s.round(11 * time.Minute)
	noted()
}

// endpointOf is the address that the API server has made known: one of this host, from which the host reaches itself.
func endpointOf(t *testing.T) string {
	t.Helper()
	slice, err := kube(t, server.Config).DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := netip.ParseAddr(slice.Endpoints[0].Addresses[0])
	if err != nil || !a.IsGlobalUnicast() {
		t.Fatalf("endpoint %s: %v", slice.Endpoints[0].Addresses[0], err)
	}
	return a.String()
}
