package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/fabric-cni/fabric-cni/internal/journal"
	nodes "github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

// before replays the requests of the agents of commit 3acbb3f, which had no controller: each with the same verbs,
// objects, retries, rate limits and times as internal/agent there.
type before struct {
	*options
	n   int
	out *report
}

// again is after how long an agent asked again for what it had (reapply and slowEvery there).
const again = 5 * time.Minute

// contention is what the agents did about the races for a table of ranges.
var contention = wait.Backoff{Steps: 12, Duration: 10 * time.Millisecond, Factor: 1.7, Jitter: 1, Cap: 3 * time.Second}

func (b *before) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := newRig(ctx, b.n)
	if err != nil {
		return err
	}
	defer r.stop() //nolint:errcheck // a directory in /tmp
	from, err := r.meter.read(ctx)
	if err != nil {
		return err
	}
	inventory, err := oldInventory()
	if err != nil {
		return err
	}
	began := time.Now()
	var all []*oldAgent
	tick := time.NewTicker(time.Second / time.Duration(b.rate))
	defer tick.Stop()
	for i := range b.n {
		a, err := newOldAgent(r, name(i), inventory)
		if err != nil {
			return err
		}
		all = append(all, a)
		go a.run(ctx)
		<-tick.C
	}
	ranged := func() (out []time.Duration) {
		for _, a := range all {
			if d := a.ranged.Load(); d > 0 {
				out = append(out, time.Duration(d))
			}
		}
		slices.Sort(out)
		return out
	}
	_, err = until(ctx, "all nodes have their ranges", 20*time.Minute, func() bool {
		b.progress("before: %d of %d nodes have their ranges", len(ranged()), b.n)
		return len(ranged()) == b.n
	})
	if err != nil {
		return err
	}
	took, waits := time.Since(began), ranged()
	p, err := r.meter.since(ctx, "bring-up", b.n, from)
	if err != nil {
		return err
	}
	b.out.add(p, fmt.Sprintf("all nodes had their ranges after %.0f s; a node waited %.1f s (median), %.1f s (longest)",
		took.Seconds(), waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds()), "")
	if from, err = r.meter.read(ctx); err != nil {
		return err
	}
	b.progress("before: %d nodes are at rest for %s", b.n, again)
	pause(ctx, again)
	if p, err = r.meter.since(ctx, "at rest", b.n, from); err != nil {
		return err
	}
	b.out.add(p, "one period of five minutes", "")
	return nil
}

// oldAgent is what an agent did with the API server.
type oldAgent struct {
	name      string
	inventory string
	core      typedcorev1.CoreV1Interface
	dynamic   dynamic.Interface
	began     time.Time
	ranged    atomic.Int64

	verified  [nFabrics]time.Time // ranges
	published [nFabrics]time.Time // definitions
	addresses time.Time
	slow      time.Time
	told      time.Time // the inventory
}

func newOldAgent(r *rig, name, inventory string) (*oldAgent, error) {
	c := r.config()
	ownConnection(c)
	core, err := typedcorev1.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfig(c)
	return &oldAgent{name: name, inventory: inventory, core: core, dynamic: d}, err
}

func oldInventory() (string, error) {
	n, err := nodes.Open(machines.H20().FS, journal.Store{})
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"agent": "v0.3.0", "node": n})
	return string(b), err
}

func (a *oldAgent) run(ctx context.Context) {
	a.began = time.Now()
	a.capacity(ctx) // new settings are judged by the Nodes
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.look(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// due reports whether it is time, and notes if it was done.
func due(last *time.Time, f func() error) {
	if time.Since(*last) >= again && f() == nil {
		*last = time.Now()
	}
}

func (a *oldAgent) look(ctx context.Context) {
	due(&a.addresses, func() error {
		_, err := a.core.Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + a.name})
		return err
	})
	for i := range nFabrics {
		due(&a.verified[i], func() error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			return a.allocate(ctx, i)
		})
	}
	if a.ranged.Load() == 0 && !slices.ContainsFunc(a.verified[:], time.Time.IsZero) {
		a.ranged.Store(int64(time.Since(a.began)))
	}
	for i := range nFabrics {
		due(&a.published[i], func() error { return a.apply(ctx, definitions, fabricName(i), definition(i)) })
	}
	due(&a.slow, func() error { a.capacity(ctx); return nil })
	due(&a.told, func() error {
		return a.apply(ctx, configMaps, "fabric-inventory-"+a.name, map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "fabric-inventory-" + a.name,
				"namespace": "default", "labels": map[string]any{"fabric.dev/inventory": "node"}},
			"data": map[string]any{"inventory.json": a.inventory}})
	})
}

// capacity lists all Nodes, from the API server's cache.
func (a *oldAgent) capacity(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, _ = a.core.Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
}

// allocate takes a range of the table of a fabric, or finds its own there.
func (a *oldAgent) allocate(ctx context.Context, fabric int) error {
	name := "fabric-ranges-" + fabricName(fabric)
	raced := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(contention, raced, func() error {
		m, err := a.core.ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			m, err = a.core.ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{FieldManager: "fabric-agent"})
		}
		if err != nil || m.Data[a.name] != "" {
			return err
		}
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		if m.Data[a.name], err = free(m.Data, fabric); err != nil {
			return err
		}
		_, err = a.core.ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{FieldManager: "fabric-agent"})
		return err
	})
}

// free is the first range that nobody has.
func free(table map[string]string, fabric int) (string, error) {
	taken := slices.Collect(maps.Values(table))
	slices.Sort(taken)
	first := netip.MustParseAddr(fmt.Sprintf("10.%d.0.0", 8*fabric)).As4()
	for i := range 1 << 13 {
		text := fmt.Sprintf("%d.%d.%d.%d/26", first[0], int(first[1])+i>>10, i>>2&255, i&3<<6)
		if _, found := slices.BinarySearch(taken, text); !found {
			return text, nil
		}
	}
	return "", errors.New("every range has an owner")
}

var (
	definitions = schema.GroupVersionResource{
		Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions",
	}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func definition(i int) map[string]any {
	config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "fabric", "mode": "exclusive", "mtu": 4092, `+
		`"ipam": {"type": "host-local"}}`, fabricName(i))
	return map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"name": fabricName(i), "namespace": "default",
			"labels":      map[string]any{"app.kubernetes.io/managed-by": "fabric-agent"},
			"annotations": map[string]any{"k8s.v1.cni.cncf.io/resourceName": "fabric.dev/" + fabricName(i)}},
		"spec": map[string]any{"config": config}}
}

// apply is a server-side apply.
func (a *oldAgent) apply(ctx context.Context, r schema.GroupVersionResource, name string, o map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	force := true
	_, err = a.dynamic.Resource(r).Namespace("default").Patch(ctx, name, types.ApplyPatchType, b,
		metav1.PatchOptions{FieldManager: "fabric-agent", Force: &force})
	return err
}
