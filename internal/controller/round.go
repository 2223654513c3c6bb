// Package controller is the part of fabric-agent that there is once in a cluster: it gives nodes their ranges,
// publishes the networks of the fabrics, and sums up what the nodes say. It reads what is there, decides, and writes
// what differs: a round that finds everything as it should be writes nothing, and one that was broken off is begun
// again by the next, in this process or in another one.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Finalizer keeps a Fabric as long as pods use it. An unused one does not have it, so that nothing waits for a
// controller that is not there any more.
const Finalizer = "fabric.dev/in-use"

// countsEvery is how often counts alone change a status: each agent is told of each change. It grows with the cluster.
const (
	countsEvery   = 10 * time.Second
	nodesPerCount = 50 // nodes for another second
	// urgentEvery is how often a condition changes a status at most.
	urgentEvery = 10 * time.Second
)

// unheardEvery is when the next round is due while fresh ranges wait for nodes.
const unheardEvery = 2 * time.Second

// Controller works in rounds.
type Controller struct { //nolint:methods // the steps of a round
	Client client.Client // reads from a cache
	Ranges *Ranges
	Events record.EventRecorder
	Marks  Marks
	Labels bool // of Nodes
	Now    func() time.Time
	Log    *slog.Logger

	counted map[string]time.Time // Fabric -> when its status was last written
	news    []metav1.Condition   // of the Fabric that is looked at, not written yet
	defined definitions
	classes classes
	pools   pools
	leases  leases // of whereabouts
	shown   shown
	known   nodeAddresses
	uses    netUses
}

// world is what a round reads.
type world struct {
	fabrics    []v1alpha1.Fabric
	nodes      []v1alpha1.FabricNode
	present    map[string]bool // the cluster's Nodes
	uids       map[string]types.UID
	labels     map[string]labels.Set // of Nodes
	born       map[string]time.Time
	holdings   []holding // what nodes have and hold, once a change of addresses is judged
	namespaces []corev1.Namespace
	force      []fabrics.Fabric
	usage      map[string]Usage       // by fabric
	every      time.Duration          // between two writes of counts alone
	classes    map[string]unpublished // by fabric: what is wrong with its DeviceClass
}

func (c *Controller) look(ctx context.Context) (*world, error) {
	f, n, ns := &v1alpha1.FabricList{}, &v1alpha1.FabricNodeList{}, &corev1.NamespaceList{}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for _, list := range []client.ObjectList{f, n, ns, nodes} {
		if err := c.Client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	w := &world{fabrics: f.Items, nodes: n.Items, namespaces: ns.Items, present: map[string]bool{},
		uids: map[string]types.UID{}, labels: map[string]labels.Set{}, born: map[string]time.Time{}}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		w.present[node.Name], w.uids[node.Name], w.labels[node.Name] = true, node.UID, node.Labels
		w.born[node.Name] = node.CreationTimestamp.Time
	}
	w.every = max(countsEvery, time.Duration(len(w.nodes)/nodesPerCount)*time.Second)
	return w, nil
}

// Round brings everything in line once. It returns when the next round is due even if nothing happens.
func (c *Controller) Round(ctx context.Context) (time.Duration, error) {
	w, err := c.look(ctx)
	if err != nil {
		return 0, err
	}
	shares := map[string]int{}
	for i := range w.fabrics {
		if s := w.fabrics[i].Spec.Shares; s != nil {
			shares[w.fabrics[i].Name] = int(*s)
		}
	}
	found := sums(w.nodes, shares)
	needs := map[string]need{}
	for name, s := range found {
		needs[name] = s.need
	}
	c.lookAtClasses(ctx, w)
	var errs []error
	all := judge(w.fabrics, needs, c.classes.usable(), func(candidate, force *fabrics.Fabric) error {
		return c.checkLive(ctx, w, candidate, force)
	})
	for i := range all {
		errs = append(errs, unlessRaced(c.enforce(ctx, &all[i])))
	}
	w.force, c.Ranges.Unread, c.Ranges.Born = inForce(all), unread(all), w.born
	c.Ranges.Labels = w.labels
	if w.usage, err = c.Ranges.Round(ctx, w.force, w.present); err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	for i := range w.nodes { // the cache does not have what was just given
		w.nodes[i].Spec = c.Ranges.ledger.entry(w.nodes[i].Name).spec
	}
	c.lookAtDefinitions(ctx, w)
	c.lookAtPools(ctx, w.force)
	w.classes, err = c.classify(ctx, all)
	errs = append(errs, err)
	for i := range all {
		if all[i].unwritten {
			continue
		}
		s := found[all[i].object.Name]
		if s == nil {
			s = &sum{}
		}
		errs = append(errs, unlessRaced(c.settle(ctx, &all[i], s, w))) // the others have nothing to do with it
	}
	errs = append(errs, c.sweep(ctx, w), c.mark(ctx, w), c.label(ctx, w), c.noteAddresses(ctx, w))
	c.shown.set(all, w.nodes)
	next := min(w.every, missingEvery)
	for _, u := range w.usage {
		if len(u.Unheard) > 0 {
			next = min(next, unheardEvery)
		}
	}
	return next, errors.Join(errs...)
}

// unlessRaced is an error, unless another client has changed the object meanwhile: the next round has it as it is then.
func unlessRaced(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// settle does what follows for one Fabric.
func (c *Controller) settle(ctx context.Context, j *judged, s *sum, w *world) error {
	published := c.publish(ctx, j, s, w)
	if err := c.retire(ctx, j, s); err != nil {
		return err
	}
	return c.report(ctx, j, s, w, published)
}

// enforce writes what is in force from now on, before anything follows from it. If that fails, what was in force before
// stays so, and the other Fabrics have nothing to do with it.
func (c *Controller) enforce(ctx context.Context, j *judged) error {
	if !j.accept {
		return nil
	}
	old := j.object.DeepCopy()
	j.object.Status.InForce = &v1alpha1.FabricInForce{Generation: old.Generation, Spec: old.Spec}
	j.object.Status.ObservedGeneration = old.Generation
	c.news = nil
	c.condition(j.object, v1alpha1.FabricAccepted, verdict{reason: "Accepted"})
	c.Log.Info("a spec is in force", "fabric", old.Name, "generation", old.Generation)
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	err := c.Client.Status().Patch(ctx, j.object, patch)
	if err != nil {
		j.object, j.force, j.accept, j.unwritten = old, j.before, false, true
		return fmt.Errorf("write what is in force of Fabric %s: %w", old.Name, err)
	}
	c.tell(j.object)
	return nil
}

// retire sets the finalizer while pods use the fabric, and takes it away afterwards.
func (c *Controller) retire(ctx context.Context, j *judged, s *sum) error {
	old := j.object.DeepCopy()
	used := s.devices.Attached > 0
	switch {
	case used && j.object.DeletionTimestamp.IsZero():
		controllerutil.AddFinalizer(j.object, Finalizer)
	case !used:
		controllerutil.RemoveFinalizer(j.object, Finalizer)
	}
	if slices.Equal(old.Finalizers, j.object.Finalizers) {
		return nil
	}
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, j.object, patch); err != nil {
		return fmt.Errorf("write the finalizers of Fabric %s: %w", old.Name, err)
	}
	return nil
}
