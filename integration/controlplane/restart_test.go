package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

var errKilled = errors.New("the controller is killed")

// wire is the controller's way to the API server: it counts writes, and is cut with one of them.
type wire struct {
	next   http.RoundTripper
	writes atomic.Int32
	cut    int32 // the last write that arrives; negative: all do
	dead   atomic.Bool
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.dead.Load() {
		return nil, errKilled
	}
	if r.Method == http.MethodGet {
		return w.next.RoundTrip(r)
	}
	n := w.writes.Add(1)
	if w.cut >= 0 && n > w.cut {
		w.dead.Store(true)
		return nil, errKilled
	}
	return w.next.RoundTrip(r)
}

// wired is a controller whose writes go through w. It remembers nothing of another one.
func wired(t *testing.T, w *wire, term string) *controller.Controller {
	t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	rc := rest.CopyConfig(server.Config)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	return &controller.Controller{
		Client: c, Ranges: controller.NewRanges(c, c, term, yes,
			log), Events: record.NewFakeRecorder(10000), Now: time.Now,
		Log: log,
	}
}

// begin is a cluster that no controller has seen: three nodes, one of which is gone, two fabrics, one with a pod.
func begin(t *testing.T, c client.Client) {
	t.Helper()
	for _, n := range []string{"a", "b", "gone"} {
		addNode(t, c, n, "ranged", "plain")
	}
	use(t, c, "a", "team/p")
	apply(t, testfabrics.Object("ranged", testfabrics.Ranged("10.31.0.0/24", 26)))
	apply(t, testfabrics.Object("plain", `{addresses: {ipam: {type: host-local, subnet: 10.32.0.0/24}}}`))
}

// end removes what begin and a controller have made.
func end(t *testing.T, c client.Client) {
	t.Helper()
	removeFabrics(t, c)
	removeNodes(t, c)
	for _, name := range []string{"ranged", "plain"} {
		u := definition(name)
		if err := client.IgnoreNotFound(c.Delete(t.Context(), u)); err != nil {
			t.Fatal(err)
		}
	}
}

// world is all that a controller decides, in words.
func world(t *testing.T, c client.Client) string {
	t.Helper()
	out := []string{"ranges " + ranges(t, c)}
	for _, n := range []string{"a", "b", "gone"} {
		out = append(out, n+" "+stateOf(t, c, n))
	}
	list := &v1alpha1.FabricList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		f := &list.Items[i]
		line := fmt.Sprintf("%s %q published %q %s", f.Name, f.Finalizers, f.Status.Published,
			f.Status.Addresses.Summary)
		var conditions []string
		for k := range f.Status.Conditions {
			if cond := &f.Status.Conditions[k]; cond.Type != noise {
				conditions = append(conditions, fmt.Sprintf("; %s %s %s", cond.Type, cond.Status, cond.Reason))
			}
		}
		slices.Sort(conditions) // their order is that in which they came to be
		line += strings.Join(conditions, "")
		u := definition(f.Name)
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			line += "; " + err.Error()
		}
		out = append(out, line, fmt.Sprint(u.Object["spec"], u.GetAnnotations()))
	}
	return strings.Join(out, "\n")
}

