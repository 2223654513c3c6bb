package controller

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// ReleaseOptions are the options of the command line of release.
type ReleaseOptions struct {
	Kubeconfig string
	Namespace  string
	Deployment string
	DaemonSet  string
	Binding    string // ClusterRoleBinding that is deleted at the end
	Nodes      bool   // they are left as they were before the installation
	Force      bool
	Timeout    time.Duration
}

// Flags adds the options to a set of flags.
func (o *ReleaseOptions) Flags(f *flag.FlagSet) {
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
	f.StringVar(&o.Namespace, "namespace", "fabric-system", "`namespace` of the controller")
	f.StringVar(&o.Deployment, "deployment", "fabric-controller", "`name` of the controller's Deployment")
	f.StringVar(&o.DaemonSet, "daemonset", "fabric-agent", "`name` of the agents' DaemonSet")
	f.StringVar(&o.Binding, "binding", "",
		"`name` of the ClusterRoleBinding by which this may do so: it is deleted at the end; empty: it stays")
	f.BoolVar(&o.Nodes, "nodes", true, "uninstall everything from all nodes; refused while pods have devices. false: "+
		"the plugin stays there, and pods keep what they have")
	f.BoolVar(&o.Force, "force", false, "uninstall although pods have devices: nothing returns these to their nodes")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Minute,
		"how long to wait for nodes while not one more is done, and then for the controller's pods to end")
}

// nameLabel is the label by which the controller's pods are known where its Deployment is gone.
const nameLabel = "app.kubernetes.io/name"

// ErrRefused means that a release can't be done now, and is not to be tried again by itself.
var ErrRefused = errors.New("not released")

// Release takes fabric-cni out of a cluster, so that its manifests can be deleted afterwards, in any order. It has the
// agents uninstall everything from their nodes; it stops the controller, takes its finalizers from Fabrics, and
// deletes NetworkAttachmentDefinitions, DeviceClasses, ResourceSlices and FabricNodes, and what the controller has put
// on Nodes. While pods have devices it changes nothing and returns ErrRefused. Fabrics are their owners'. It can be run
// again, and what is gone already is no error.
func Release(ctx context.Context, o *ReleaseOptions, log *slog.Logger) error {
	rc, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	rc.QPS, rc.Burst = 100, 200 // each Node may have labels
	return ReleaseAt(ctx, rc, o, log)
}

// ReleaseAt is Release with another way to the API server.
func ReleaseAt(ctx context.Context, rc *rest.Config, o *ReleaseOptions, log *slog.Logger) error {
	scheme, err := Scheme()
	if err == nil {
		err = errors.Join(appsv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme))
	}
	if err != nil {
		return err
	}
	rc = rest.CopyConfig(rc)
	rc.QPS, rc.Burst = 100, 200
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make API client: %w", err)
	}
	r := &releaser{client: c, o: o, log: log}
	if err = r.release(ctx); err == nil || errors.Is(err, ErrRefused) {
		err = errors.Join(err, r.revoke(ctx))
	}
	return err
}

// revoke takes the rights in the whole cluster away, which outlive the Job. It can't be tried again.
func (r *releaser) revoke(ctx context.Context) error {
	if r.o.Binding == "" {
		return nil
	}
	b := &metav1.PartialObjectMetadata{}
	b.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	b.Name = r.o.Binding
	if err := r.client.Delete(ctx, b); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ClusterRoleBinding %s: %w", b.Name, err)
	}
	r.log.Info("deleted the rights of this Job", "clusterrolebinding", b.Name)
	return nil
}

func (r *releaser) release(ctx context.Context) error {
	if r.o.Nodes {
		if err := r.leaveNodes(ctx); err != nil {
			return err
		}
	}
	if err := r.stop(ctx); err != nil {
		return err
	}
	err := errors.Join(r.finalizers(ctx), r.withdraw(ctx, fabrics.Definitions), r.withdraw(ctx, fabrics.Classes),
		r.unlabel(ctx))
	if r.o.Nodes {
		err = errors.Join(err, r.forgetNodes(ctx))
	}
	return err
}

type releaser struct {
	client client.Client
	o      *ReleaseOptions
	log    *slog.Logger
	taint  string // key of the taint that the controller sets on Nodes, as its Deployment says
}

// stop scales the controller to nothing, and waits until its pods have ended.
func (r *releaser) stop(ctx context.Context) error {
	selector := labels.SelectorFromSet(labels.Set{nameLabel: "fabric-controller"})
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: r.o.Deployment, Namespace: r.o.Namespace}}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(d), d)
	switch {
	case apierrors.IsNotFound(err):
		r.log.Info("the controller has no Deployment any more", "namespace", d.Namespace, "name", d.Name)
	case err != nil:
		return fmt.Errorf("read Deployment %s/%s: %w", d.Namespace, d.Name, err)
	default:
		if selector, err = metav1.LabelSelectorAsSelector(d.Spec.Selector); err != nil {
			return fmt.Errorf("selector of Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
		r.taint = taintOf(d)
		old := d.DeepCopy()
		d.Spec.Replicas = ptr(int32(0))
		if err := r.client.Patch(ctx, d, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("scale Deployment %s/%s to 0: %w", d.Namespace, d.Name, err)
		}
		r.log.Info("stopping the controller", "namespace", d.Namespace, "name", d.Name)
	}
	if err := r.pods(ctx, selector); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName, Namespace: r.o.Namespace}}
	if err := r.client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return nil
}

