package controlplane_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// logs passes what a program logs on to the test, until the test is over: a manager says a last word when it has
// stopped.
type logs struct{ t *testing.T }

func (l logs) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}

// control runs a controller, with no more permissions than the manifests give it, until the returned function is
// called.
func control(t *testing.T) (stop func()) {
	t.Helper()
	return controlAs(t, "fabric-system", "fabric-controller")
}

// controlAs is control with a service account.
func controlAs(t *testing.T, namespace, account string) (stop func()) {
	t.Helper()
	return controlWith(t, account, &controller.Options{Namespace: namespace})
}

// controlWith runs a controller as a ServiceAccount of its namespace.
func controlWith(t *testing.T, account string, o *controller.Options) (stop func()) {
	t.Helper()
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, o.Namespace, account)
	o.Metrics, o.Health = "0", "0"
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- controller.Run(ctx, rc, o, "test", slog.New(slog.NewTextHandler(logs{t}, nil))) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func whole(t *testing.T) client.Client {
	t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// until waits for a state; what says what is missing.
func until(t *testing.T, what func() string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for {
		missing := what()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(missing)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// conditionOf is a condition of a Fabric: "False Refused: message".
func conditionOf(t *testing.T, c client.Client, name, kind string) string {
	t.Helper()
	o := &v1alpha1.Fabric{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		return err.Error()
	}
	cond := apimeta.FindStatusCondition(o.Status.Conditions, kind)
	if cond == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", cond.Status, cond.Reason, cond.Message)
}

func untilCondition(t *testing.T, c client.Client, name, kind, want string) {
	t.Helper()
	until(t, func() string {
		got := conditionOf(t, c, name, kind)
		if strings.HasPrefix(got, want) {
			return ""
		}
		return fmt.Sprintf("%s of %s: %s, want %s", kind, name, got, want)
	})
}

// untilEvent waits for an Event on a Fabric.
func untilEvent(t *testing.T, c client.Client, name, reason, message string) {
	t.Helper()
	until(t, func() string {
		list := &corev1.EventList{}
		if err := c.List(t.Context(), list, client.InNamespace("default")); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			e := &list.Items[i]
			if e.InvolvedObject.Kind == "Fabric" && e.InvolvedObject.Name == name && e.Reason == reason &&
				strings.HasPrefix(e.Message, message) {
				return ""
			}
		}
		return fmt.Sprintf("no Event %s on %s", reason, name)
	})
}

// definitions are the namespaces that have a network.
func definitions(t *testing.T, c client.Client, name string) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(fabrics.Definitions)
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		if u := &list.Items[i]; u.GetName() == name {
			out = append(out, u.GetNamespace())
		}
	}
	slices.Sort(out)
	return out
}

