// Package controller is the part of fabric-agent that there is once in a cluster: it gives nodes their ranges,
// publishes the networks of the fabrics, and sums up what the nodes say. It reads what is there, decides, and writes
// what differs: a round that finds everything as it should be writes nothing, and one that was broken off is begun again by
// the next, in this process or in another one.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
)

// Controller works in rounds.
type Controller struct {
	Client client.Client // reads from a cache
	Ranges *Ranges
	Events record.EventRecorder
	Now    func() time.Time
	Log    *slog.Logger

	counted map[string]time.Time // Fabric -> when its counts were last written
}

// world is what a round reads.
type world struct {
	fabrics    []v1alpha1.Fabric
	nodes      []v1alpha1.FabricNode
	present    map[string]bool // the cluster's Nodes
	namespaces []corev1.Namespace

	definitions []unstructured.Unstructured
	multus      bool // the cluster has such objects
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
	w := &world{fabrics: f.Items, nodes: n.Items, namespaces: ns.Items, present: map[string]bool{}}
	for i := range nodes.Items {
		w.present[nodes.Items[i].Name] = true
	}
	var err error
	w.definitions, w.multus, err = c.definitions(ctx)
	return w, err
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
	all := judge(w.fabrics, needs)
	for i := range all {
		if err := c.enforce(ctx, &all[i]); err != nil {
			return 0, err
		}
	}
	exhausted, err := c.Ranges.Round(ctx, inForce(all), w.present)
	if err != nil {
		return 0, err
	}
	every := max(countsEvery, time.Duration(len(w.nodes)/nodesPerCount)*time.Second)
	for i := range all {
		j := &all[i]
		s := found[j.object.Name]
		if s == nil {
			s = &sum{}
		}
		published, err := c.publish(ctx, j, w)
		if err == nil {
			err = c.retire(ctx, j, s)
		}
		if err == nil {
			err = c.report(ctx, j, s, w, published, exhausted[j.object.Name], every)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	return every, nil
}

// enforce writes what is in force from now on, before anything follows from it.
func (c *Controller) enforce(ctx context.Context, j *judged) error {
	if !j.accept {
		return nil
	}
	old := j.object.DeepCopy()
	j.object.Status.InForce = &v1alpha1.FabricInForce{Generation: old.Generation, Spec: old.Spec}
	j.object.Status.ObservedGeneration = old.Generation
	c.condition(j.object, v1alpha1.FabricAccepted, nil, "Accepted", "this generation is in force")
	c.Log.Info("a spec is in force", "fabric", old.Name, "generation", old.Generation)
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	err := c.Client.Status().Patch(ctx, j.object, patch)
	if err != nil {
		return fmt.Errorf("write what is in force of Fabric %s: %w", old.Name, err)
	}
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

// condition sets a condition: False with the reason if there is a failure, and otherwise True.
func (c *Controller) condition(o *v1alpha1.Fabric, kind string, failure error, reason, message string) {
	cond := metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: o.Generation,
	}
	if failure != nil {
		cond.Status, cond.Message = metav1.ConditionFalse, short(failure.Error())
	}
	before := apimeta.FindStatusCondition(o.Status.Conditions, kind)
	same := before != nil && before.Status == cond.Status && before.Message == cond.Message
	apimeta.SetStatusCondition(&o.Status.Conditions, cond)
	if failure != nil && !same && c.Events != nil {
		c.Events.Event(o, corev1.EventTypeWarning, reason, cond.Message)
	}
}

// short bounds what others have had a hand in.
func short(s string) string {
	const most = 1024
	if len(s) > most {
		s = s[:most-3] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// report writes the status, if a condition has changed, or the counts have and it is time.
func (c *Controller) report(
	ctx context.Context, j *judged, s *sum, w *world, p *published, exhausted error, every time.Duration,
) error {
	old := j.object.DeepCopy()
	st := &j.object.Status
	st.ObservedGeneration = old.Generation
	c.conditions(j, s, p, exhausted)
	urgent := !equality.Semantic.DeepEqual(old.Status, *st)
	st.LinkLayer, st.Rate, st.Nodes, st.Devices = s.layer(), s.rate(), s.nodes, s.devices
	st.Published = p.namespaces
	st.Addresses = v1alpha1.AddressCounts{Capacity: capacity(j.force, w.nodes), Allocated: s.given}
	if n := st.Addresses.Capacity; n > 0 {
		st.Addresses.Summary = fmt.Sprintf("%d/%d", s.given, n)
	}
	if equality.Semantic.DeepEqual(old.Status, *st) || !urgent && c.Now().Sub(c.counted[old.Name]) < every {
		return nil
	}
	if err := c.Client.Status().Patch(ctx, j.object, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("write the status of Fabric %s: %w", old.Name, err)
	}
	if c.counted == nil {
		c.counted = map[string]time.Time{}
	}
	c.counted[old.Name] = c.Now()
	return nil
}

func (c *Controller) conditions(j *judged, s *sum, p *published, exhausted error) {
	o := j.object
	if j.refused != nil {
		text := j.refused
		if j.force != nil {
			text = fmt.Errorf("generation %d stays in force: %w", j.force.Generation, j.refused)
		}
		c.condition(o, v1alpha1.FabricAccepted, text, "Refused", "")
	}
	var few error
	if j.force != nil {
		few = j.force.CheckCapacity(s.need.inCluster, s.need.onNode)
	}
	if exhausted != nil {
		few = exhausted
	}
	c.condition(o, v1alpha1.FabricAddressesSufficient, few, reason(few, "RangeTooSmall", "Sufficient"), "")
	c.condition(o, v1alpha1.FabricPublished, p.err, reason(p.err, p.reason, "Published"), "")
	degraded := metav1.Condition{Type: v1alpha1.FabricDegraded, Status: metav1.ConditionFalse, Reason: "AllHealthy"}
	if s.devices.Healthy < s.devices.Total {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, "DevicesUnhealthy", s.wrong()
	}
	degraded.ObservedGeneration = o.Generation
	apimeta.SetStatusCondition(&o.Status.Conditions, degraded)
	c.ready(j, s, p, few)
}

func reason(err error, failed, well string) string {
	if err != nil {
		return failed
	}
	return well
}

// ready sums up the conditions in one.
func (c *Controller) ready(j *judged, s *sum, p *published, few error) {
	o := j.object
	var err error
	why := "Ready"
	switch {
	case !o.DeletionTimestamp.IsZero():
		why, err = "InUse", fmt.Errorf("the Fabric is deleted when these pods have ended: %s", c.users(s))
	case j.force == nil:
		why, err = "Refused", fmt.Errorf("no generation was ever accepted: %w", j.refused)
	case j.refused != nil:
		why, err = "Refused", fmt.Errorf("generation %d is in force: %w", j.force.Generation, j.refused)
	case p.err != nil:
		why, err = p.reason, p.err
	case few != nil:
		why, err = "RangeTooSmall", few
	case s.devices.Total == 0:
		why, err = "NoDevices", fmt.Errorf("no node has a device of this fabric: see `kubectl get fabricnodes`")
	case s.devices.Healthy == 0:
		why, err = "DevicesUnhealthy", fmt.Errorf("no device is healthy: %s", s.wrong())
	}
	c.condition(o, v1alpha1.FabricReady, err, why, "")
}

func (c *Controller) users(s *sum) string {
	text := strings.Join(s.users, ", ")
	if more := int(s.devices.Attached) - len(s.users); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// published is where the network of a fabric is.
type published struct {
	namespaces []string
	reason     string
	err        error
}

// wanted are the namespaces that a fabric's network belongs to, of those that there are.
func wanted(f *fabrics.Fabric, list []corev1.Namespace) (out []string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(f.Namespaces.Selector)
	if err != nil {
		return nil, fmt.Errorf("namespaces.selector: %w", err)
	}
	for i := range list {
		ns := &list[i]
		if ns.DeletionTimestamp.IsZero() &&
			(slices.Contains(f.Namespaces.Names, ns.Name) || selector.Matches(labelSet(ns))) {
			out = append(out, ns.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}
