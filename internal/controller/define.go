package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

const (
	// failedFirst and failedMost are how long the controller waits before it writes a definition again that the API
	// server has refused: the time doubles from the one to the other.
	failedFirst, failedMost = 10 * time.Second, 2 * time.Minute
	// contestedAfter is how often others change a definition before that is a conflict: from then on it is put back
	// after contestedFirst, and each time after twice as long, up to contestedMost.
	contestedAfter                = 3
	contestedFirst, contestedMost = time.Minute, 10 * time.Minute
	// putBackShown is how long a condition says that a definition was changed and put back.
	putBackShown = time.Hour
)

// state is what has become of a definition.
type state int

const (
	here    state = iota // it is as it should be
	foreign              // it is not the controller's
	failed               // it could not be written: slot.err
	pending              // it is not, and is not written now
)

// slot is what the controller remembers of a definition: what it wanted, and what others have done to it.
type slot struct {
	wants  string    // what it should be, with the namespace's UID
	seen   string    // resource version with which it was so
	theirs time.Time // the look at all definitions after which it was found to be foreign
	done   bool      // it was so
	next   time.Time // not to be written before
	failed int       // how often the API server has refused it in a row
	err    error     // what it said
	others int       // how often others have changed or deleted it
	did    string    // who did what
	at     time.Time // when that was last put back
}

// slotOf is what is remembered of a namespace.
func slotOf(before map[string]*slot, namespace string) *slot {
	if s := before[namespace]; s != nil {
		return s
	}
	return &slot{}
}

// remember keeps what is known of a Fabric's definitions until the next round.
func (c *Controller) remember(fabric types.UID, slots map[string]*slot) {
	if c.defined.slots == nil {
		c.defined.slots = map[types.UID]map[string]*slot{}
	}
	c.defined.slots[fabric] = slots
}

// want begins anew if a definition should be another one than before.
func (s *slot) want(what string) {
	if s.wants != what {
		*s = slot{wants: what}
	}
}

// fail notes that the API server has refused it.
func (s *slot) fail(err error, now time.Time) state {
	s.failed, s.err = s.failed+1, err
	s.next = now.Add(doubled(failedFirst, failedMost, s.failed))
	return failed
}

// putBack notes that it is again as it should be, after others have changed it.
func (s *slot) putBack(did string, now time.Time) {
	if now.Sub(s.at) > putBackShown {
		s.others = 0
	}
	s.others, s.did, s.at = s.others+1, did, now
	if s.contested(now) {
		s.next = now.Add(s.pause())
	}
}

// contested reports whether others change it again and again.
func (s *slot) contested(now time.Time) bool {
	return s.others >= contestedAfter && now.Sub(s.at) < 2*s.pause()
}

// pause is how long it is left alone after it was put back.
func (s *slot) pause() time.Duration {
	return doubled(contestedFirst, contestedMost, s.others-contestedAfter+1)
}

// doubled is the nth pause: the first, then twice as long each time.
func doubled(first, most time.Duration, n int) time.Duration {
	for d := first; ; d *= 2 {
		if n--; n < 1 || d >= most {
			return min(d, most)
		}
	}
}

