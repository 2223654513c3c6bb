// Package admit says of an object of a CustomResourceDefinition what the API server says when it is applied, with the
// API server's own code: unknown fields, metadata, defaults, schema, lists, rules. It is pure.
package admit

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Judge knows a CustomResourceDefinition.
type Judge struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// Problem is a mistake in an object.
type Problem struct {
	Field string // as in spec.match.rateGb
	Text  string // the words of the API server, with the field
}

// New reads a CustomResourceDefinition in YAML. Its first version counts.
func New(definition []byte) (*Judge, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(definition, crd); err != nil {
		return nil, fmt.Errorf("read a CustomResourceDefinition: %w", err)
	}
	at := func(err error) error { return fmt.Errorf("read CustomResourceDefinition %s: %w", crd.Name, err) }
	props := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil)
	if err != nil {
		return nil, at(err)
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, at(err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, at(err)
	}
	return &Judge{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// Object returns what is wrong with an object in JSON. old is the object of that name that is there already; it may be
// nil.
func (j *Judge) Object(object, old []byte) (out []Problem, err error) {
	o, metaUnknown, err := decode(object)
	if err != nil {
		return nil, err
	}
	var was any // of no type: the rules ask whether it is nil
	if old != nil {
		m, _, err := decode(old)
		if err != nil {
			return nil, err
		}
		pruning.PruneWithOptions(m, j.structural, true, schema.UnknownFieldPathOptions{})
		defaulting.Default(m, j.structural)
		was = m
	}
	opts := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	for _, path := range append(metaUnknown, pruning.PruneWithOptions(o, j.structural, true, opts)...) {
		out = append(out, Problem{path, `unknown field "` + path + `"`})
	}
	defaulting.Default(o, j.structural)
	errs := metadata(o)
	errs = append(errs, validation.ValidateCustomResource(nil, o, j.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, o)...)
	if len(errs) == 0 {
		rules, _ := j.rules.Validate(context.Background(), nil, j.structural, o, was, celconfig.RuntimeCELCostBudget)
		errs = append(errs, rules...)
	}
	for _, err := range errs {
		out = append(out, Problem{err.Field, err.Error()})
	}
	return out, nil
}

// decode reads an object with integers, as the API server does, and returns the fields of its metadata that are
// unknown.
func decode(b []byte) (o map[string]any, unknown []string, err error) {
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, nil, fmt.Errorf("read an object: %w", err)
	}
	if o["metadata"] == nil {
		return o, nil, nil
	}
	meta, _, unknown, err := objectmeta.GetObjectMetaWithOptions(o, objectmeta.ObjectMetaOptions{
		DropMalformedFields: false, ReturnUnknownFieldPaths: true,
	})
	if err == nil && meta != nil {
		err = objectmeta.SetObjectMeta(o, meta)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("metadata: %w", err)
	}
	return o, unknown, nil
}

// metadata checks names, labels and annotations. The object is that of a cluster-scoped kind.
func metadata(o map[string]any) field.ErrorList {
	meta, _, err := objectmeta.GetObjectMeta(o, false)
	if err != nil || meta == nil {
		return field.ErrorList{field.Required(field.NewPath("metadata", "name"), "name is required")}
	}
	meta.Namespace = ""
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = meta.GenerateName + "abcde" // as the API server names it
	}
	return apivalidation.ValidateObjectMeta(meta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// Judge returns what is wrong with an object in YAML, a line for each mistake. It is empty if nothing is.
func (j *Judge) Judge(object string) (string, error) {
	b, err := yaml.YAMLToJSONStrict([]byte(object))
	if err != nil {
		return "", fmt.Errorf("read an object: %w in\n%s", err, object)
	}
	problems, err := j.Object(b, nil)
	var out []string
	for _, p := range problems {
		out = append(out, p.Text)
	}
	return strings.Join(out, "\n"), err
}
