package controlplane_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// An agent that says something else each second makes the controller write a Fabric, which all are told of, and make an
// Event once in ten seconds.
func TestTogglingAgent(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, c)
	apply(t, testfabrics.Object("toggled", `{}`))
	createNode(t, c, "toggling")
	addNode(t, c, "toggling", "toggled")
	s.becomes("toggled", v1alpha1.FabricReady, "True Ready")
	s.event("")
	n, f := &v1alpha1.FabricNode{}, &v1alpha1.Fabric{}
	writes, events, before := 0, 0, ""
	for i := range 60 {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "toggling"}, n); err != nil {
			t.Fatal(err)
		}
		n.Status.Devices.Healthy = int32(i % 2)
		n.Status.Fabrics[0].Devices[0].Problem = []string{"PortDown", ""}[i%2]
		if err := c.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		s.round(time.Second)
		if s.event("DevicesUnhealthy") {
			events++
		}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "toggled"}, f); err != nil {
			t.Fatal(err)
		}
		if f.ResourceVersion != before {
			writes, before = writes+1, f.ResourceVersion
		}
	}
	if writes > 8 || events > 8 {
		t.Errorf("in a minute the Fabric was written %d times, with %d Events", writes, events)
	}
	s.becomes("toggled", v1alpha1.FabricReady, "True Ready") // what it said last
}

// A leader whose clock is ahead by more than reclaim takes no range from a Node that is away for a moment: to it all
// that others have noted, the lease too, was long ago.
func TestClockAhead(t *testing.T) {
	fresh(t, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	apply(t, testfabrics.Object("clocks", `{addresses: {nodeRanges: {reclaim: 1h,
	  ranges: [{range: 10.23.0.0/24, perNodePrefixLength: 26}]}}}`))
	createNode(t, c, "away")
	addNode(t, c, "away", "clocks")
	stop := control(t)
	until(t, func() string {
		if got := ranges(t, c); got != "away 10.23.0.0/26" {
			return "ranges: " + got
		}
		return ""
	})
	stop()
	const ahead = 2 * time.Hour
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "away"}, n); err != nil {
		t.Fatal(err)
	}
	gone := metav1.NewTime(time.Now().Add(-ahead))
	n.Spec.Gone = &gone
	if err := c.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	node := definition("away").DeepCopy()
	node.SetAPIVersion("v1")
	node.SetKind("Node")
	node.SetNamespace("")
	if err := c.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	k := kube(t, server.Config).CoordinationV1().Leases("fabric-system")
	lease, err := k.Get(t.Context(), "fabric-controller", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	then := metav1.NewMicroTime(gone.Add(time.Second))
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new("earlier"), LeaseDurationSeconds: new(int32(1)), RenewTime: &then, AcquireTime: &then,
	}
	if _, err := k.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	control(t)
	createNode(t, c, "new")
	addNode(t, c, "new", "clocks")
	until(t, func() string { // the leader has done its rounds
		if got := ranges(t, c); !strings.Contains(got, "new 10.23.0.") {
			return "ranges: " + got
		}
		return ""
	})
	if got := stateOf(t, c, "away"); got != "gone 10.23.0.0/26" {
		t.Errorf("the Node that is away is %s", got)
	}
}

// Any pod can reach the controller's ports: one more connection than 64 is closed, and a header has 32 KiB.
func TestControllerPort(t *testing.T) {
	for path, o := range map[string]*controller.Options{
		"/readyz": {Metrics: "0"}, "/metrics": {Health: "0"},
	} {
		t.Run(path[1:], func(t *testing.T) { controllerPort(t, path, o) })
	}
}

func controllerPort(t *testing.T, path string, o *controller.Options) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.Namespace = "fabric-system"
	if o.Health == "" {
		o.Health = address
	} else {
		o.Metrics = address
	}
	ended := make(chan error)
	go func() {
		ended <- controller.Run(t.Context(), server.Config, o, "test", slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	ask := func(header string) (string, error) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return "", err
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", path, header); err != nil {
			return "", err
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return "", err
		}
		return answer.Status, answer.Body.Close()
	}
	until(t, func() string {
		status, err := ask("")
		if err != nil || status != "200 OK" {
			return fmt.Sprint(status, err)
		}
		return ""
	})
	if status, err := ask(strings.Repeat("x", 100<<10)); err == nil && strings.HasPrefix(status, "200") {
		t.Errorf("with a header of 100 KiB: %s", status)
	}
	answered := 0
	for range 100 {
		if status, err := ask(""); err == nil && status == "200 OK" {
			answered++
		}
	}
	if answered > 63 {
		t.Errorf("%d connections at once", answered+1)
	}
}
