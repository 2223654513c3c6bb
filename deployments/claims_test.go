package deployments_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// pods are the pods of a file: those that it has, and those that a PyTorchJob would make of its template.
func pods(t *testing.T, file string) (out []corev1.PodTemplateSpec) {
	t.Helper()
	for _, text := range documents(t, file) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), u); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		o := u.Object
		switch u.GetKind() {
		case "Pod":
		case "PyTorchJob":
			o, _, _ = unstructured.NestedMap(o, "spec", "pytorchReplicaSpecs", "Worker", "template")
		default:
			continue
		}
		b, err := json.Marshal(map[string]any{"metadata": o["metadata"], "spec": o["spec"]})
		p := corev1.PodTemplateSpec{}
		if err == nil {
			err = yaml.UnmarshalStrict(b, &p)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, p)
	}
	return out
}

// templates are the claim templates of a file by name.
func templates(t *testing.T, file string) map[string]*resourcev1.ResourceClaimTemplate {
	t.Helper()
	out := map[string]*resourcev1.ResourceClaimTemplate{}
	for _, text := range documents(t, file) {
		if o := (&resourcev1.ResourceClaimTemplate{}); strings.Contains(text, "kind: ResourceClaimTemplate\n") {
			if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out[o.Name] = o
		}
	}
	return out
}

// Each pod of the examples for DRA has devices, from its claims or its resources, and no more networks of a fabric than
// devices of it.
func TestClaims(t *testing.T) {
	known := map[string]*fabrics.Fabric{}
	for _, f := range overlays(t) {
		known[f.DeviceClass()] = &f
	}
	files, err := filepath.Glob("examples/dra-*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		claims := templates(t, file)
		list := pods(t, file)
		if len(list) == 0 {
			t.Errorf("%s has no pod", file)
		}
		for _, p := range list {
			devices, networks := map[string]int64{}, map[string]int64{}
			for _, network := range strings.Split(p.Annotations["k8s.v1.cni.cncf.io/networks"], ",") {
				if name, _, _ := strings.Cut(strings.TrimSpace(network), "@"); name != "" {
					networks[name]++
				}
			}
			for _, c := range p.Spec.ResourceClaims {
				o := claims[*c.ResourceClaimTemplateName]
				if o == nil {
					t.Fatalf("%s: no template %s", file, *c.ResourceClaimTemplateName)
				}
				count(t, file, o, known, devices)
			}
			for name, n := range p.Spec.Containers[0].Resources.Limits {
				if f, ours := strings.CutPrefix(string(name), fabrics.ResourcePrefix); ours {
					devices[f] += n.Value()
				}
			}
			if len(devices) == 0 || len(networks) > 0 && !maps.Equal(devices, networks) {
				t.Errorf("%s: devices %v, networks %v", file, devices, networks)
			}
		}
	}
}

// count adds the devices of a claim by fabric, and judges what the API server does not look at.
func count(
	t *testing.T, file string, o *resourcev1.ResourceClaimTemplate, known map[string]*fabrics.Fabric,
	by map[string]int64,
) {
	t.Helper()
	for _, r := range o.Spec.Spec.Devices.Requests {
		if !strings.HasSuffix(r.Exactly.DeviceClassName, "."+fabrics.Driver) {
			continue // the class of a GPU
		}
		f := known[r.Exactly.DeviceClassName]
		if f == nil || f.Allocation != v1alpha1.DRA {
			t.Errorf("%s: no overlay has the class %s", file, r.Exactly.DeviceClassName)
			continue
		}
		by[f.Name] += max(r.Exactly.Count, 1)
		for _, s := range r.Exactly.Selectors {
			for rate, want := range map[int64]bool{0: false, 200: false, 400: true, 800: true} {
				if got := selects(t, s.CEL.Expression, f, rate); got != want {
					t.Errorf("%s: %s is %t for a device of %d Gb/s", file, s.CEL.Expression, got, rate)
				}
			}
		}
	}
	for _, c := range o.Spec.Spec.Devices.Config {
		p := &v1alpha1.InterfaceConfig{}
		if err := yaml.UnmarshalStrict(c.Opaque.Parameters.Raw, p); err != nil || c.Opaque.Driver != fabrics.Driver ||
			p.APIVersion != v1alpha1.GroupVersion.String() || p.Kind != "InterfaceConfig" {
			t.Errorf("%s: %s: %v", file, c.Opaque.Parameters.Raw, err)
		}
	}
}

// selects has the scheduler's own evaluation judge a device.
func selects(t *testing.T, expression string, f *fabrics.Fabric, rate int64) bool {
	t.Helper()
	c := cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{})
	if c.Error != nil {
		t.Fatalf("%s: %v", expression, c.Error)
	}
	attributes := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"fabric": {StringValue: &f.Name}}
	if rate != 0 {
		attributes["rateGb"] = resourcev1.DeviceAttribute{IntValue: &rate}
	}
	got, _, err := c.DeviceMatches(t.Context(), cel.Device{Driver: fabrics.Driver, Attributes: attributes})
	if err != nil {
		t.Errorf("%s with the rate %d: %v", expression, rate, err)
	}
	return got
}
