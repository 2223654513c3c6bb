package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// droppedEvery is how often the controller asks again for the name of the resource in a DeviceClass that the API server
// has dropped: a feature gate changes when the API server is restarted, which the controller is not told.
const droppedEvery = 10 * time.Minute

var errDRANotServed = errors.New("allocation DRA: the API server does not serve DeviceClasses of resource.k8s.io/v1: " +
	"it needs Kubernetes 1.34; update the cluster, or write allocation: DevicePlugin")

// classes are the cluster's DeviceClasses, as they were a short time ago.
type classes struct {
	at      time.Time // zero: they must be read
	key     string    // which Fabrics they depend on; empty: none
	list    []unstructured.Unstructured
	served  bool // the cluster has such objects
	err     error
	dropped map[types.UID]time.Time // classes without the name of the resource, and when that was last asked for
}

// unpublished is why something of a Fabric is not published.
type unpublished struct {
	reason string
	err    error
}

// usable returns why the cluster can't have fabrics with allocation DRA.
func (k *classes) usable() error {
	if k.err == nil && !k.served {
		return errDRANotServed
	}
	return k.err
}

// lookAtClasses reads the DeviceClasses, if they should be others or were not read for a while. A cluster in which no
// Fabric has allocation DRA is asked once, for what an earlier controller may have left.
func (c *Controller) lookAtClasses(ctx context.Context, w *world) {
	key, k := classesKey(w), &c.classes
	if !k.at.IsZero() && k.key == key && (key == "" || c.Now().Sub(k.at) < missingEvery) {
		return
	}
	k.at, k.key = c.Now(), key
	if k.list, k.served, k.err = c.readClasses(ctx, k.list); k.err != nil {
		k.err = fmt.Errorf("allocation DRA: %w", k.err)
		c.Log.Warn("can't read DeviceClasses", "error", k.err)
		if key != "" {
			k.at = time.Time{}
		}
	}
}

// readClasses reads the controller's DeviceClasses; of others only the name. What has not changed since is not read
// again.
func (c *Controller) readClasses(
	ctx context.Context, before []unstructured.Unstructured,
) (out []unstructured.Unstructured, served bool, err error) {
	list, served, err := listAll(ctx, c.Ranges.Live, fabrics.Classes)
	if err != nil {
		return before, served, err
	}
	for i := range list {
		m := &list[i]
		u := unstructured.Unstructured{}
		u.SetName(m.Name)
		same := func(was unstructured.Unstructured) bool {
			return was.GetUID() == m.UID && was.GetResourceVersion() == m.ResourceVersion
		}
		if k := slices.IndexFunc(before, same); k >= 0 {
			u = before[k]
		} else if managed(m) {
			is, err := c.read(ctx, fabrics.Classes, "", m.Name)
			if err != nil {
				return before, served, err
			}
			if is == nil {
				continue
			}
			u = *is
		}
		out = append(out, u)
	}
	return out, served, nil
}

// classesKey is which Fabrics the DeviceClasses follow from.
func classesKey(w *world) string {
	var b strings.Builder
	for i := range w.fabrics {
		f := &w.fabrics[i]
		force := f.Status.InForce
		if f.Spec.Allocation == v1alpha1.DRA || force != nil && force.Spec.Allocation == v1alpha1.DRA {
			fmt.Fprintln(&b, f.Name, f.UID, f.Generation, f.DeletionTimestamp.IsZero())
		}
	}
	return b.String()
}

