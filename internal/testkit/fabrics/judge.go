package fabrics

import (
	"context"
	"fmt"
	"os"
	"strings"

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
)

// Judge says of an object of a CRD what the API server says: unknown fields, defaults, schema, lists, rules.
type Judge struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// NewJudge reads the file of a CRD.
func NewJudge(file string) (*Judge, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(b, crd); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	props := &apiextensions.JSONSchemaProps{}
	err = apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return &Judge{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// Judge returns what is wrong with an object in YAML, a line for each mistake. It is empty if nothing is.
func (j *Judge) Judge(object string) (string, error) {
	b, err := yaml.YAMLToJSONStrict([]byte(object))
	if err != nil {
		return "", fmt.Errorf("read an object: %w in\n%s", err, object)
	}
	o := map[string]any{}
	if err := json.Unmarshal(b, &o); err != nil { // with integers, as the API server
		return "", fmt.Errorf("read an object: %w in\n%s", err, object)
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
	return strings.Join(out, "\n"), nil
}
