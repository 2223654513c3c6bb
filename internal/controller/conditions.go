package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/quote"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// verdict is what is to be said of one aspect of a fabric.
type verdict struct {
	reason string
	err    error  // the condition is False
	note   string // the condition is True, but people should know this
}

// condition sets a condition as the verdict says. What is new and not as it should be becomes an Event.
func (c *Controller) condition(o *v1alpha1.Fabric, kind string, v verdict) {
	cond := metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: v.reason, Message: v.note, ObservedGeneration: o.Generation,
	}
	if v.err != nil {
		cond.Status, cond.Message = metav1.ConditionFalse, v.err.Error()
	}
	cond.Message = short(cond.Message)
	before := apimeta.FindStatusCondition(o.Status.Conditions, kind)
	same := before != nil && before.Status == cond.Status && before.Reason == cond.Reason &&
		before.Message == cond.Message
	apimeta.SetStatusCondition(&o.Status.Conditions, cond)
	if same {
		return
	}
	c.news = append(c.news, cond)
}

// tell logs the conditions that are new, once they are written, and makes Events of those that people should know of.
func (c *Controller) tell(o *v1alpha1.Fabric) {
	for _, cond := range c.news {
		c.Log.Info("condition", "fabric", o.Name, "type", cond.Type, "status", cond.Status, "reason", cond.Reason,
			"message", cond.Message)
		if c.Events != nil && (cond.Status == metav1.ConditionFalse || cond.Message != "") {
			c.Events.Event(o, corev1.EventTypeWarning, cond.Reason, cond.Message)
		}
	}
}

// short makes one line of what others have had a hand in, and bounds it.
func short(s string) string {
	const most = 1024
	if s = quote.Terminal(s); len(s) > most {
		s = s[:most-3] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// report writes the status: at once after what people do, else when it is time for counts and messages. A condition
// that has another status or reason waits for urgentEvery: an agent may say something else each second, and all agents
// are told of each write.
func (c *Controller) report(ctx context.Context, j *judged, s *sum, w *world, p *published) error {
	old := j.object.DeepCopy()
	st := &j.object.Status
	st.ObservedGeneration = old.Generation
	a := c.addresses(ctx, j, s, w)
	c.news = nil
	c.condition(j.object, v1alpha1.FabricAddressesUnique, c.uniqueness(ctx, j, w))
	c.conditions(j, s, p, a)
	age := c.Now().Sub(c.counted[old.Name])
	urgent := j.accept || age >= urgentEvery && !slices.EqualFunc(old.Status.Conditions, st.Conditions, sameState) ||
		old.Status.ObservedGeneration != st.ObservedGeneration || !slices.Equal(old.Status.Published, p.namespaces)
	st.LinkLayer, st.Rate, st.Nodes, st.Devices = s.layer(), s.rate(), s.nodes, s.devices
	st.Published, st.Addresses = p.namespaces, a.counts
	if equality.Semantic.DeepEqual(old.Status, *st) || !urgent && age < w.every {
		return nil
	}
	if err := c.Client.Status().Patch(ctx, j.object, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("write the status of Fabric %s: %w", old.Name, err)
	}
	c.tell(j.object)
	if c.counted == nil {
		c.counted = map[string]time.Time{}
	}
	c.counted[old.Name] = c.Now()
	return nil
}

// sameState compares what does not have to wait.
func sameState(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason &&
		a.ObservedGeneration == b.ObservedGeneration
}

func (c *Controller) conditions(j *judged, s *sum, p *published, a *addresses) {
	o := j.object
	if j.refused != nil {
		text := j.refused
		if j.force != nil {
			text = fmt.Errorf("generation %d stays in force: %w", j.force.Generation, j.refused)
		}
		c.condition(o, v1alpha1.FabricAccepted, verdict{reason: refusal(j.refused), err: text})
	}
	c.condition(o, v1alpha1.FabricAddressesSufficient, a.verdict)
	c.condition(o, v1alpha1.FabricPublished, p.verdict())
	degraded := metav1.Condition{Type: v1alpha1.FabricDegraded, Status: metav1.ConditionFalse, Reason: "AllHealthy"}
	if s.unhealthy() > 0 {
		degraded.Status, degraded.Reason, degraded.Message = metav1.ConditionTrue, devicesUnhealthy, s.wrong()
	}
	degraded.ObservedGeneration = o.Generation
	apimeta.SetStatusCondition(&o.Status.Conditions, degraded)
	c.condition(o, v1alpha1.FabricReady, ready(j, s, p, &a.verdict))
}

// refusal is why a generation is not accepted, in a word.
func refusal(err error) string {
	if errors.Is(err, errDRANotServed) {
		return draNotServed
	}
	return refusedSpec
}

// ready sums up the conditions in one.
func ready(j *judged, s *sum, p *published, a *verdict) verdict {
	o := j.object
	switch {
	case !o.DeletionTimestamp.IsZero():
		return verdict{reason: inUse,
			err: fmt.Errorf("the Fabric is deleted when these pods have ended: %s", users(s))}
	case j.force == nil && o.Status.InForce != nil:
		return verdict{reason: refusedSpec, err: fmt.Errorf(
			"generation %d is in force, and stays as it is: this controller can't read it, is it older than the last "+
				"one? %w",
			o.Status.InForce.Generation, j.refused)}
	case j.force == nil:
		return verdict{reason: refusal(j.refused), err: fmt.Errorf("no generation was ever accepted: %w", j.refused)}
	case j.refused != nil:
		return verdict{reason: refusal(j.refused),
			err: fmt.Errorf("generation %d is in force: %w", j.force.Generation, j.refused)}
	case p.err != nil && !p.harmless:
		return verdict{reason: p.reason, err: p.err}
	case a.err != nil:
		return *a
	case s.devices.Total == 0:
		return verdict{reason: noDevices,
			err: errors.New("no node has a device of this fabric: see `kubectl get fabricnodes`")}
	case s.devices.Healthy == 0 && s.unhealthy() == 0:
		return verdict{reason: notConnected,
			err: errors.New("no port of it has ever been Active: connect one, or match other devices")}
	case s.devices.Healthy == 0:
		return verdict{reason: devicesUnhealthy, err: fmt.Errorf("no device is healthy: %s", s.wrong())}
	}
	return verdict{reason: "Ready"}
}

// users are the pods of a fabric, the first few by name.
func users(s *sum) string {
	text := strings.Join(slices.Sorted(slices.Values(s.users)), ", ")
	if more := s.pods - len(s.users); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