// classify makes the DeviceClasses those of the fabrics in force with allocation DRA, and returns by fabric what is
// wrong. A foreign class is left as it is. The class of a Fabric that is being deleted goes at once: pods keep what
// they have, and no further one is given a device of it.
func (c *Controller) classify(ctx context.Context, all []judged) (map[string]unpublished, error) {
	wrong, should := map[string]unpublished{}, map[string]*unstructured.Unstructured{}
	var owners []metav1.OwnerReference
	for i := range all {
		j := &all[i]
		if j.force == nil || j.force.Allocation != v1alpha1.DRA || !j.object.DeletionTimestamp.IsZero() {
			continue
		}
		if err := c.classes.usable(); err != nil {
			reason := refusal(err)
			if reason != draNotServed {
				reason = classFailed
			}
			wrong[j.object.Name] = unpublished{reason, err}
			continue
		}
		owners = append(owners, j.owner())
		should[j.force.DeviceClass()] = j.force.Class(j.owner())
	}
	if len(owners) > 0 {
		slices.SortFunc(owners, func(a, b metav1.OwnerReference) int { return strings.Compare(a.Name, b.Name) })
		should[fabrics.Driver] = fabrics.AllClass(owners...)
	}
	is := map[string]*unstructured.Unstructured{}
	for i := range c.classes.list {
		is[c.classes.list[i].GetName()] = &c.classes.list[i]
	}
	failed := map[string]unpublished{} // by class
	var errs []error
	for name, class := range should {
		switch ours, err := c.class(ctx, class, is[name]); {
		case err != nil:
			failed[name] = unpublished{classFailed, err}
			errs = append(errs, err)
		case !ours:
			failed[name] = unpublished{classConflict, fmt.Errorf(
				"another owner's DeviceClass %s is left as it is: remove or rename it", name)}
		}
	}
	for _, o := range owners {
		for _, name := range []string{fabrics.Driver, o.Name + "." + fabrics.Driver} {
			if u, is := failed[name]; is {
				wrong[o.Name] = u
			}
		}
	}
	for name, class := range is {
		if o := owner(class); should[name] == nil && o != nil && managed(class) && !c.Ranges.Unread[o.Name] {
			errs = append(errs, c.withdrawClass(ctx, class))
		}
	}
	return wrong, errors.Join(errs...)
}

func managed(u metav1.Object) bool {
	return u.GetLabels()[fabrics.ManagedBy] == fabrics.Manager
}

// class makes one DeviceClass as it should be, and returns whether it is ours.
func (c *Controller) class(ctx context.Context, should, is *unstructured.Unstructured) (ours bool, err error) {
	did := "published"
	switch {
	case is == nil:
		err = c.Client.Create(ctx, should)
	case owner(is) == nil || !managed(is):
		return false, nil
	case c.sameClass(is, should):
		return true, nil
	default:
		did = "changed"
		should.SetResourceVersion(is.GetResourceVersion())
		err = c.Client.Update(ctx, should)
	}
	c.classes.at = time.Time{}
	if err != nil {
		return false, fmt.Errorf("publish DeviceClass %s: %w", should.GetName(), err)
	}
	if is != nil && is.GetResourceVersion() == should.GetResourceVersion() { // the API server has changed nothing
		did = ""
	}
	if c.classes.dropped == nil {
		c.classes.dropped = map[types.UID]time.Time{}
	}
	delete(c.classes.dropped, should.GetUID())
	if should.GetName() != fabrics.Driver && resourceOf(should) == "" {
		c.classes.dropped[should.GetUID()] = c.Now()
	}
	if did != "" {
		c.Log.Info(did+" DeviceClass", "name", should.GetName(), "resource", resourceOf(should))
	}
	return true, nil
}

// resourceOf is the resource by which pods get devices of a class as well. An API server without the feature gate
// DRAExtendedResource drops it.
func resourceOf(class *unstructured.Unstructured) string {
	s, _, _ := unstructured.NestedString(class.Object, "spec", fabrics.ExtendedResource)
	return s
}

// sameClass compares what the controller decides of a class.
func (c *Controller) sameClass(is, should *unstructured.Unstructured) bool {
	spec := func(u *unstructured.Unstructured) map[string]any {
		s, _, _ := unstructured.NestedMap(u.Object, "spec") // a copy
		delete(s, fabrics.ExtendedResource)
		return s
	}
	if !equality.Semantic.DeepEqual(spec(is), spec(should)) ||
		!equality.Semantic.DeepEqual(is.GetOwnerReferences(), should.GetOwnerReferences()) {
		return false
	}
	asked, dropped := c.classes.dropped[is.GetUID()]
	return resourceOf(is) == resourceOf(should) ||
		resourceOf(is) == "" && dropped && c.Now().Sub(asked) < droppedEvery
}

func (c *Controller) withdrawClass(ctx context.Context, u *unstructured.Unstructured) error {
	c.classes.at = time.Time{}
	uid := u.GetUID()
	if err := c.Client.Delete(ctx, u, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("withdraw DeviceClass %s: %w", u.GetName(), err)
	}
	delete(c.classes.dropped, uid)
	c.Log.Info("withdrew DeviceClass", "name", u.GetName())
	return nil
}
