package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Link is what a node's agent has of the cluster: it is told of the Fabrics and of its own FabricNode, and says what it
// has in the latter's status. It lists nothing else, and asks for nothing again and again.
type Link struct {
	// Every is how often a status is written at most. 0: WriteEvery.
	Every time.Duration

	node    string
	client  rest.Interface
	fabrics cache.Store
	own     cache.Store
	synced  []cache.InformerSynced
	run     []func(context.Context)
	changed chan struct{}
	log     *slog.Logger

	// shared is until when a change that all agents hear of at once keeps this one from writing its status, in
	// nanoseconds of Unix time.
	shared atomic.Int64

	mu     sync.Mutex
	sent   *v1alpha1.FabricNodeStatus
	next   time.Time // when the status may be written again
	failed int       // how often writing it has failed since it was last written
}

// WriteEvery is how often a status is written at most. While that fails, the time doubles up to writeSeldom, with a
// random part: an API server that can't keep up gets time, and not all agents at once.
const (
	WriteEvery  = 10 * time.Second
	writeSeldom = 2 * time.Minute
)

// NewLink connects a node's agent.
func NewLink(config *rest.Config, node string, log *slog.Logger) (*Link, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.UserAgent = "fabric-agent"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	l := &Link{node: node, client: client, changed: make(chan struct{}, 1), log: log}
	l.fabrics = l.watch(v1alpha1.Fabrics.Resource, fields.Everything(), &v1alpha1.Fabric{})
	l.own = l.watch(v1alpha1.FabricNodes.Resource, fields.OneTermEqualSelector("metadata.name", node),
		&v1alpha1.FabricNode{})
	return l, nil
}

// watch adds a kind of object to what the agent is told of.
func (l *Link) watch(resource string, selector fields.Selector, kind runtime.Object) cache.Store {
	poke := func() {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(l.client, resource, metav1.NamespaceAll, selector),
		ObjectType:    kind,
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(is any, first bool) {
				if !first {
					l.heard(is)
				}
				poke()
			},
			DeleteFunc: func(was any) { l.heard(was); poke() },
			UpdateFunc: func(old, is any) {
				if concerns(old, is) {
					l.heard(is)
					poke()
				}
			},
		},
		Transform: func(o any) (any, error) {
			if m, ok := o.(metav1.Object); ok {
				m.SetManagedFields(nil)
			}
			return o, nil
		},
	})
	l.synced = append(l.synced, controller.HasSynced)
	l.run = append(l.run, func(ctx context.Context) { controller.RunWithContext(ctx) })
	return store
}

// writesPerSecond is how many statuses all nodes of a Fabric together write at most because it has changed. More at
// once than an API server takes keeps it from the rest, and the controller loses its Lease: one with two CPUs took 50.
const writesPerSecond = 50

// heard spreads what all agents write because of one change.
func (l *Link) heard(of any) {
	if f, ok := of.(*v1alpha1.Fabric); ok {
		over := max(time.Duration(f.Status.Nodes)*time.Second/writesPerSecond, time.Nanosecond)
		l.shared.Store(time.Now().Add(rand.N(over)).UnixNano()) // it need not be unpredictable
	}
}

// due reports whether the status may be written.
func (l *Link) due(now time.Time) bool {
	return !now.Before(l.next) && now.UnixNano() >= l.shared.Load()
}

// concerns reports whether a change is one for agents. Of a Fabric they look at what is in force: what its nodes say of
// it, and so what one agent makes the controller write, wakes no other.
func concerns(old, is any) bool {
	a, was := old.(*v1alpha1.Fabric)
	b, now := is.(*v1alpha1.Fabric)
	return !was || !now || !equality.Semantic.DeepEqual(a.Status.InForce, b.Status.InForce)
}

// Run keeps the link until ctx ends. Without a link there is nothing to do.
func (l *Link) Run(ctx context.Context) {
	if l == nil {
		return
	}
	var wg sync.WaitGroup
	for _, run := range l.run {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
}

// Changed says when a Fabric or the FabricNode is another.
func (l *Link) Changed() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.changed
}

// Synced reports whether the API server has said what there is.
func (l *Link) Synced() bool {
	for _, s := range l.synced {
		if !s() {
			return false
		}
	}
	return true
}

