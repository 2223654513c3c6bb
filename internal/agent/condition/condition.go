// Package condition describes what the agent has observed on a node as Kubernetes conditions, and reports each change
// once. A condition is the only form in which one part of the agent tells people that something is wrong.
package condition

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is one observed aspect of one object. Type, Status, Reason and Message mean what they mean in
// metav1.Condition.
type Condition struct {
	Object  string // what it is about: "fabric/NAME", "device/ID", "pool/NAME RANGE"; empty: the node
	Type    Type
	Status  metav1.ConditionStatus
	Reason  string // one CamelCase word, also the reason of the Event
	Message string
}

// key identifies a condition: an object has at most one of each type.
type key struct {
	object string
	name   string
}

func (c *Condition) key() key { return key{c.Object, c.Type.Name} }

// Fabric names a fabric as the object of a condition.
func Fabric(name string) string { return "fabric/" + name }

// Device names a device as the object of a condition.
func Device(id string) string { return "device/" + id }

// Node is the object of a condition that concerns the node itself.
const Node = ""

// Set holds the conditions of one look at the node, in the order in which they were observed. A condition that is not
// in the set is true. The zero Set is ready to use.
type Set struct {
	list []Condition
}

// Fail adds a condition of this type with status False. A second one of the same type and object replaces the first.
func (s *Set) Fail(t Type, object, format string, args ...any) {
	s.add(Condition{
		Object: object, Type: t, Status: metav1.ConditionFalse, Reason: t.Reason,
		Message: fmt.Sprintf(format, args...),
	})
}

func (s *Set) add(c Condition) {
	for i := range s.list {
		if s.list[i].key() == c.key() {
			s.list[i] = c
			return
		}
	}
	s.list = append(s.list, c)
}

// Get returns the condition of this type and object, and whether it is in the set.
func (s *Set) Get(t Type, object string) (Condition, bool) {
	for _, c := range s.list {
		if c.key() == (key{object, t.Name}) {
			return c, true
		}
	}
	return Condition{}, false
}

// Sum returns one condition for each type, with the messages of all its objects; first those that a node is not Ready
// with, then the notes.
func (s *Set) Sum() (wrong, notes []metav1.Condition) {
	byType := map[string]*metav1.Condition{}
	var order []Type
	for _, c := range s.list {
		if sum := byType[c.Type.Name]; sum != nil {
			sum.Message += "; " + c.Message
			continue
		}
		byType[c.Type.Name] = &metav1.Condition{
			Type: c.Type.Name, Status: c.Status, Reason: c.Reason, Message: c.Message,
		}
		order = append(order, c.Type)
	}
	for _, t := range order {
		sum := byType[t.Name]
		if len(sum.Message) > maxMessage {
			sum.Message = strings.ToValidUTF8(sum.Message[:maxMessage-3], "") + "..."
		}
		if t.Note {
			notes = append(notes, *sum)
		} else {
			wrong = append(wrong, *sum)
		}
	}
	return wrong, notes
}

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 1024
