package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// leaveNodes has the agent of each node uninstall everything there. Nodes that are not there are left as they are.
func (r *releaser) leaveNodes(ctx context.Context) error {
	if err := r.unused(ctx); err != nil {
		return err
	}
	d, err := r.dismiss(ctx)
	if err != nil || d == nil {
		return err
	}
	return r.untilLeft(ctx, d)
}

// unused returns ErrRefused while pods have devices of nodes that are there.
func (r *releaser) unused(ctx context.Context) error {
	if r.o.Force {
		return nil
	}
	there, err := r.ready(ctx)
	if err != nil {
		return err
	}
	var used []string
	err = r.eachFabricNode(ctx, func(n *v1alpha1.FabricNode) {
		pods := podsOn(n)
		switch {
		case len(pods) == 0:
		case there[n.Name]:
			used = append(used, fmt.Sprintf("node %s: pods %s", n.Name, list(pods)))
		default:
			r.log.Warn("a node that is not there had pods with devices", "node", n.Name, "pods", short(list(pods)))
		}
	})
	if err != nil {
		return err
	}
	if len(used) > 0 {
		return fmt.Errorf("%w, and nothing has been changed: pods have devices: %s. Delete these pods first; with "+
			"--force all is uninstalled all the same, and nothing returns their devices to the nodes", ErrRefused,
			short(semicolons(used)))
	}
	return nil
}

// semicolons is list of what has commas itself.
func semicolons(all []string) string {
	slices.Sort(all)
	if more := len(all) - maxUsers; more > 0 {
		return fmt.Sprintf("%s; and %d more nodes", strings.Join(all[:maxUsers], "; "), more)
	}
	return strings.Join(all, "; ")
}

// podsOn are the pods that have devices of a node.
func podsOn(n *v1alpha1.FabricNode) (out []string) {
	for i := range n.Status.Fabrics {
		for k := range n.Status.Fabrics[i].Devices {
			for _, pod := range n.Status.Fabrics[i].Devices[k].Pods {
				if pod == "" {
					pod = "(no name)" // the runtime has not said it
				}
				out = append(out, pod)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// eachFabricNode calls f for all of them, and keeps none: each has an inventory.
func (r *releaser) eachFabricNode(ctx context.Context, f func(*v1alpha1.FabricNode)) error {
	page := &v1alpha1.FabricNodeList{}
	err := eachPage(ctx, r.client, page, pageSize, func() {
		for i := range page.Items {
			f(&page.Items[i])
		}
	})
	if err != nil && !absent(err) {
		return fmt.Errorf("list FabricNodes: %w", err)
	}
	return nil
}

// eachNode calls f for all Nodes, which are read so many at once.
func eachNode(ctx context.Context, r client.Reader, limit int64, f func(*corev1.Node)) error {
	page := &corev1.NodeList{}
	err := eachPage(ctx, r, page, limit, func() {
		for i := range page.Items {
			f(&page.Items[i])
		}
	})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	return nil
}

// ready are the Nodes whose kubelet is there.
func (r *releaser) ready(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	err := eachNode(ctx, r.client, pageSize, func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
				out[n.Name] = c.Status == corev1.ConditionTrue
			}
		}
	})
	return out, err
}

// dismiss makes the pods of the agents' DaemonSet uninstall everything from their nodes. They have the directories of
// the node, and all of them are replaced at once. Nil: there is no DaemonSet.
func (r *releaser) dismiss(ctx context.Context) (*appsv1.DaemonSet, error) {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: r.o.DaemonSet, Namespace: r.o.Namespace}}
	for {
		err := r.client.Get(ctx, client.ObjectKeyFromObject(d), d)
		if apierrors.IsNotFound(err) {
			r.log.Warn("the agents have no DaemonSet any more: what is on the nodes stays", "namespace", d.Namespace,
				"name", d.Name)
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read DaemonSet %s/%s: %w", d.Namespace, d.Name, err)
		}
		old := d.DeepCopy()
		if err := leaving(d, r.o.Force); err != nil {
			return nil, err
		}
		err = r.client.Patch(ctx, d, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			r.log.Info("the agents uninstall everything from their nodes", "namespace", d.Namespace, "name", d.Name)
			return d, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("patch DaemonSet %s/%s: %w", d.Namespace, d.Name, err)
		}
	}
}

// leaving changes a DaemonSet: its pods run uninstall --stay, with the flags that they had, in place of run.
func leaving(d *appsv1.DaemonSet, force bool) error {
	pod := &d.Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool {
		return len(c.Args) > 0 && (c.Args[0] == "run" || c.Args[0] == "uninstall")
	})
	if i < 0 {
		return fmt.Errorf("%w: no container of DaemonSet %s/%s has the arguments run, ...: is it that of fabric-agent?",
			ErrRefused, d.Namespace, d.Name)
	}
	pod.InitContainers = nil
	c := &pod.Containers[i]
	flags := slices.DeleteFunc(slices.Clone(c.Args[1:]), func(a string) bool { return a == "--stay" || a == "--force" })
	c.Args = append([]string{"uninstall", "--stay"}, flags...)
	if force {
		c.Args = append(c.Args, "--force")
	}
	if c.ReadinessProbe != nil {
		c.ReadinessProbe.PeriodSeconds = 1
	}
	all := intstr.FromString("100%")
	d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &all},
	}
	return nil
}

