package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// HealthyCondition is the condition of a Node by which others see the health of its devices.
const HealthyCondition corev1.NodeConditionType = "FabricHealthy"

const (
	// markedShare is the share of nodes in per cent of which all are tainted: if more are unhealthy, the fabric is, and
	// taints would only stop the cluster.
	markedShare = 25
	// marksAtOnce is how many Nodes a round changes at most.
	marksAtOnce = 100
)

// Marks is what the controller does to Nodes with unhealthy devices: nothing, unless it is asked to.
type Marks struct {
	Condition bool
	Taint     *corev1.Taint

	known map[string]mark // as the Node was last seen or changed
	held  bool            // too many nodes are unhealthy
}

// mark is what stands in a Node.
type mark struct {
	uid     types.UID
	said    corev1.ConditionStatus // by the condition; empty: nothing
	tainted bool
}

// ParseTaint reads KEY:EFFECT; nil: no taint.
func ParseTaint(text string) (*corev1.Taint, error) {
	if text == "" {
		return nil, nil
	}
	key, effect, _ := strings.Cut(text, ":")
	t := &corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)}
	effects := []corev1.TaintEffect{
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
	}
	if len(validation.IsQualifiedName(key)) > 0 || !slices.Contains(effects, t.Effect) {
		return nil, fmt.Errorf("taint %q: want KEY:EFFECT, as in fabric.dev/unhealthy:NoSchedule; effects are %q", text,
			effects)
	}
	return t, nil
}

// on reports whether there is anything to do.
func (m *Marks) on() bool { return m.Condition || m.Taint != nil }

// portProblems are those for which a Node is marked. What can't be served for other reasons is no fault of the node's
// hardware: a pod can take a device, and must not be able to taint its Node.
var portProblems = []string{"PortDown", "Flapping", "CounterLimit"}

// judgement is what a node's agent says of its devices: "" is healthy.
func judgement(n *v1alpha1.FabricNode) (problem string, known bool) {
	var wrong []string
	total := 0
	for i := range n.Status.Fabrics {
		for k := range n.Status.Fabrics[i].Devices {
			d := &n.Status.Fabrics[i].Devices[k]
			if total++; slices.Contains(portProblems, d.Problem) {
				wrong = append(wrong, fmt.Sprintf("%.40s %.40s", d.ID, d.Problem))
			}
		}
	}
	if len(wrong) > 0 {
		problem = short(fmt.Sprintf("%d of %d devices: %s", len(wrong), total, list(wrong)))
	}
	return problem, total > 0
}

// mark sets the condition and the taint of the Nodes whose agents say something else than before. A node without a word
// of its agent stays as it is.
func (c *Controller) mark(ctx context.Context, w *world) error {
	if !c.Marks.on() {
		return nil
	}
	if c.Marks.known == nil {
		if err := c.lookAtMarks(ctx); err != nil {
			return err
		}
	}
	problems, unhealthy := map[string]string{}, 0
	for i := range w.nodes {
		n := &w.nodes[i]
		problem, known := judgement(n)
		if !known || !w.present[n.Name] {
			continue
		}
		if problems[n.Name] = problem; problem != "" {
			unhealthy++
		}
	}
	few := unhealthy == 1 || unhealthy*100 <= len(problems)*markedShare
	if few == c.Marks.held { // said once
		c.Marks.held = !few
		c.Log.Info("taints of unhealthy nodes", "held", !few, "unhealthy", unhealthy, "nodes", len(problems))
	}
	var errs []error
	changed := 0
	for name, problem := range problems {
		was := c.Marks.known[name]
		should := mark{uid: w.uids[name]}
		if c.Marks.Condition {
			should.said = status(problem)
		}
		should.tainted = c.Marks.Taint != nil && problem != "" && (few || was.tainted)
		if was == should {
			continue
		}
		if changed++; changed > marksAtOnce {
			break
		}
		err := c.markOne(ctx, name, problem, should)
		switch {
		case err == nil:
			c.Marks.known[name] = should
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func status(problem string) corev1.ConditionStatus {
	if problem == "" {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// lookAtMarks reads what stands in the Nodes, once.
func (c *Controller) lookAtMarks(ctx context.Context) error {
	known := map[string]mark{}
	err := eachNode(ctx, c.Ranges.Live, pageSize, func(n *corev1.Node) { known[n.Name] = c.Marks.of(n) })
	if err != nil {
		return err
	}
	c.Marks.known = known
	return nil
}

// of is what stands in a Node.
func (m *Marks) of(n *corev1.Node) mark {
	out := mark{uid: n.UID}
	for i := range n.Status.Conditions {
		if cond := &n.Status.Conditions[i]; m.Condition && cond.Type == HealthyCondition {
			out.said = cond.Status
		}
	}
	out.tainted = m.Taint != nil && slices.ContainsFunc(n.Spec.Taints, m.ours)
	return out
}

// ours reports whether a taint is the controller's: it has its key and effect. All others are left alone.
func (m *Marks) ours(t corev1.Taint) bool { return t.Key == m.Taint.Key && t.Effect == m.Taint.Effect }

func (c *Controller) markOne(ctx context.Context, name, problem string, should mark) error {
	n := &corev1.Node{}
	if err := c.Ranges.Live.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return fmt.Errorf("read Node %s: %w", name, err)
	}
	if m := c.Marks; m.Taint != nil && slices.ContainsFunc(n.Spec.Taints, m.ours) != should.tainted {
		old := n.DeepCopy()
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, m.ours)
		if should.tainted {
			now := metav1.NewTime(c.Now())
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: m.Taint.Key, Effect: m.Taint.Effect, TimeAdded: &now})
		}
		err := c.Client.Patch(ctx, n, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
		if err != nil {
			return fmt.Errorf("write the taints of Node %s: %w", name, err)
		}
		c.Log.Info("taint of Node", "node", name, "taint", m.Taint.Key, "set", should.tainted, "devices", problem)
	}
	if !c.Marks.Condition {
		return nil
	}
	cond := corev1.NodeCondition{
		Type: HealthyCondition, Status: corev1.ConditionTrue, Reason: "DevicesHealthy",
		Message:            "all devices are healthy",
		LastTransitionTime: metav1.NewTime(c.Now()),
	}
	if problem != "" {
		cond.Status, cond.Reason, cond.Message = corev1.ConditionFalse, devicesUnhealthy, problem
	}
	old := n.DeepCopy()
	same := func(o corev1.NodeCondition) bool { return o.Type == cond.Type }
	if k := slices.IndexFunc(n.Status.Conditions, same); k < 0 {
		n.Status.Conditions = append(n.Status.Conditions, cond)
	} else if n.Status.Conditions[k].Status != cond.Status {
		n.Status.Conditions[k] = cond
	} else {
		return nil
	}
	// By its type (strategic merge): kubelet and others write theirs meanwhile.
	if err := c.Client.Status().Patch(ctx, n, client.StrategicMergeFrom(old)); err != nil {
		return fmt.Errorf("write the condition of Node %s: %w", name, err)
	}
	c.Log.Info("condition of Node", "node", name, "type", cond.Type, "status", cond.Status, "devices", problem)
	return nil
}