// define makes one definition as it should be.
func (c *Controller) define(
	ctx context.Context, j *judged, ns *corev1.Namespace, listed *metav1.PartialObjectMetadata, s *slot, several bool,
) state {
	should, err := j.force.Definition(ns.Name, j.owner(), several)
	now := c.Now()
	if err != nil {
		return s.fail(err, now)
	}
	s.want(fmt.Sprint(ns.UID, should.Object["spec"], should.GetAnnotations()))
	switch {
	case listed == nil && !j.object.DeletionTimestamp.IsZero(), listed != nil && s.seen == listed.ResourceVersion:
		return here
	case listed != nil && !owned(listed, j.object), s.theirs.Equal(c.defined.at):
		return foreign
	}
	if now.Before(s.next) && s.err != nil {
		return failed
	} else if now.Before(s.next) {
		return pending
	}
	is, theirs, err := c.unlessForeign(ctx, j, listed, should)
	switch {
	case err != nil:
		return s.fail(err, now)
	case theirs:
		s.theirs = c.defined.at
		return foreign
	case is != nil && same(is, should):
		s.isHere(is)
		return here
	}
	did := doneBy(is, s.done, j.accept)
	c.defined.key = ""
	switch err = c.write(ctx, is, should); {
	case err == nil:
		s.isHere(should)
		if did != "" {
			s.putBack(did, now)
		}
		c.Log.Info("published NetworkAttachmentDefinition", "namespace", ns.Name, "name", should.GetName(), "new",
			is == nil, "after", did)
		return here
	case absent(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return pending // for the next round, which knows more
	}
	return s.fail(err, now)
}

// isHere notes that a definition is as it should be.
func (s *slot) isHere(is *unstructured.Unstructured) {
	s.done, s.failed, s.err, s.seen = true, 0, nil, is.GetResourceVersion()
}

// unlessForeign reads a definition, unless it is foreign: of that only metadata is read. nil: it does not exist.
func (c *Controller) unlessForeign(
	ctx context.Context, j *judged, listed *metav1.PartialObjectMetadata, should *unstructured.Unstructured,
) (is *unstructured.Unstructured, theirs bool, err error) {
	if listed == nil { // it is missing, or lacks the label
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(fabrics.Definitions)
		err := c.Ranges.Live.Get(ctx, client.ObjectKeyFromObject(should), m)
		switch {
		case absent(err):
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("look for it: %w", err)
		case !owned(m, j.object):
			return nil, true, nil
		}
	}
	is, err = c.read(ctx, fabrics.Definitions, should.GetNamespace(), should.GetName())
	return is, is != nil && !owned(is, j.object), err
}

// write makes or changes a definition, which becomes what should has then. What others have added to it stays.
func (c *Controller) write(ctx context.Context, is, should *unstructured.Unstructured) error {
	if is == nil {
		return c.Client.Create(ctx, should, client.FieldOwner(fabrics.Manager))
	}
	next := is.DeepCopy()
	next.SetManagedFields(nil)
	next.Object["spec"] = should.Object["spec"]
	next.SetLabels(added(is.GetLabels(), should.GetLabels()))
	next.SetAnnotations(added(is.GetAnnotations(), should.GetAnnotations()))
	if err := c.Client.Update(ctx, next, client.FieldOwner(fabrics.Manager)); err != nil {
		return err
	}
	should.SetResourceVersion(next.GetResourceVersion())
	return nil
}

func added(is, should map[string]string) map[string]string {
	out := maps.Clone(should)
	for k, v := range is {
		if _, ours := should[k]; !ours {
			out[k] = v
		}
	}
	return out
}

// retract deletes a definition that does not belong to its namespace any more.
func (c *Controller) retract(ctx context.Context, u *metav1.PartialObjectMetadata, s *slot) state {
	s.want("")
	now := c.Now()
	if now.Before(s.next) {
		return failed
	}
	if err := c.withdraw(ctx, u); err != nil {
		return s.fail(err, now)
	}
	return pending
}

// same compares what the controller decides of a definition.
func same(is, should *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(is.Object["spec"], should.Object["spec"]) &&
		is.GetAnnotations()[fabrics.ResourceAnnotation] == should.GetAnnotations()[fabrics.ResourceAnnotation] &&
		is.GetLabels()[fabrics.ManagedBy] == fabrics.Manager
}

// doneBy is what others have done to a definition that has to be written; empty: the controller wants another one than
// before. done says that it was as it should be, and accepted that what it should be is new.
func doneBy(is *unstructured.Unstructured, done, accepted bool) string {
	if is == nil {
		if done {
			return "deleted by an unknown client"
		}
		return ""
	}
	who := editors(is)
	switch {
	case !done && (accepted || len(who) == 0):
		return ""
	case len(who) == 0: // it only lacks something
		return "changed by an unknown client"
	}
	return "changed by " + strings.Join(who, ", ")
}

// maxEditors is how many editors are named.
const maxEditors = 3

// editors are those who have written what the controller decides of a definition, by its managedFields. Who may write
// it may call himself what he likes.
func editors(u *unstructured.Unstructured) (out []string) {
	for _, m := range u.GetManagedFields() {
		var f struct {
			Spec     *json.RawMessage `json:"f:spec"`
			Metadata struct {
				Annotations map[string]any `json:"f:annotations"`
				Labels      map[string]any `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if m.Manager == fabrics.Manager || m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &f) != nil {
			continue
		}
		ours := f.Spec != nil || f.Metadata.Annotations["f:"+fabrics.ResourceAnnotation] != nil ||
			f.Metadata.Labels["f:"+fabrics.ManagedBy] != nil
		if name := fmt.Sprintf("%.60q", m.Manager); ours && !slices.Contains(out, name) && len(out) < maxEditors {
			out = append(out, name)
		}
	}
	return out
}

// tally is what has become of a Fabric's definitions, by namespace.
type tally struct {
	here, foreign, failed []string
	contested, putBack    []string
	refusal               error // that of the first of failed
	did                   *slot // that of the first of contested or putBack
}

func (t *tally) add(namespace string, s *slot, is state, now time.Time) {
	switch is {
	case here:
		t.here = append(t.here, namespace)
	case foreign:
		t.foreign = append(t.foreign, namespace)
		return
	case failed:
		if t.failed = append(t.failed, namespace); t.refusal == nil {
			t.refusal = s.err
		}
	case pending:
	}
	switch {
	case s.contested(now):
		if len(t.contested) == 0 {
			t.did = s
		}
		t.contested = append(t.contested, namespace)
	case s.others > 0 && now.Sub(s.at) < putBackShown:
		if t.did == nil {
			t.did = s
		}
		t.putBack = append(t.putBack, namespace)
	}
}

// sum says what has become of all of them.
func (t *tally) sum(p *published, name string, missing []string) {
	p.namespaces = t.here
	var errs []error
	say := func(reason, format string, args ...any) {
		if p.reason == "" {
			p.reason = reason
		}
		errs = append(errs, fmt.Errorf(format, args...))
	}
	if len(t.failed) > 0 {
		say(publishFailed, "NetworkAttachmentDefinition %s can't be written in %s: the API server says: %.400s; "+
			"quotas, webhooks or the rights of fabric-controller forbid it; it is tried again", name, list(t.failed),
			t.refusal)
	}
	if len(t.foreign) > 0 {
		say(networkConflict, "another owner's NetworkAttachmentDefinition %s is in %s, and is left as it is: "+
			"remove or rename it", name, list(t.foreign))
	}
	if len(t.contested) > 0 {
		say(networkContested, "NetworkAttachmentDefinition %s in %s is %s again and again (%d times): it is put back "+
			"more and more rarely; stop that program, or rename the Fabric", name, list(t.contested), t.did.did,
			t.did.others)
	}
	if len(missing) > 0 {
		p.harmless = len(errs) == 0 && len(t.here) > 0
		say(namespaceMissing, "namespaces.names: there is no namespace %s: create it, or remove it from "+
			"namespaces.names", list(missing))
	}
	if len(t.putBack) > 0 {
		p.note = fmt.Sprintf("NetworkAttachmentDefinition %s in %s was %s, and is put back: change the Fabric instead",
			name, list(t.putBack), t.did.did)
	}
	p.err = joined(errs)
}

// joined is all errors in one line; nil without errors.
func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	text := make([]string, len(errs))
	for i, err := range errs {
		text[i] = err.Error()
	}
	return errors.New(strings.Join(text, "; "))
}
