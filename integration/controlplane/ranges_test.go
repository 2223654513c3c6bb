package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

func api(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func fabric(t *testing.T, name, spec string) fabrics.Fabric {
	t.Helper()
	o := &v1alpha1.Fabric{}
	if err := yaml.Unmarshal([]byte(testfabrics.Object(name, spec)), o); err != nil {
		t.Fatal(err)
	}
	f, err := fabrics.Parse(o)
	if err != nil {
		t.Fatal(err)
	}
	return *f
}

// addNode is what an agent does: its FabricNode, and in the status the fabrics that it has devices of.
func addNode(t *testing.T, c client.Client, name string, wants ...string) {
	t.Helper()
	n := &v1alpha1.FabricNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	for _, f := range wants {
		n.Status.Fabrics = append(n.Status.Fabrics, v1alpha1.NodeFabric{
			Name: f, Devices: []v1alpha1.FabricDevice{{ID: "0000:3b:00.0"}},
		})
	}
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func removeNodes(t *testing.T, c client.Client) {
	t.Helper()
	if err := c.DeleteAllOf(context.Background(), &v1alpha1.FabricNode{}); err != nil {
		t.Error(err)
	}
}

// ranges are those of all nodes: "a 10.0.0.0/26, b 10.0.0.64/26". It fails if two nodes have one.
func ranges(t *testing.T, c client.Client) string {
	t.Helper()
	list := &v1alpha1.FabricNodeList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	whose := map[string]string{}
	var out []string
	for _, n := range list.Items {
		for _, r := range n.Spec.Ranges {
			if other := whose[r.Fabric+r.Range]; other != "" {
				t.Errorf("%s has %s of %s, and so has %s", n.Name, r.Range, r.Fabric, other)
			}
			whose[r.Fabric+r.Range] = n.Name
			out = append(out, n.Name+" "+r.Range)
		}
	}
	return strings.Join(out, ", ")
}

func yes() bool { return true }

func rounds(c client.Client, reader client.Reader, term string, leading func() bool) *controller.Ranges {
	r := controller.NewRanges(c, c, term, leading, slog.New(slog.DiscardHandler))
	if reader != nil {
		r.Cached = reader
	}
	return r
}

func all(names ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[n] = true
	}
	return out
}

const perNode26 = `{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/24, perNodePrefixLength: 26}], reclaim: 1h}}}`

func TestRanges(t *testing.T) {
	c := api(t)
	defer removeNodes(t, c)
	list := []fabrics.Fabric{fabric(t, "ib", perNode26), fabric(t, "plain", `{}`)}
	for _, n := range []string{"a", "b", "c"} {
		addNode(t, c, n, "ib", "plain")
	}
	addNode(t, c, "other", "plain")
	now := time.Now()
	r := rounds(c, nil, "one", yes)
	r.Now = func() time.Time { return now }
	round := func(present map[string]bool, want, exhausted string) {
		t.Helper()
		out, err := r.Round(t.Context(), list, present)
		if err != nil {
			t.Fatal(err)
		}
		if got := ranges(t, c); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		err = out["ib"].Exhausted
		if (exhausted == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), exhausted) {
			t.Errorf("%v, want %q", err, exhausted)
		}
	}
	const abc = "a 10.0.0.0/26, b 10.0.0.64/26, c 10.0.0.128/26"
	round(all("a", "b", "c", "other"), abc, "")
	addNode(t, c, "d", "ib")
	addNode(t, c, "e", "ib")
	round(all("a", "c", "d", "e"), abc+", d 10.0.0.192/26", "no /26 left for node e") // b is gone
	now = now.Add(59 * time.Minute)
	round(all("a", "b", "c", "d", "e"), abc+", d 10.0.0.192/26", "no /26 left for node e") // b is back
	now = now.Add(2 * time.Minute)
	round(all("a", "c", "d", "e"), abc+", d 10.0.0.192/26", "no /26 left for node e") // b is gone again
	// The next leader knows since when.
	r = rounds(c, nil, "two", yes)
	r.Now = func() time.Time { return now }
	now = now.Add(time.Hour + time.Second)
	round(all("a", "c", "d", "e"), "a 10.0.0.0/26, c 10.0.0.128/26, d 10.0.0.192/26, e 10.0.0.64/26", "")
	// b is forgotten
	round(all("a", "c", "d", "e"), "a 10.0.0.0/26, c 10.0.0.128/26, d 10.0.0.192/26, e 10.0.0.64/26", "")
	addNode(t, c, "b", "ib")
	round(all("a", "b", "c", "d", "e"), "a 10.0.0.0/26, c 10.0.0.128/26, d 10.0.0.192/26, e 10.0.0.64/26",
		"no /26 left for node b")
}

