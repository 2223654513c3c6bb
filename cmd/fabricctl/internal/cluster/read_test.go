package cluster

import (
	"fmt"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endless is a text that does not end: its buffer is full each time.
type endless struct{ begin, more string }

func (e *endless) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if e.begin == "" {
			e.begin = e.more
		}
		k := copy(b[n:], e.begin)
		n, e.begin = n+k, e.begin[k:]
	}
	return n, nil
}

// A list is bounded in the size of its objects, in their number and in what is beside them; what can't be read of one
// object does not spoil the others.
func TestEachItem(t *testing.T) {
	for _, c := range []struct {
		name string
		text io.Reader
		want string
	}{
		{"a list", strings.NewReader(`{"kind":"List","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`),
			"a b <nil>"},
		{"items first", strings.NewReader(`{"items":[{"metadata":{"name":"a"}}],"metadata":{"x":[1,{}]}}`), "a <nil>"},
		{"no items", strings.NewReader(`{}`), "<nil>"},
		{"one that means nothing", strings.NewReader(`{"items":[{"metadata":{"name":1}},{"metadata":{"name":"b"}}]}`),
			"! b <nil>"},
		{"no list", strings.NewReader(`[{"metadata":{"name":"a"}}]`), "not a list of objects: [ where { is wanted"},
		{"items are no list", strings.NewReader(`{"items":{}}`), "not a list of objects: { where [ is wanted"},
		{"broken", strings.NewReader(`{"items":[{"metadata":{"name":"a"}},{]}`), "a invalid character ']'"},
		{"cut off", strings.NewReader(`{"items":[{"metadata":{"name":"a"}},{"meta`), "a unexpected EOF"},
		{"an object without end", &endless{begin: `{"items":[{"metadata":{"name":"a"}},{"x":"`, more: "y"},
			"a an object has more than 16 MiB"},
		{"objects without end", &endless{begin: `{"items":[`, more: `{},`}, "there are more than 100000 objects"},
		{"a head without end", &endless{begin: `{"metadata":"`, more: "y"}, "an object has more than 16 MiB"},
		{"a key without end", &endless{begin: `{"`, more: "y"}, "unexpected EOF"},
		{"white space without end", &endless{begin: `{"items":`, more: " "}, "EOF"},
	} {
		got := ""
		err := EachItem(c.text, func(o *metav1.PartialObjectMetadata, bad error) {
			if bad != nil {
				got += "! "
			} else if o.Name != "" {
				got += o.Name + " "
			}
		})
		if got += fmt.Sprint(err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %.200s, want %s", c.name, got, c.want)
		}
	}
}
