// Package nodemode changes the RDMA network namespace mode of the Nodes of a cluster: each one is cordoned, drained,
// set up for the other mode, rebooted, looked at and uncordoned. How far a Node is stands in an annotation of it, so
// that a run which was killed can be followed by another.
package nodemode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// File is where node-mode writes the mode: modprobe reads it when ib_core is loaded, after files whose names come
// before (modprobe.d(5)).
const File = "/etc/modprobe.d/zz-fabric-cni.conf"

// Options are what a run is told.
type Options struct {
	Mode           string // exclusive or shared
	Nodes          []string
	Selector       string // of Nodes, if none are named
	MaxUnavailable string // a number, or a percentage of the Nodes

	Namespace string // of the pods that work on the nodes
	Image     string // with fabricctl

	PullSecrets []corev1.LocalObjectReference

	Force          bool          // delete pods that nothing creates again
	DeleteEmptyDir bool          // delete pods that lose the content of an emptyDir
	GracePeriod    time.Duration // of pods; negative: their own
	Timeout        time.Duration // of one Node, from the cordon to the uncordon

	// Reported are the modes of the Nodes as their agents have reported them. Nodes that are not in it are asked.
	Reported map[string]string
	Say      func(node, text string) // tells each step
	// List lists the Nodes with the labels of Selector; all, if it is empty.
	List func(ctx context.Context) ([]corev1.Node, error)
}

// Run is a run over the Nodes of a cluster.
type Run struct {
	Options

	kube  kubernetes.Interface
	pause time.Duration // between two looks

	mu   sync.Mutex
	said map[string]string // the last words about each node
}

// New makes a run.
func New(kube kubernetes.Interface, o Options) *Run {
	return &Run{Options: o, kube: kube, pause: 2 * time.Second, said: map[string]string{}}
}

// say tells what is new.
func (r *Run) say(node, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said[node] != text {
		r.said[node] = text
		r.Say(node, text)
	}
}

// Plan is what a run would do.
type Plan struct {
	Begun []string // a run before has begun with them
	Do    []string
	Done  []string // in the mode already
	Most  int      // so many at a time
}

// Plan chooses the Nodes. It is an error if a Node can't be changed now: then no Node is.
func (r *Run) Plan(ctx context.Context) (*Plan, error) {
	nodes, err := r.selected(ctx)
	if err != nil {
		return nil, err
	}
	most, err := Most(r.MaxUnavailable, len(nodes))
	if err != nil {
		return nil, err
	}
	p := &Plan{Most: most}
	var bad []error
	for i := range nodes {
		n := &nodes[i]
		rec, err := recordOf(n)
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("node %s: %w", n.Name, err))
		case rec != nil:
			p.Begun = append(p.Begun, n.Name)
		case r.Reported[n.Name] == r.Mode:
			p.Done = append(p.Done, n.Name)
		case !ready(n):
			bad = append(bad, fmt.Errorf("node %s is not Ready: repair it, or leave it out", n.Name))
		default:
			p.Do = append(p.Do, n.Name)
		}
	}
	return p, errors.Join(bad...)
}

// Most is how many of so many Nodes a number, or a percentage, means: one at the least.
func Most(limit string, nodes int) (int, error) {
	of := intstr.Parse(limit)
	most, err := intstr.GetScaledValueFromIntOrPercent(&of, nodes, true)
	if err != nil || most < 1 {
		return 0, fmt.Errorf("--max-unavailable %.60q: must be a number of nodes from 1, or a percentage such as 10%%",
			limit)
	}
	return most, nil
}

// selected are the Nodes that are meant, sorted by name.
func (r *Run) selected(ctx context.Context) ([]corev1.Node, error) {
	nodes, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.Nodes) > 0 {
		nodes = slices.DeleteFunc(nodes, func(n corev1.Node) bool { return !slices.Contains(r.Nodes, n.Name) })
		for _, name := range r.Nodes {
			if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name }) {
				return nil, fmt.Errorf("the cluster has no node %.253q", name)
			}
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("no node has the labels of --selector %.300q", r.Selector)
	}
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Do changes the Nodes of a plan, first those that a run before has begun. After an error it begins with no other Node,
// and ends those at work. A Node that it could not change stays cordoned.
func (r *Run) Do(ctx context.Context, p *Plan) error {
	queue := make(chan string, len(p.Begun)+len(p.Do))
	for _, name := range slices.Concat(p.Begun, p.Do) {
		queue <- name
	}
	close(queue)
	var (
		mu     sync.Mutex
		failed []error
		group  sync.WaitGroup
	)
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(failed) > 0 || ctx.Err() != nil
	}
	for range p.Most {
		group.Go(func() {
			for name := range queue {
				if stopped() {
					return
				}
				if err := r.change(ctx, name); err != nil {
					mu.Lock()
					failed = append(failed, fmt.Errorf("node %s: %w", name, err))
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	if len(failed) == 0 {
		return ctx.Err()
	}
	return errors.Join(failed...)
}