// Fabrics are all Fabrics. They are not to be changed.
func (l *Link) Fabrics() (out []*v1alpha1.Fabric) {
	for _, o := range l.fabrics.List() {
		if f, ok := o.(*v1alpha1.Fabric); ok {
			out = append(out, f)
		}
	}
	return out
}

// Own is the node's FabricNode, which callers must not change; nil if it does not exist.
func (l *Link) Own() *v1alpha1.FabricNode {
	o, ok, err := l.own.GetByKey(l.node)
	if n, is := o.(*v1alpha1.FabricNode); ok && err == nil && is {
		return n
	}
	return nil
}

// Report writes the status of the node's FabricNode if it is not what was last written, and not too soon after that. It
// creates a missing FabricNode, at first without the inventory. It returns whether the API server has the whole status.
func (l *Link) Report(ctx context.Context, status *v1alpha1.FabricNodeStatus) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Synced() {
		return false, nil
	}
	own := l.Own()
	if own != nil && l.sent != nil && equality.Semantic.DeepEqual(l.sent, status) {
		return true, nil
	}
	if !l.due(time.Now()) {
		return false, nil
	}
	l.next = time.Now().Add(cmp.Or(l.Every, WriteEvery))
	whole := status
	if own == nil {
		// Most of a status is the inventory, and the rest changes when the node has its ranges: one write of it less.
		status = status.DeepCopy()
		status.Inventory = nil
	}
	if err := l.write(ctx, own, status); err != nil {
		l.next = time.Now().Add(retryAfter(l.failed))
		l.failed++
		return false, err
	}
	l.sent, l.failed = status.DeepCopy(), 0
	return whole == status || whole.Inventory == nil, nil
}

// retryAfter is how long to wait after so many failures and another one.
func retryAfter(failed int) time.Duration {
	d := min(WriteEvery<<min(failed, 10), writeSeldom)
	return d + rand.N(d/2) // it need not be unpredictable
}

// write writes the status. client-go itself would try again each second what the API server refuses because there is
// too much (429), from all agents.
func (l *Link) write(ctx context.Context, own *v1alpha1.FabricNode, status *v1alpha1.FabricNodeStatus) error {
	old := v1alpha1.FabricNodeStatus{}
	if own != nil {
		old = own.Status
	} else if err := l.create(ctx); err != nil {
		return err
	}
	patch, err := mergePatch(&old, status)
	if err != nil {
		return err
	}
	if patch != nil {
		err = l.client.Patch(types.MergePatchType).Resource(v1alpha1.FabricNodes.Resource).Name(l.node).
			SubResource("status").Body(patch).MaxRetries(0).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("write the status of FabricNode %s: %w", l.node, err)
	}
	return nil
}

func (l *Link) create(ctx context.Context) error {
	n := &v1alpha1.FabricNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "FabricNode"},
		ObjectMeta: metav1.ObjectMeta{Name: l.node},
	}
	err := l.client.Post().Resource(v1alpha1.FabricNodes.Resource).Body(n).MaxRetries(0).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make FabricNode %s: %w", l.node, err)
	}
	return nil
}

// otherNode is no node's name.
const otherNode = "other-node.fabric.dev"

// MayWriteOthers asks whether this agent may make the FabricNode of another node, which is not made. An error is no
// answer.
func (l *Link) MayWriteOthers(ctx context.Context) (bool, error) {
	n := &v1alpha1.FabricNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "FabricNode"},
		ObjectMeta: metav1.ObjectMeta{Name: otherNode},
	}
	err := l.client.Post().Resource(v1alpha1.FabricNodes.Resource).Param("dryRun", metav1.DryRunAll).Body(n).Do(ctx).
		Error()
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // by RBAC, by the policy
		return false, nil
	}
	return false, fmt.Errorf("ask whether FabricNode %s could be made: %w", otherNode, err)
}

// mergePatch is what turns one status into the other (RFC 7386); nil: nothing.
func mergePatch(old, status *v1alpha1.FabricNodeStatus) ([]byte, error) {
	wrap := func(s *v1alpha1.FabricNodeStatus) ([]byte, error) {
		return json.Marshal(map[string]any{"status": s})
	}
	a, err := wrap(old)
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	b, err := wrap(status)
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(a, b)
	if err != nil {
		return nil, fmt.Errorf("compare a status: %w", err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	return patch, nil
}
