package generate

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/encode"
)

// object is an object of any kind.
type object struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            any               `json:"spec,omitempty"`
	Data            map[string]string `json:"data,omitempty"`
}

// fields are the spec of a kind whose types are not among the dependencies.
type fields = map[string]any

// doc is an object of the output, with its comments: lines above it, and a text above the first field or list element
// of a name.
type doc struct {
	object any
	head   []string
	notes  map[string]string
}

// kind is the type of an object.
func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// named is the metadata of an object in the options' namespace.
func (o *Options) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: o.Namespace}
}

// text writes the objects below what was left out, which the caller is told too.
func (d *data) text(docs []doc) (string, error) {
	const most = 20
	if n := len(d.doubts); n > most {
		d.doubts = append(d.doubts[:most], fmt.Sprintf("%d more ports have trained down", n-most))
	}
	for i := 0; d.Warn != nil && i < len(d.doubts); i++ {
		d.Warn(d.doubts[i])
	}
	docs[0].head = append(warnings(d.doubts), docs[0].head...)
	return text(docs)
}

// text writes objects as YAML, one behind another. The values in them make no line, no key and no document.
func text(docs []doc) (string, error) {
	var out []string
	for _, d := range docs {
		text, err := encode.Manifest(d.object, d.head, d.notes)
		if err != nil {
			return "", fmt.Errorf("write %T: %w", d.object, err)
		}
		out = append(out, text)
	}
	return strings.Join(out, "---\n"), nil
}

// warnings are comments.
func warnings(lists ...[]string) (out []string) {
	for _, list := range lists {
		for _, w := range list {
			out = append(out, "Warning: "+strings.TrimSuffix(w, ".")+".")
		}
	}
	return out
}
