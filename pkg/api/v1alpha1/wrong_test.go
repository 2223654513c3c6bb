package v1alpha1_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// judge is what the API server does with an object of a CRD: unknown fields, defaults, schema, lists, rules.
type judge struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

func newJudge(t *testing.T, file string) *judge {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(b, crd); err != nil {
		t.Fatal(err)
	}
	props := &apiextensions.JSONSchemaProps{}
	err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	return &judge{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func (j *judge) judge(t *testing.T, object string) string {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatalf("%s\n%v", object, err)
	}
	o := map[string]any{}
	if err := json.Unmarshal(b, &o); err != nil { // with integers, as the API server
		t.Fatalf("%s\n%v", object, err)
	}
	opts := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	var out []string
	for _, path := range pruning.PruneWithOptions(o, j.structural, true, opts) {
		out = append(out, `unknown field "`+path+`"`)
	}
	defaulting.Default(o, j.structural)
	errs := validation.ValidateCustomResource(nil, o, j.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, o)...)
	if len(errs) == 0 {
		rules, _ := j.rules.Validate(context.Background(), nil, j.structural, o, nil,
			celconfig.RuntimeCELCostBudget)
		errs = append(errs, rules...)
	}
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return strings.Join(out, "\n")
}

// Every wrong Fabric is refused, with the field and the cure. integration/cluster applies the same ones to a real API
// server.
func TestWrongFabrics(t *testing.T) {
	j := newJudge(t, "../../../deployments/crds/fabric.dev_fabrics.yaml")
	for _, w := range fabrics.AllWrong {
		got := j.judge(t, w.Object())
		for _, want := range w.Want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", w.Name, got, want)
			}
		}
	}
}

func TestRightFabrics(t *testing.T) {
	j := newJudge(t, "../../../deployments/crds/fabric.dev_fabrics.yaml")
	for _, spec := range []string{
		`{}`,
		`{match: {linkLayer: InfiniBand, rateGb: 200, subnetPrefix: "fe80::", devices: ["0000:3b:*", "ibs1*"], rail: 3}}`,
		`{match: {subnetPrefix: "fec0:0000:0000:0001"}}`,
		`{mode: shared, shares: 16, network: {pkey: "0x8001", ipoibMode: connected, umcast: true}}`,
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/16, network_name: a, exclude: [10.0.0.0/30]}}}`,
		`{addresses: {ipam: {type: nv-ipam, poolName: a}}, namespaces: {selector: {}}}`,
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNode: 26, exclude: [10.0.0.0/26, 10.0.1.1]},
		  {range: "fd00::/64", perNode: 112}], static: [{node: a, range: 10.0.4.0/26}], reclaim: 48h}}}`,
		`{health: {counters: [{counter: symbol_error, perMinute: 10}], flaps: 0, recovery: 5m, action: Withhold}}`,
	} {
		if got := j.judge(t, fabrics.Object("right", spec)); got != "" {
			t.Errorf("%s: %s", spec, got)
		}
	}
}
