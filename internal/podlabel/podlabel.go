// Package podlabel writes the admission policies that give a pod with the label fabric.dev/rails, or
// rails.fabric.dev/NAME, its networks, its resources and the capability IPC_LOCK. The text is files/label.yaml of
// the chart. It is pure.
package podlabel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fabric-cni/fabric-cni/deployments/helm"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Name is that of the policies and of their bindings.
const Name = "fabric-rails"

// Versions are those of admissionregistration.k8s.io that have MutatingAdmissionPolicy, the best one first: v1 since
// Kubernetes 1.36, v1beta1 since 1.34, where it is behind a feature gate.
var Versions = []string{"v1", "v1beta1"}

// MostRails is the most that a label may ask for.
const MostRails = 64

// Options are what the Fabrics do not say.
type Options struct {
	// Version is one of Versions.
	Version string
	// Rails are the fabrics that the label fabric.dev/rails counts: devices of a single one, or one device of each of
	// several. Empty: those with match.rail in the order of their rails, else the only fabric there is.
	Rails []string
	// All is what the value all is, by fabric: how many devices a node has. It is 1 with match.rail and with
	// attachment IPoIBChild.
	All map[string]int
}

// Policy is the policies for these fabrics, as YAML.
func Policy(list []*fabrics.Fabric, o Options) (string, error) {
	if !slices.Contains(Versions, o.Version) {
		return "", fmt.Errorf("version %q: want %s", o.Version, strings.Join(Versions, " or "))
	}
	if len(list) == 0 {
		return "", fmt.Errorf("no Fabric: the policy is made of them")
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *fabrics.Fabric) int { return strings.Compare(a.Name, b.Name) })
	names := map[string]bool{}
	for _, f := range list {
		if names[f.Name] {
			return "", fmt.Errorf("there are two Fabrics %s", f.Name)
		}
		names[f.Name] = true
	}
	if len(o.Rails) == 0 {
		o.Rails = rails(list)
	}
	for i, r := range o.Rails {
		if !names[r] || slices.Contains(o.Rails[:i], r) {
			return "", fmt.Errorf("rails %q: want names of Fabrics, each once", r)
		}
	}
	for name, n := range o.All {
		if !names[name] || n < 1 || n > MostRails {
			return "", fmt.Errorf("all %s=%d: want the name of a Fabric, and 1 to %d", name, n, MostRails)
		}
	}
	// The interfaces of a pod are in this order: net1 is rail 0.
	place := func(f *fabrics.Fabric) int { return (slices.Index(o.Rails, f.Name) + len(list)) % len(list) }
	slices.SortStableFunc(list, func(a, b *fabrics.Fabric) int { return cmp.Compare(place(a), place(b)) })
	var rows []any
	for _, f := range list {
		row, err := row(f, o.All[f.Name])
		if err != nil {
			return "", fmt.Errorf("fabric %s: %w", f.Name, err)
		}
		rows = append(rows, row)
	}
	return render(map[string]any{"apiVersion": o.Version, "name": Name, "rails": o.Rails, "fabrics": rows})
}

// row is what the text takes of a fabric.
func row(f *fabrics.Fabric, all int) (map[string]any, error) {
	for _, n := range f.Namespaces.Names {
		if problems := validation.IsDNS1123Label(n); len(problems) > 0 {
			return nil, fmt.Errorf("namespaces.names %q: %s", n, strings.Join(problems, ", "))
		}
	}
	out := map[string]any{"name": f.Name, "names": f.Namespaces.Names, "all": all}
	// All pods with attachment IPoIBChild are on one device of their node.
	if all == 0 && (f.Match.Rail != nil || f.Attachment == v1alpha1.IPoIBChild) {
		out["all"] = 1
	}
	if s := f.Namespaces.Selector; s != nil {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			return nil, fmt.Errorf("namespaces.selector: %w", err)
		}
		b, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		section := map[string]any{}
		if err := json.Unmarshal(b, &section); err != nil {
			return nil, err
		}
		section["is"] = true // {} selects all, and a template takes an empty map for none
		out["selector"] = section
	}
	return out, nil
}

// rails are the fabrics that fabric.dev/rails counts without Options.Rails: none if they are ambiguous.
func rails(list []*fabrics.Fabric) (out []string) {
	var of []*fabrics.Fabric
	for _, f := range list {
		if f.Match.Rail != nil {
			of = append(of, f)
		}
	}
	if len(of) == 0 && len(list) == 1 {
		return []string{list[0].Name}
	}
	slices.SortFunc(of, func(a, b *fabrics.Fabric) int { return cmp.Compare(*a.Match.Rail, *b.Match.Rail) })
	for i, f := range of {
		if i > 0 && *of[i-1].Match.Rail == *f.Match.Rail {
			return nil
		}
		out = append(out, f.Name)
	}
	return out
}

func render(data map[string]any) (string, error) {
	t, err := template.New("label.yaml").Funcs(template.FuncMap{"toJson": toJSON}).Parse(helm.Label)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", err
	}
	return b.String(), nil
}

// toJSON is a literal of CEL as well: nothing in a value ends the string that it is in.
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