const (
	leavePoll = time.Second
	// lostAfter is how long nodes that are not there are waited for, while no other one is done.
	lostAfter = 30 * time.Second
)

// untilLeft waits until every node is done. A node that is not there is left as it is.
func (r *releaser) untilLeft(ctx context.Context, d *appsv1.DaemonSet) error {
	generation, last, since := d.Generation, "", time.Now()
	for {
		err := r.client.Get(ctx, client.ObjectKeyFromObject(d), d)
		if err != nil {
			return fmt.Errorf("read DaemonSet %s/%s: %w", d.Namespace, d.Name, err)
		}
		st := &d.Status
		if st.ObservedGeneration >= generation && st.UpdatedNumberScheduled >= st.DesiredNumberScheduled &&
			st.NumberReady >= st.DesiredNumberScheduled {
			r.log.Info("nothing is left on the nodes", "nodes", st.DesiredNumberScheduled)
			return nil
		}
		if now := fmt.Sprint(st.ObservedGeneration, st.UpdatedNumberScheduled, st.NumberReady); now != last {
			r.log.Info("waiting for nodes", "nodes", st.DesiredNumberScheduled, "begun", st.UpdatedNumberScheduled,
				"ready", st.NumberReady)
			last, since = now, time.Now()
		}
		waited := time.Since(since)
		if waited >= min(lostAfter, r.o.Timeout) {
			late, lost, err := r.late(ctx, d)
			switch {
			case err != nil:
				return err
			case len(late) == 0 && len(lost) > 0:
				r.log.Warn("nodes are not there: what is on them stays. Run this again when they are back, before the "+
					"DaemonSet is deleted", "nodes", short(list(lost)))
				return nil
			case waited >= r.o.Timeout:
				return fmt.Errorf("%w: %s. The agents of the other nodes are gone. Go on by running this again, or go "+
					"back by applying the manifests, or with helm rollback", ErrRefused, short(semicolons(late)))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leavePoll):
		}
	}
}

// late are the nodes that have not uninstalled everything, with the reason, and those that are not there.
func (r *releaser) late(ctx context.Context, d *appsv1.DaemonSet) (late, lost []string, err error) {
	there, err := r.ready(ctx)
	if err != nil {
		return nil, nil, err
	}
	waits, err := r.waiting(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	scheduled := len(waits)
	for node, why := range waits {
		switch {
		case why == "":
			delete(waits, node)
		case !there[node]:
			lost = append(lost, node)
			delete(waits, node)
		}
	}
	err = r.eachFabricNode(ctx, func(n *v1alpha1.FabricNode) {
		c := apimeta.FindStatusCondition(n.Status.Conditions, v1alpha1.FabricNodeUninstallPossible)
		if waits[n.Name] != "" && c != nil && c.Status == metav1.ConditionFalse {
			waits[n.Name] = c.Message
		}
	})
	for node, why := range waits {
		late = append(late, "node "+node+": "+why)
	}
	if missing := int(d.Status.DesiredNumberScheduled) - scheduled; missing > 0 {
		late = append(late, fmt.Sprintf("%d nodes have no pod of DaemonSet %s", missing, d.Name))
	}
	if len(late)+len(lost) == 0 {
		late = append(late, fmt.Sprintf("the status of DaemonSet %s does not say that all its pods are ready "+
			"(kube-controller-manager writes it)", d.Name))
	}
	return late, lost, err
}

// waiting says of each node that has a pod of the DaemonSet what it waits for; empty: it is done.
func (r *releaser) waiting(ctx context.Context, d *appsv1.DaemonSet) (map[string]string, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of DaemonSet %s/%s: %w", d.Namespace, d.Name, err)
	}
	out := map[string]string{}
	page := &corev1.PodList{}
	err = eachPage(ctx, r.client, page, pageSize, func() {
		for i := range page.Items {
			p := &page.Items[i]
			if node := p.Spec.NodeName; node != "" && metav1.IsControlledBy(p, d) && out[node] == "" {
				out[node] = unfinished(p)
			}
		}
	}, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", d.Namespace, err)
	}
	return out, nil
}

// unfinished says what a pod of the agents has not done; empty: all is uninstalled from its node.
func unfinished(p *corev1.Pod) string {
	leaves := slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return len(c.Args) > 0 && c.Args[0] == "uninstall"
	})
	switch {
	case p.DeletionTimestamp != nil:
		return "its pod " + p.Name + " has not ended"
	case !leaves:
		return "its pod " + p.Name + " has not been replaced"
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	for i := range p.Status.ContainerStatuses {
		if w := p.Status.ContainerStatuses[i].State.Waiting; w != nil {
			return fmt.Sprintf("its pod %s waits: %s %s", p.Name, w.Reason, w.Message)
		}
	}
	return fmt.Sprintf("its pod %s is %s and not ready: its log says why", p.Name, p.Status.Phase)
}
