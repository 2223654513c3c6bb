package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

type writer struct{ text strings.Builder }

func (w *writer) f(format string, args ...any) { fmt.Fprintf(&w.text, format, args...) }

// kind writes everything about a kind.
func (w *writer) kind(crd *apiextensionsv1.CustomResourceDefinition) {
	names, version := crd.Spec.Names, crd.Spec.Versions[0]
	object := version.Schema.OpenAPIV3Schema
	w.f("\n## %s\n\n", names.Kind)
	w.f("`apiVersion: %s/%s`, of the whole cluster (no namespace). `kubectl get %s`", crd.Spec.Group, version.Name,
		names.Plural)
	for _, short := range names.ShortNames {
		w.f(", in short `%s`", short)
	}
	w.f(".\n\n%s\n", prose(object.Description))
	w.f("\n| column of `kubectl get` | what it shows |\n|---|---|\n")
	for _, c := range version.AdditionalPrinterColumns {
		wide := ""
		if c.Priority > 0 {
			wide = ", with `-o wide`"
		}
		w.f("| %s | `%s`%s |\n", strings.ToUpper(c.Name), c.JSONPath, wide)
	}
	w.refusals("", object)
	for _, part := range []string{"spec", "status"} {
		if s, ok := object.Properties[part]; ok {
			w.object(names.Kind, part, &s)
		}
	}
}

// object writes the table of an object, and then those of the objects in it.
func (w *writer) object(kind, path string, s *schema) {
	w.f("\n### %s\n\n", title(kind, path))
	if s.Description != "" {
		w.f("%s\n\n", prose(s.Description))
	}
	w.f("| field | type | meaning |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		field := "`" + name + "`"
		if slices.Contains(s.Required, name) {
			field += " (required)"
		}
		w.f("| %s | %s | %s |\n", field, typeOf(kind, path+"."+name, &p), cell(meaning(&p)))
	}
	if keep := s.XPreserveUnknownFields; keep != nil && *keep {
		w.f("\nOther fields are kept as they are.\n")
	}
	w.refusals(path, s)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if inner, suffix := nested(&p); inner != nil {
			w.object(kind, path+"."+name+suffix, inner)
		}
	}
}

// refusals writes what the rules of an object as a whole refuse; those of a field stand in its row.
func (w *writer) refusals(path string, s *schema) {
	if len(s.XValidations) == 0 {
		return
	}
	w.f("\nRefused:\n\n")
	for _, rule := range s.XValidations {
		where := ""
		if rule.FieldPath != "" {
			where = "`" + path + rule.FieldPath + "`: "
		}
		w.f("- %s%s\n", where, message(&rule))
	}
}

// nested is the object in a field, or in each item of its list.
func nested(s *schema) (inner *schema, suffix string) {
	switch {
	case foreign(s) != "":
	case len(s.Properties) > 0:
		return s, ""
	case s.Items != nil && s.Items.Schema != nil:
		if inner, suffix = nested(s.Items.Schema); inner != nil {
			return inner, "[]" + suffix
		}
	}
	return nil, ""
}

const kubernetes = "https://kubernetes.io/docs/reference/kubernetes-api/"

// foreign is the link to a type of Kubernetes's own.
func foreign(s *schema) string {
	has := func(names ...string) bool {
		for _, n := range names {
			if _, ok := s.Properties[n]; !ok {
				return false
			}
		}
		return len(s.Properties) == len(names)
	}
	switch {
	case has("matchLabels", "matchExpressions"):
		return "[LabelSelector](" + kubernetes + "common-definitions/label-selector/#LabelSelector)"
	case has("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"):
		return "[Condition](" + kubernetes + "definitions/condition-v1-meta/)"
	}
	return ""
}

