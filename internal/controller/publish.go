package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

func labelSet(ns *corev1.Namespace) labels.Set { return ns.Labels }

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

// publish makes the definitions of a fabric those of its namespaces. A definition that somebody else has made is left
// as it is.
func (c *Controller) publish(ctx context.Context, j *judged, w *world) (*published, error) {
	p := &published{}
	if j.force == nil {
		p.reason, p.err = "Refused", fmt.Errorf("there is no spec in force")
		return p, nil
	}
	namespaces, err := wanted(j.force, w.namespaces)
	if err != nil {
		p.reason, p.err = "Refused", err
		return p, nil //nolint:nilerr // the error is a condition of this Fabric, not of the round
	}
	if !c.defined.multus {
		p.reason = "MultusMissing"
		p.err = errors.New("the cluster has no NetworkAttachmentDefinitions: install Multus; the network is " +
			"published when they are there")
		return p, nil
	}
	there := map[string]*unstructured.Unstructured{}
	for i := range c.defined.list {
		if u := &c.defined.list[i]; u.GetName() == j.object.Name {
			there[u.GetNamespace()] = u
		}
	}
	var foreign []string
	for _, ns := range namespaces {
		ours, err := c.define(ctx, j, ns, there[ns])
		if err != nil {
			return nil, err
		}
		if ours {
			p.namespaces = append(p.namespaces, ns)
		} else {
			foreign = append(foreign, ns)
		}
	}
	for ns, u := range there {
		if slices.Contains(namespaces, ns) || !owned(u, j.object) {
			continue
		}
		if err := c.withdraw(ctx, u); err != nil {
			return nil, err
		}
	}
	if len(foreign) > 0 {
		p.reason = "NetworkConflict"
		p.err = fmt.Errorf(
			"somebody else's NetworkAttachmentDefinition %s is in %s, and is left as it is: remove or rename it",
			j.object.Name, strings.Join(foreign, ", "))
	} else if u := w.classes[j.object.Name]; u.err != nil {
		p.reason, p.err = u.reason, u.err
	}
	return p, nil
}

// owned reports whether a definition is of this Fabric.
func owned(u *unstructured.Unstructured, o *v1alpha1.Fabric) bool {
	return slices.ContainsFunc(u.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == o.UID })
}

// owner is the Fabric as the owner of what the controller makes for it.
func (j *judged) owner() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fabric", Name: j.object.Name, UID: j.object.UID,
	}
}

// define makes one definition as it should be, and returns whether it is.
func (c *Controller) define(
	ctx context.Context, j *judged, namespace string, is *unstructured.Unstructured,
) (ours bool, err error) {
	should, err := j.force.Definition(namespace, j.owner())
	if err != nil {
		return false, err
	}
	switch {
	case is == nil:
		if !j.object.DeletionTimestamp.IsZero() {
			return true, nil
		}
		c.defined.key = ""
		if err = c.Client.Create(ctx, should); err == nil {
			c.Log.Info("published NetworkAttachmentDefinition", "namespace", namespace, "name", should.GetName())
		}
	case !owned(is, j.object):
		return false, nil
	case same(is, should):
		return true, nil
	default:
		c.defined.key = ""
		should.SetResourceVersion(is.GetResourceVersion())
		if err = c.Client.Update(ctx, should); err == nil {
			c.Log.Info("changed NetworkAttachmentDefinition", "namespace", namespace, "name", should.GetName())
		}
	}
	if err != nil {
		return false, fmt.Errorf("publish NetworkAttachmentDefinition %s/%s: %w", namespace, should.GetName(), err)
	}
	return true, nil
}

// same compares what the controller decides of a definition.
func same(is, should *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(is.Object["spec"], should.Object["spec"]) &&
		is.GetAnnotations()[fabrics.ResourceAnnotation] == should.GetAnnotations()[fabrics.ResourceAnnotation] &&
		is.GetLabels()[fabrics.ManagedBy] == fabrics.Manager
}

func (c *Controller) withdraw(ctx context.Context, u *unstructured.Unstructured) error {
	c.defined.key = ""
	uid := u.GetUID()
	err := c.Client.Delete(ctx, u, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("withdraw NetworkAttachmentDefinition %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	c.Log.Info("withdrew NetworkAttachmentDefinition", "namespace", u.GetNamespace(), "name", u.GetName())
	return nil
}
