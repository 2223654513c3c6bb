// Package condition collects what an agent finds wrong with its node, sums it up as the conditions of the FabricNode,
// and reports each change once. A finding is the only form in which one part of the agent tells people that something
// is wrong.
package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finding is one thing that is wrong with one object.
type Finding struct {
	Object  string // what it is about: "fabric/NAME", "device/ID"; empty: the node
	Reason  Reason
	Message string
}

// key identifies a finding: an object has at most one of each reason.
type key struct {
	object string
	reason Reason
}

func (f *Finding) key() key { return key{f.Object, f.Reason} }

// Fabric names a fabric as the object of a finding.
func Fabric(name string) string { return "fabric/" + name }

// Device names a device as the object of a finding.
func Device(id string) string { return "device/" + id }

// Node is the object of a finding that concerns the node itself.
const Node = ""

// Set holds the findings of one look at the node, in the order in which they were made. The zero Set is ready to use.
type Set struct {
	list []Finding
}

// Add adds a finding. A second one of the same reason and object replaces the first.
func (s *Set) Add(r Reason, object, format string, args ...any) {
	f := Finding{Object: object, Reason: r, Message: fmt.Sprintf(format, args...)}
	for i := range s.list {
		if s.list[i].key() == f.key() {
			s.list[i] = f
			return
		}
	}
	s.list = append(s.list, f)
}

// Get returns the finding of this reason and object, and whether it is in the set.
func (s *Set) Get(r Reason, object string) (Finding, bool) {
	for _, f := range s.list {
		if f.key() == (key{object, r}) {
			return f, true
		}
	}
	return Finding{}, false
}

// Sum returns the conditions that are False, in the order of Types; first those that a node is not Ready with, then the
// notes. A condition has the worst of its reasons, and the messages of all its findings: the worst first, those of one
// reason by the name of the object.
func (s *Set) Sum() (wrong, notes []metav1.Condition) {
	for _, t := range Types {
		var found []Finding
		for _, r := range t.Reasons {
			first := len(found)
			for _, f := range s.list {
				if f.Reason == r {
					found = append(found, f)
				}
			}
			slices.SortFunc(found[first:], func(a, b Finding) int { return cmp.Compare(a.Object, b.Object) })
		}
		if len(found) == 0 {
			continue
		}
		c := metav1.Condition{
			Type: t.Name, Status: metav1.ConditionFalse, Reason: found[0].Reason.Name, Message: message(found),
		}
		if t.Note {
			notes = append(notes, c)
		} else {
			wrong = append(wrong, c)
		}
	}
	return wrong, notes
}

// A message of a condition has so many bytes at most, of which some are kept for how many messages were left out.
const (
	maxMessage = 1024
	moreRoom   = len("; and 100000 more")
)

// message has the messages of all findings, as far as there is room.
func message(found []Finding) string {
	text := found[0].Message
	if most := maxMessage - moreRoom; len(text) > most {
		text = strings.ToValidUTF8(text[:most-len("...")], "") + "..."
	}
	for i, f := range found[1:] {
		if len(text)+len("; ")+len(f.Message) > maxMessage-moreRoom {
			return text + fmt.Sprintf("; and %d more", len(found)-1-i)
		}
		text += "; " + f.Message
	}
	return text
}