// typeOf names the type of a field, with a link to its table if it has one.
func typeOf(kind, path string, s *schema) string {
	switch {
	case foreign(s) != "":
		return foreign(s)
	case s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(kind, path+"[]", s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + s.AdditionalProperties.Schema.Type
	case len(s.Properties) > 0:
		return "[object](#" + anchor(title(kind, path)) + ")"
	case s.Format == "date-time":
		return "time"
	case s.XIntOrString:
		return "integer or string"
	}
	return s.Type
}

// meaning is the description of a field, with its default, its limits and its rules.
func meaning(s *schema) string {
	parts := []string{prose(s.Description)}
	if s.Default != nil {
		parts = append(parts, "Default: `"+strings.Trim(string(s.Default.Raw), `"`)+"`.")
	}
	parts = append(parts, limits(s)...)
	if s.Items != nil && s.Items.Schema != nil && len(s.Items.Schema.Properties) == 0 {
		for _, l := range limits(s.Items.Schema) {
			parts = append(parts, "Each: "+l)
		}
		for _, rule := range s.Items.Schema.XValidations {
			parts = append(parts, sentence("Refused: "+message(&rule)))
		}
	}
	if len(s.Properties) == 0 { // those of an object stand below its own table
		for _, rule := range s.XValidations {
			parts = append(parts, sentence("Refused: "+message(&rule)))
		}
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// sentence ends with a full stop.
func sentence(text string) string {
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// limits are what the schema itself allows.
func limits(s *schema) (all []string) {
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, "`"+strings.Trim(string(v.Raw), `"`)+"`")
		}
		all = append(all, "One of "+strings.Join(values, ", ")+".")
	}
	number := func(v *float64) string { return strconv.FormatFloat(*v, 'f', -1, 64) }
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		all = append(all, number(s.Minimum)+" to "+number(s.Maximum)+".")
	case s.Minimum != nil:
		all = append(all, "At least "+number(s.Minimum)+".")
	case s.Maximum != nil:
		all = append(all, "At most "+number(s.Maximum)+".")
	}
	if s.MinItems != nil {
		all = append(all, fmt.Sprintf("At least %d.", *s.MinItems))
	}
	if s.MaxItems != nil {
		all = append(all, fmt.Sprintf("At most %d.", *s.MaxItems))
	}
	if s.MinLength != nil && *s.MinLength > 0 {
		all = append(all, "Not empty.")
	}
	if s.MaxLength != nil {
		all = append(all, fmt.Sprintf("At most %d characters.", *s.MaxLength))
	}
	if s.Pattern != "" {
		all = append(all, "Matches `"+s.Pattern+"`.")
	}
	return all
}

var literal = regexp.MustCompile(`'((?:[^'\\]|\\.)*)'`)

// message is what the API server answers; what it computes for that is shown as "...".
func message(rule *apiextensionsv1.ValidationRule) string {
	text := rule.Message
	if rule.MessageExpression != "" {
		var parts []string
		rest := rule.MessageExpression
		for rest != "" {
			at := literal.FindStringSubmatchIndex(rest)
			if at == nil || at[0] > 0 {
				parts = append(parts, "...")
			}
			if at == nil {
				break
			}
			parts = append(parts, rest[at[2]:at[3]])
			rest = strings.TrimPrefix(strings.TrimPrefix(rest[at[1]:], " "), "+ ")
		}
		text = strings.Join(parts, "")
	}
	text = strings.Join(strings.Fields(text), " ")
	if !strings.HasSuffix(text, "...") {
		text = strings.TrimSuffix(text, ".")
	}
	return escape(text)
}

// title is the heading of an object.
func title(kind, path string) string { return kind + " " + path }

// anchor is the name that GitHub gives to a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

var drop = regexp.MustCompile(`[^a-z0-9_ -]`)

// prose joins the lines of a paragraph.
func prose(text string) string {
	var paragraphs []string
	for _, p := range strings.Split(text, "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(p), " "))
	}
	return escape(strings.Join(paragraphs, "\n\n"))
}

// escape keeps Markdown from reading tags where names stand.
func escape(text string) string { return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(text) }

// cell is text that fits a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("\n\n", "<br>", "\n", " ", "|", `\|`).Replace(text)
}