// definition is that of a network in the namespace default, to be read.
func definition(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(fabrics.Definitions)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func untilDefined(t *testing.T, c client.Client, name string, want ...string) {
	t.Helper()
	until(t, func() string {
		got := definitions(t, c, name)
		if slices.Equal(got, want) {
			return ""
		}
		return fmt.Sprintf("%s is defined in %q, want %q", name, got, want)
	})
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
}

// removeFabrics deletes all Fabrics, also those that wait for something.
func removeFabrics(t *testing.T, c client.Client) {
	t.Helper()
	ctx := context.Background()
	list := &v1alpha1.FabricList{}
	if err := c.List(ctx, list); err != nil {
		t.Error(err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		old := o.DeepCopy()
		o.Finalizers = nil
		err := errors.Join(client.IgnoreNotFound(c.Patch(ctx, o, client.MergeFrom(old))),
			client.IgnoreNotFound(c.Delete(ctx, o)))
		if err != nil {
			t.Error(err)
		}
	}
}

func apply(t *testing.T, text string) {
	t.Helper()
	if err := server.ApplyText(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// The life of a Fabric, with a controller that is replaced now and then.
func TestFabric(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	stop := control(t)
	defer func() { stop() }()
	for _, n := range []string{"gpu-1", "gpu-2"} {
		create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}})
		addNode(t, c, n, "life")
	}
	defer removeNodes(t, c)
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team-a", Labels: map[string]string{"rdma": "yes"},
	}})

	apply(t, testfabrics.Object("life", `{match: {linkLayer: InfiniBand},
	  namespaces: {selector: {matchLabels: {rdma: "yes"}}},
	  addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26}]}}}`))
	untilCondition(t, c, "life", v1alpha1.FabricReady, "True Ready")
	untilDefined(t, c, "life", "team-a")
	if got := ranges(t, c); got != "gpu-1 10.0.0.0/26, gpu-2 10.0.0.64/26" {
		t.Error(got)
	}
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team-b", Labels: map[string]string{"rdma": "yes"},
	}})
	untilDefined(t, c, "life", "team-a", "team-b")

	stop()
	stop = control(t)
	// What excludes something older is not in force.
	apply(t, testfabrics.Object("second", `{addresses: {ipam: {type: whereabouts, range: 10.0.0.128/25}}}`))
	untilCondition(t, c, "second", v1alpha1.FabricAccepted,
		`False Refused: addresses.ipam.range 10.0.0.128/25 overlaps`)
	untilDefined(t, c, "second")
	apply(t, testfabrics.Object("second", `{addresses: {ipam: {type: whereabouts, range: 10.0.1.128/25}}}`))
	untilDefined(t, c, "second", "default")
	untilCondition(t, c, "second", v1alpha1.FabricReady, `False NoDevices`)
	// A mistake leaves what is in force in force.
	apply(t, testfabrics.Object("second", `{addresses: {ipam: {type: whereabouts, range: 10.0.1.128/25, exlude: []}}}`))
	untilCondition(t, c, "second", v1alpha1.FabricAccepted,
		`False Refused: generation 2 stays in force: addresses.ipam: "exlude" is unknown`)
	untilDefined(t, c, "second", "default")

	// Pods use it: it waits, and says for whom.
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "gpu-1"}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Fabrics[0].Devices[0].Pods = []string{"team-a/train-0"}
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	f := &v1alpha1.Fabric{ObjectMeta: metav1.ObjectMeta{Name: "life"}}
	until(t, func() string {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(f), f); err != nil || len(f.Finalizers) == 0 {
			return fmt.Sprintf("no finalizer: %v", err)
		}
		return ""
	})
	if err := c.Delete(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	untilCondition(t, c, "life", v1alpha1.FabricReady,
		"False InUse: the Fabric is deleted when these pods have ended: team-a/train-0")
	untilEvent(t, c, "life", "InUse", "the Fabric is deleted when these pods have ended: team-a/train-0")
	untilDefined(t, c, "life", "team-a", "team-b")
	if err := c.Get(t.Context(), client.ObjectKey{Name: "gpu-1"}, n); err != nil {
		t.Fatal(err)
	}
	n.Status.Fabrics[0].Devices[0].Pods = nil
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	until(t, func() string {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(f), f); client.IgnoreNotFound(err) == nil &&
			err != nil {
			return ""
		}
		return "the Fabric is still there"
	})
}

// The controller exports what stands in the status of Fabrics, to those who may get it. Another leader exports the
// same, also that a Fabric was refused long ago.
func TestControllerMetrics(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	apply(t, testfabrics.Object("shown", testfabrics.Ranged("10.41.0.0/24", 26)))
	apply(t, testfabrics.Object("wrong", `{match: {devices: [x]}, addresses: {ipam: {type: whereabouts, rnge: 1}}}`))
	createNode(t, c, "one")
	addNode(t, c, "one", "shown")
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "one"}, n); err != nil {
		t.Fatal(err)
	}
	apimeta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
		Type: v1alpha1.FabricNodeReady, Status: metav1.ConditionFalse, Reason: "WrongRDMAMode",
	})
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		address, stop := metered(t)
		for _, want := range []string{
			`fabric_nodes{fabric="shown"} 1`,
			`fabric_devices{fabric="shown",state="healthy"} 1`,
			`fabric_addresses{fabric="shown",state="capacity"} 62`,
			`fabric_condition{fabric="shown",status="True",type="Ready"} 1`,
			`fabric_condition{fabric="shown",status="False",type="Ready"} 0`,
			`fabric_condition{fabric="wrong",status="False",type="Accepted"} 1`,
			`fabric_nodes_not_ready{reason="WrongRDMAMode"} 1`,
			`leader_election_master_status{name="fabric-controller"} 1`,
		} {
			until(t, func() string {
				if got := scrape(t, address, server.Config.BearerToken); !strings.Contains(got, want) {
					return fmt.Sprintf("no %s in %.300q", want, got)
				}
				return ""
			})
		}
		if got := scrape(t, address, "wrong"); strings.HasPrefix(got, "200") || strings.Contains(got, "fabric_") {
			t.Errorf("%.100s", got)
		}
		stop()
	}
}

// metered runs a controller with metrics, until stop is called.
func metered(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		o := &controller.Options{Namespace: "fabric-system", Metrics: address, Secure: true, Health: "0"}
		ended <- controller.Run(ctx, server.Config, o, "test", slog.New(slog.DiscardHandler))
	}()
	return address, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// scrape is the answer to a request for metrics.
func scrape(t *testing.T, address, token string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	h := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // self-signed
	}}
	answer, err := h.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", string(b), err)
}