// pods waits until the controller's pods have ended, and its lease is free. Some pods never end, such as those on a
// node that is lost: then the rest is done all the same.
func (r *releaser) pods(ctx context.Context, selector labels.Selector) error {
	list := &corev1.PodList{}
	held := &holder{}
	err := wait.PollUntilContextTimeout(ctx, time.Second/2, r.o.Timeout, true, func(context.Context) (bool, error) {
		err := r.client.List(ctx, list, client.InNamespace(r.o.Namespace),
			client.MatchingLabelsSelector{Selector: selector})
		if err != nil {
			return false, fmt.Errorf("list pods in %s: %w", r.o.Namespace, err)
		}
		lease := &coordinationv1.Lease{}
		err = r.client.Get(ctx, client.ObjectKey{Namespace: r.o.Namespace, Name: leaseName}, lease)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read Lease %s/%s: %w", r.o.Namespace, leaseName, err)
		}
		return len(list.Items) == 0 && (err != nil || held.free(lease, time.Now())), nil
	})
	switch {
	case err == nil:
		r.log.Info("the controller has ended")
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		r.log.Warn("the controller has not ended in time: what is released now may be undone")
		for i := range list.Items {
			r.log.Warn("a pod of the controller does not end: it may undo what is released now; delete it and run "+
				"release again",
				"namespace", r.o.Namespace, "pod", list.Items[i].Name, "node", list.Items[i].Spec.NodeName)
		}
	}
	return nil
}

// holder is what was last seen of a lease.
type holder struct {
	renewed string
	since   time.Time
}

// free reports whether the lease is free: it was given up, or not renewed for as long as it is valid, by the clock of
// this machine.
func (h *holder) free(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return true
	}
	renewed := fmt.Sprint(*lease.Spec.HolderIdentity, lease.Spec.RenewTime)
	if renewed != h.renewed {
		h.renewed, h.since = renewed, now
	}
	return now.Sub(h.since) > leaseDuration
}

// absent reports whether there is no such object, or no such kind.
func absent(err error) bool { return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// finalizers takes the finalizers from Fabrics, and says which pods use them.
func (r *releaser) finalizers(ctx context.Context) error {
	list := &v1alpha1.FabricList{}
	nodes := &v1alpha1.FabricNodeList{}
	err := errors.Join(r.client.List(ctx, list), r.client.List(ctx, nodes))
	if err != nil && !absent(err) {
		return fmt.Errorf("list Fabrics and FabricNodes: %w", err)
	}
	found := sums(nodes.Items, nil)
	var errs []error
	for i := range list.Items {
		f := &list.Items[i]
		if s := found[f.Name]; s != nil && s.devices.Attached > 0 {
			r.log.Warn("pods use a Fabric: they keep what they have, and it is taken back when they end", "fabric",
				f.Name,
				"pods", short(users(s)))
		}
		if !slices.Contains(f.Finalizers, Finalizer) {
			continue
		}
		old := f.DeepCopy()
		controllerutil.RemoveFinalizer(f, Finalizer)
		err := r.client.Patch(ctx, f, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			r.log.Info("released Fabric", "name", f.Name)
		} else if !absent(err) {
			errs = append(errs, fmt.Errorf("write the finalizers of Fabric %s: %w; run release again", f.Name, err))
		}
	}
	return errors.Join(errs...)
}

// withdraw deletes the objects of a kind that belong to Fabrics.
func (r *releaser) withdraw(ctx context.Context, kind schema.GroupVersionKind) error {
	list, _, err := listAll(ctx, r.client, kind, labelled)
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		u := &list[i]
		if owner(u) == nil {
			continue
		}
		uid := u.GetUID()
		// Not as metadata: client-go fails at the whole object that the API server answers for a DeviceClass.
		del := &unstructured.Unstructured{}
		del.SetGroupVersionKind(kind)
		del.SetNamespace(u.GetNamespace())
		del.SetName(u.GetName())
		if err := r.client.Delete(ctx, del, client.Preconditions{UID: &uid}); err == nil {
			r.log.Info("withdrew "+kind.Kind, "namespace", u.GetNamespace(), "name", u.GetName())
		} else if !absent(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", kind.Kind, client.ObjectKeyFromObject(u), err))
		}
	}
	return errors.Join(errs...)
}

// owner is the Fabric that an object belongs to; nil: none.
func owner(o metav1.Object) *metav1.OwnerReference {
	for _, r := range o.GetOwnerReferences() {
		if r.Kind == "Fabric" && strings.HasPrefix(r.APIVersion, v1alpha1.GroupVersion.Group+"/") {
			return &r
		}
	}
	return nil
}
