package encode

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// APIVersion is that of every object that fabricctl prints for programs. docs/fabricctl.md says what it promises.
const APIVersion = "fabricctl.fabric.dev/v1"

// Object is a struct as an object of this kind, in the format json or yaml: apiVersion and kind are first, then come
// the struct's own fields. A list is [] and a map is {} where it is nil.
func Object(format, kind string, v any) ([]byte, error) {
	as, head := JSON, fmt.Sprintf("{\n  \"apiVersion\": %q,\n  \"kind\": %q,\n", APIVersion, kind)
	if format == "yaml" {
		as, head = YAML, fmt.Sprintf("apiVersion: %s\nkind: %s\n", APIVersion, kind)
	}
	b, err := as(Filled(v))
	if err != nil {
		return nil, err
	}
	switch rest, ok := bytes.CutPrefix(b, []byte("{\n")); {
	case string(b) == "{}\n" && format != "yaml":
		return []byte(strings.TrimSuffix(head, ",\n") + "\n}\n"), nil
	case string(b) == "{}\n":
		return []byte(head), nil
	case format != "yaml" && !ok:
		return nil, fmt.Errorf("encode %s: %T is no struct", kind, v)
	case format != "yaml":
		b = rest
	}
	return append([]byte(head), b...), nil
}

// Filled is a copy of a value in which no list and no map is nil: their readers need no case for null. A field that is
// left out when it is zero (omitzero) stays so: there nil and empty differ.
func Filled(v any) any {
	if v == nil {
		return nil
	}
	return filled(reflect.ValueOf(v)).Interface()
}

// textual are the types that encode themselves.
var textual = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}

func filled(v reflect.Value) reflect.Value {
	for _, t := range textual {
		if v.Type().Implements(t) {
			return v
		}
	}
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			break
		}
		if v.Kind() == reflect.Interface {
			out.Set(filled(v.Elem()))
			break
		}
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(filled(v.Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && (!v.Field(i).IsZero() || !strings.Contains(f.Tag.Get("json"), ",omitzero")) {
				out.Field(i).Set(filled(v.Field(i)))
			}
		}
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(filled(v.Index(i)))
		}
	case reflect.Map:
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for k, e := range v.Seq2() {
			out.SetMapIndex(k, filled(e))
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(filled(v.Index(i)))
		}
	default: // a value without parts
	}
	return out
}
