package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// published is where the network of a fabric is.
type published struct {
	namespaces []string
	reason     string
	err        error
	note       string // it is published, but people should know this
	harmless   bool   // err stops no pod
}

// verdict is what is to be said of it.
func (p *published) verdict() verdict {
	switch {
	case p.err != nil:
		return verdict{reason: p.reason, err: p.err}
	case p.note != "":
		return verdict{reason: networkPutBack, note: p.note}
	}
	return verdict{reason: "Published"}
}

// wanted are the namespaces that a fabric's network belongs to, of those that there are; missing are names that none
// of them has.
func wanted(f *fabrics.Fabric, list []corev1.Namespace) (out []*corev1.Namespace, missing []string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(f.Namespaces.Selector)
	if err != nil {
		return nil, nil, fmt.Errorf("namespaces.selector: %w", err)
	}
	there := map[string]bool{}
	for i := range list {
		ns := &list[i]
		if !ns.DeletionTimestamp.IsZero() {
			continue
		}
		there[ns.Name] = true
		if slices.Contains(f.Namespaces.Names, ns.Name) || selector.Matches(labels.Set(ns.Labels)) {
			out = append(out, ns)
		}
	}
	for _, name := range f.Namespaces.Names {
		if !there[name] {
			missing = append(missing, name)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return out, missing, nil
}

// publish makes the definitions of a fabric those of its namespaces. A foreign definition is left as it is. What fails
// in one namespace keeps no other from having the network.
func (c *Controller) publish(ctx context.Context, j *judged, of *sum, w *world) *published {
	p := &published{}
	if j.force == nil {
		p.reason, p.err = refusedSpec, fmt.Errorf("there is no spec in force")
		return p
	}
	namespaces, missing, err := wanted(j.force, w.namespaces)
	switch {
	case err != nil:
		p.reason, p.err = refusedSpec, err
		return p
	case c.defined.err != nil:
		p.namespaces = j.object.Status.Published // as far as is known
		p.reason, p.err = publishFailed, c.defined.err
		return p
	case !c.defined.multus:
		c.remember(j.object.UID, nil)
		p.reason = multusMissing
		p.err = errors.New("the cluster has no NetworkAttachmentDefinitions: install Multus; the network is " +
			"published when they are there")
		if j.force.Allocation == v1alpha1.DRA {
			p.err = errors.New("the cluster has no NetworkAttachmentDefinitions: pods get the devices by their " +
				"ResourceClaims alone")
			p.harmless = true
		}
		return w.classed(p, j)
	}
	there := map[string]*metav1.PartialObjectMetadata{}
	for i := range c.defined.list {
		if u := &c.defined.list[i]; u.GetName() == j.object.Name {
			there[u.GetNamespace()] = u
		}
	}
	t, slots := &tally{}, map[string]*slot{}
	before := c.defined.slots[j.object.UID]
	for _, ns := range namespaces {
		s := slotOf(before, ns.Name)
		slots[ns.Name] = s
		t.add(ns.Name, s, c.define(ctx, j, ns, there[ns.Name], s, of.most > 1), c.Now())
		delete(there, ns.Name)
	}
	for ns, u := range there {
		if owned(u, j.object) {
			s := slotOf(before, ns)
			slots[ns] = s
			t.add(ns, s, c.retract(ctx, u, s), c.Now())
		}
	}
	c.remember(j.object.UID, slots)
	t.sum(p, j.object.Name, missing)
	return w.classed(p, j)
}

// classed adds why a fabric has no DeviceClass.
func (w *world) classed(p *published, j *judged) *published {
	if u := w.classes[j.object.Name]; u.err != nil && (p.err == nil || p.harmless) {
		p.reason, p.err, p.harmless = u.reason, u.err, false
	}
	return p
}

// owned reports whether a definition is of this Fabric.
func owned(u metav1.Object, o *v1alpha1.Fabric) bool {
	return slices.ContainsFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == o.UID })
}

// owner is the Fabric as the owner of what the controller makes for it.
func (j *judged) owner() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fabric", Name: j.object.Name, UID: j.object.UID,
	}
}

func (c *Controller) withdraw(ctx context.Context, u *metav1.PartialObjectMetadata) error {
	c.defined.key = ""
	uid := u.GetUID()
	err := c.Client.Delete(ctx, u, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("withdraw NetworkAttachmentDefinition %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	c.Log.Info("withdrew NetworkAttachmentDefinition", "namespace", u.GetNamespace(), "name", u.GetName())
	return nil
}
