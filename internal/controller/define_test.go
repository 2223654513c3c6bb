package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

// What the API server refuses is tried again less and less often.
func TestDoubled(t *testing.T) {
	var got []time.Duration
	for n := range 7 {
		got = append(got, doubled(failedFirst, failedMost, n))
	}
	if want := "[10s 10s 20s 40s 1m20s 2m0s 2m0s]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A definition that others change again and again is put back more and more rarely, and after a quiet hour as at first.
func TestContested(t *testing.T) {
	s, now := &slot{}, noon
	for i, pause := range []time.Duration{0, 0, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute,
		contestedMost, contestedMost} {
		s.putBack("changed by x", now)
		if got := max(0, s.next.Sub(now)); got != pause || s.contested(now) != (pause > 0) {
			t.Errorf("%d changes: it waits for %s, want %s", i+1, got, pause)
		}
		now = now.Add(time.Second)
	}
	if now = now.Add(2 * contestedMost); s.contested(now) {
		t.Error("it is contested long after the last change")
	}
	s.putBack("changed by x", now.Add(putBackShown))
	if s.others != 1 {
		t.Errorf("after a quiet hour: %d changes", s.others)
	}
	s.want("another")
	if s.others != 0 || s.wants != "another" {
		t.Errorf("%+v is of what it was before", s)
	}
}

// written is an object with managedFields.
func written(by, fields string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: by, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)},
	})
	return u
}

func TestDoneBy(t *testing.T) {
	theirs := written("kubectl-edit", `{"f:spec":{"f:config":{}}}`)
	ours := written(fabrics.Manager, `{"f:spec":{"f:config":{}}}`)
	other := written("argocd", `{"f:metadata":{"f:labels":{"f:team":{}}}}`)
	for _, tt := range []struct {
		name           string
		is             *unstructured.Unstructured
		done, accepted bool
		want           string
	}{
		{"new", nil, false, true, ""},
		{"deleted", nil, true, false, "deleted by "},
		{"edited", theirs, true, false, `changed by "kubectl-edit"`},
		{"edited before this leader", theirs, false, false, `changed by "kubectl-edit"`},
		{"edited, and the Fabric too", theirs, false, true, ""},
		{"it lacks something", ours, true, false, "changed by "},
		{"another version of the controller", ours, false, false, ""},
		{"only a label that is not the controller's", other, false, false, ""},
	} {
		got := doneBy(tt.is, tt.done, tt.accepted)
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What is said of a Fabric's definitions: the worst is the reason, and everything is in the message.
func TestTally(t *testing.T) {
	now := noon
	contested := &slot{}
	for range contestedAfter {
		contested.putBack("changed by x", now)
	}
	once := &slot{}
	once.putBack("changed by y", now)
	refused := &slot{}
	refused.fail(errors.New("quota"), now)
	for name, tt := range map[string]struct {
		add      func(*tally)
		missing  []string
		reason   string
		parts    []string
		harmless bool
		note     string
	}{
		"all are there": {add: func(c *tally) { c.add("a", &slot{}, here, now) }},
		"one is put back": {add: func(c *tally) { c.add("a", once, here, now) },
			note: "in a was changed by y, and is put back"},
		"a namespace is missing": {add: func(c *tally) { c.add("a", &slot{}, here, now) }, missing: []string{"z"},
			reason: namespaceMissing, parts: []string{"no namespace z"}, harmless: true},
		"it is nowhere": {add: func(*tally) {}, missing: []string{"z"}, reason: namespaceMissing,
			parts: []string{"no namespace z"}},
		"several": {add: func(c *tally) {
			c.add("a", contested, here, now)
			c.add("b", &slot{}, foreign, now)
			c.add("c", refused, failed, now)
		}, missing: []string{"z"}, reason: publishFailed, parts: []string{
			"can't be written in c: the API server says: quota", "is in b, and is left as it is",
			"in a is changed by x again and again (3 times)", "no namespace z",
		}},
	} {
		c, p := &tally{}, &published{}
		tt.add(c)
		c.sum(p, "ib", tt.missing)
		if p.reason != tt.reason || p.harmless != tt.harmless || (p.err == nil) != (tt.parts == nil) ||
			!strings.Contains(p.note, tt.note) || (p.note == "") != (tt.note == "") {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		for _, part := range tt.parts {
			if !strings.Contains(p.err.Error(), part) {
				t.Errorf("%s: %v lacks %q", name, p.err, part)
			}
		}
	}
}

// What others have added to a definition stays.
func TestAdded(t *testing.T) {
	got := added(map[string]string{"theirs": "1", "ours": "old"}, map[string]string{"ours": "new"})
	if fmt.Sprint(got) != "map[ours:new theirs:1]" {
		t.Error(got)
	}
}
