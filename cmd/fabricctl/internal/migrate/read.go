// Package migrate turns the objects of NVIDIA's network operator and of the SR-IOV network operator into those of
// fabric-cni, and says of each field what becomes of it. Values in, values out.
package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/manifest"
)

// Object is one object of an operator.
type Object struct {
	Kind      string
	Name      string
	Namespace string
	Spec      map[string]any
}

func (o *Object) String() string { return o.Kind + " " + o.Name }

// maxObjects bounds the objects of all files.
const maxObjects = 10_000

// groups are the API groups whose kinds are looked at.
var groups = []string{"mellanox.com/", "sriovnetwork.openshift.io/", "nv-ipam.nvidia.com/"}

var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// Read reads YAML documents, or JSON, Lists too. Objects of other API groups are left out: a file may have whatever
// else belongs to a deployment.
func Read(r io.Reader) (out []Object, err error) {
	err = manifest.Each(r, func(d *manifest.Document) error {
		var v map[string]any
		if err := json.Unmarshal(d.JSON, &v); err != nil {
			return fmt.Errorf("no object of Kubernetes: %w", err)
		}
		out, err = Add(out, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Add adds an object that was read as JSON, or those of a List.
func Add(out []Object, v map[string]any) ([]Object, error) { return add(out, v, 0) }

// add adds an object, or those of a List that is in no other one.
func add(out []Object, v map[string]any, depth int) ([]Object, error) {
	if len(v) == 0 {
		return out, nil
	}
	kind, _ := v["kind"].(string)
	version, _ := v["apiVersion"].(string)
	if kind == "" || version == "" {
		return nil, errors.New("no object of Kubernetes: want apiVersion and kind")
	}
	if items, ok := v["items"].([]any); ok && strings.HasSuffix(kind, "List") && depth == 0 {
		for _, i := range items {
			o, ok := i.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("items of %.100q: want objects", kind)
			}
			var err error
			if out, err = add(out, o, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if !slices.ContainsFunc(groups, func(g string) bool { return strings.HasPrefix(version, g) }) {
		return out, nil
	}
	meta, _ := v["metadata"].(map[string]any)
	o := Object{Kind: kind}
	o.Name, _ = meta["name"].(string)
	o.Namespace, _ = meta["namespace"].(string)
	if !objectName.MatchString(o.Name) {
		return nil, fmt.Errorf("%.100q: metadata.name %.300q: want the name of an object", kind, o.Name)
	}
	o.Spec, _ = v["spec"].(map[string]any)
	if len(out) == maxObjects {
		return nil, fmt.Errorf("more than %d objects", maxObjects)
	}
	return append(out, o), nil
}

// spec is the fields of an object that are still to be converted, and what became of the others.
type spec struct {
	of     *Object
	left   map[string]any
	fates  []string
	doubts []string
}

func newSpec(o *Object) *spec {
	s := &spec{of: o, left: map[string]any{}}
	for k, v := range o.Spec {
		s.left[k] = v
	}
	return s
}

// fate says what became of a field.
func (s *spec) fate(format string, args ...any) {
	s.fates = append(s.fates, fmt.Sprintf(format, args...))
}

// doubt says what the user has to check.
func (s *spec) doubt(format string, args ...any) {
	s.doubts = append(s.doubts, fmt.Sprintf(format, args...))
}

// text takes a field that is a string.
func (s *spec) text(field string) (string, error) {
	v, ok := s.left[field]
	delete(s.left, field)
	text, is := v.(string)
	if ok && v != nil && !is {
		return "", fmt.Errorf("%s: spec.%s: want a string", s.of, field)
	}
	return text, nil
}

// number takes a field that is a whole number.
func (s *spec) number(field string) (n int64, there bool, err error) {
	v, ok := s.left[field]
	delete(s.left, field)
	if !ok || v == nil {
		return 0, false, nil
	}
	f, is := v.(float64)
	if n = int64(f); !is || float64(n) != f {
		return 0, false, fmt.Errorf("%s: spec.%s: want a whole number", s.of, field)
	}
	return n, true, nil
}

// object takes a field that is the text of a JSON object.
func (s *spec) object(field string) (map[string]any, error) {
	text, err := s.text(field)
	if err != nil || strings.TrimSpace(text) == "" {
		return nil, err
	}
	v, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: spec.%s: %w", s.of, field, err)
	}
	return v, nil
}

// decode reads a JSON object as the operators do, which takes YAML too.
func decode(text string) (v map[string]any, err error) {
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	return v, nil
}

// rest says of what is still there that it was left out.
func (s *spec) rest() {
	var names []string
	for k := range s.left {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		s.doubt("spec.%s is not known here and was left out", k)
	}
}

// compact is a value as JSON on one line.
func compact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSpace(b.String())
}