// settle has a controller work until a round writes nothing, by a clock that lets it write counts each time.
func settle(t *testing.T, c *controller.Controller, w *wire) {
	t.Helper()
	now := time.Now()
	c.Now = func() time.Time { return now }
	until(t, func() string {
		now = now.Add(time.Minute)
		before := w.writes.Load()
		if _, err := c.Round(t.Context()); err != nil {
			return err.Error()
		}
		if w.writes.Load() != before {
			return "it still writes"
		}
		return ""
	})
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A controller is killed after each of its writes; the next one ends where one would have
// that was never killed. Then a round writes nothing, also after a long time.
func TestKilledBetweenWrites(t *testing.T) {
	c := whole(t)
	create(t, c, newNode("a"))
	create(t, c, newNode("b"))
	begin(t, c)
	w := &wire{cut: -1}
	whole := wired(t, w, "whole")
	settle(t, whole, w)
	want, writes := world(t, c), w.writes.Load()
	for _, part := range []string{"a present 10.31.0.0/26", "gone deleted", `ranged ["fabric.dev/in-use"]`,
		"Ready True Ready"} {
		if !strings.Contains(want, part) {
			t.Errorf("no %q in\n%s", part, want)
		}
	}
	for range 3 {
		now := time.Now().Add(time.Hour)
		whole.Now = func() time.Time { return now }
		if _, err := whole.Round(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := w.writes.Load(); n != writes {
		t.Errorf("%d writes although nothing has changed", n-writes)
	}
	end(t, c)
	t.Logf("%d writes", writes)
	for n := range writes {
		begin(t, c)
		w := &wire{cut: n}
		killed := wired(t, w, fmt.Sprint("killed ", n))
		now := time.Now()
		killed.Now = func() time.Time { return now }
		until(t, func() string {
			now = now.Add(time.Minute)
			before := w.writes.Load()
			// How many writes there are depends on what comes between: it may have no more of them, too.
			if _, err := killed.Round(t.Context()); w.dead.Load() || err == nil && w.writes.Load() == before {
				return ""
			}
			return "it is still there"
		})
		next := &wire{cut: -1}
		settle(t, wired(t, next, fmt.Sprint("next ", n)), next)
		if got := world(t, c); got != want {
			t.Errorf("killed after %d writes:\n%s\nwant\n%s", n, got, want)
		}
		end(t, c)
	}
}

// noise is a condition that another client sets.
const noise = "Noise"

// Two controllers, both of which believe that they lead, and another client that writes into the same objects: no
// mistake of the three stays.
func TestConflicts(t *testing.T) {
	c := whole(t)
	create(t, c, newNode("a"))
	create(t, c, newNode("b"))
	begin(t, c)
	w := &wire{cut: -1}
	settle(t, wired(t, w, "alone"), w)
	want := world(t, c)
	end(t, c)

	begin(t, c)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var rounds [2]atomic.Int32
	for i := range rounds {
		one := wired(t, &wire{cut: -1}, fmt.Sprint("one of two ", i))
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = one.Round(ctx)
				rounds[i].Add(1)
			}
		})
	}
	var disturbed atomic.Int32
	all.Go(func() {
		for ctx.Err() == nil {
			for _, name := range []string{"ranged", "plain"} {
				if disturb(ctx, c, name) == nil {
					disturbed.Add(1)
				}
			}
		}
	})
	until(t, func() string {
		if rounds[0].Load() < 20 || rounds[1].Load() < 20 || disturbed.Load() < 50 {
			return fmt.Sprint(rounds[0].Load(), " and ", rounds[1].Load(), " rounds, disturbed ", disturbed.Load(),
				" times")
		}
		return ""
	})
	ranges(t, c)
	stop()
	all.Wait()
	w = &wire{cut: -1}
	last := wired(t, w, "last")
	settle(t, last, w)
	later := time.Now().Add(2 * time.Hour) // by then no condition tells any more that the definitions were put back
	last.Now = func() time.Time { return later }
	if _, err := last.Round(t.Context()); err != nil {
		t.Error(err)
	}
	if got := world(t, c); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	end(t, c)
}

// disturb writes into the status and the metadata of a Fabric, and breaks its definition.
func disturb(ctx context.Context, c client.Client, name string) error {
	f := &v1alpha1.Fabric{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, f); err != nil {
		return err
	}
	f.Annotations = map[string]string{noise: time.Now().String()}
	if err := c.Update(ctx, f); err != nil {
		return err
	}
	f.Status.Conditions = slices.DeleteFunc(f.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.FabricPublished
	})
	apimeta.SetStatusCondition(&f.Status.Conditions, metav1.Condition{
		Type: noise, Status: metav1.ConditionTrue, Reason: "N" + fmt.Sprint(time.Now().Nanosecond()),
	})
	if err := c.Status().Update(ctx, f); err != nil {
		return err
	}
	u := definition(name)
	if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return client.IgnoreNotFound(err)
	}
	u.Object["spec"] = map[string]any{"config": "{}"}
	return c.Update(ctx, u)
}