// held is a client whose writes wait, as those of a process that is stopped.
type held struct {
	client.Client
	wait, waits chan struct{}
}

func (h *held) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	h.waits <- struct{}{}
	<-h.wait
	return h.Client.Patch(ctx, o, p, opts...)
}

// A leader is stopped when it has decided and sends its writes, another takes over and gives out ranges, and then the
// first goes on: what it has decided is refused.
func TestStoppedLeader(t *testing.T) {
	c := api(t)
	defer removeNodes(t, c)
	list := []fabrics.Fabric{fabric(t, "ib", perNode26)}
	for _, n := range []string{"b", "c"} {
		addNode(t, c, n, "ib")
	}
	h := &held{c, make(chan struct{}), make(chan struct{}, 16)}
	old := rounds(h, nil, "old", yes)
	ended := make(chan error)
	go func() {
		_, err := old.Round(context.Background(), list, all("b", "c"))
		ended <- err
	}()
	<-h.waits // it wants to begin its term: what is under way is as stale as a range would be
	<-h.waits
	addNode(t, c, "a", "ib")
	young := rounds(c, nil, "young", yes)
	if _, err := young.Round(t.Context(), list, all("a", "b", "c")); err != nil {
		t.Fatal(err)
	}
	const want = "a 10.0.0.0/26, b 10.0.0.64/26, c 10.0.0.128/26"
	if got := ranges(t, c); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	close(h.wait)
	if err := <-ended; err == nil {
		t.Error("the old leader could write")
	}
	if got := ranges(t, c); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A leader that has lost its lease and knows it writes nothing.
func TestLostLease(t *testing.T) {
	c := api(t)
	defer removeNodes(t, c)
	addNode(t, c, "a", "ib")
	r := rounds(c, nil, "one", func() bool { return false })
	if _, err := r.Round(t.Context(), []fabrics.Fabric{fabric(t, "ib", perNode26)}, all("a")); err == nil {
		t.Error("it has written")
	}
	if got := ranges(t, c); got != "" {
		t.Error(got)
	}
}

// lagging is a cache that shows the FabricNodes as they were some lists ago.
type lagging struct {
	client.Reader
	seen []*v1alpha1.FabricNodeList
}

func (l *lagging) List(ctx context.Context, o client.ObjectList, opts ...client.ListOption) error {
	list, ok := o.(*v1alpha1.FabricNodeList)
	if !ok {
		return fmt.Errorf("%T", o)
	}
	now := &v1alpha1.FabricNodeList{}
	if err := l.Reader.List(ctx, now, opts...); err != nil {
		return err
	}
	l.seen = append(l.seen, now)
	*list = *l.seen[rand.IntN(len(l.seen))].DeepCopy()
	return nil
}

// fixed is a cache that shows the FabricNodes as they were once.
type fixed struct {
	client.Reader
	then *v1alpha1.FabricNodeList
}

func (f *fixed) List(_ context.Context, o client.ObjectList, _ ...client.ListOption) error {
	list, ok := o.(*v1alpha1.FabricNodeList)
	if !ok {
		return fmt.Errorf("%T", o)
	}
	*list = *f.then.DeepCopy()
	return nil
}

// slow is a client whose writes are under way for a while, up to many terms.
type slow struct{ client.Client }

func (s *slow) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if rand.IntN(4) == 0 {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	return s.Client.Patch(ctx, o, p, opts...)
}

// One leader follows the other while nodes come: each has a cache that lags behind or jumps back, and ends with writes
// under way that arrive in a later term. No range has two owners at any time, and in the end all nodes have one.
func TestManyLeaders(t *testing.T) {
	c := api(t)
	defer removeNodes(t, c)
	list := []fabrics.Fabric{fabric(t, "ib",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 24}]}}}`)}
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var term atomic.Int32
	var leaders sync.WaitGroup
	lead := func() {
		mine := term.Add(1)
		r := rounds(&slow{c}, &lagging{Reader: c}, fmt.Sprint("term ", mine),
			func() bool { return term.Load() == mine })
		leaders.Go(func() {
			for term.Load() == mine {
				_, _ = r.Round(context.Background(), list, all(names...))
			}
		})
	}
	for _, n := range names {
		if rand.IntN(2) == 0 {
			lead()
		}
		addNode(t, c, n, "ib")
		ranges(t, c)
	}
	term.Add(1)
	leaders.Wait()
	if _, err := rounds(c, nil, "last", yes).Round(t.Context(), list, all(names...)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(ranges(t, c), "/24"); got != len(names) {
		t.Errorf("%d nodes have ranges, want %d", got, len(names))
	}
}
