package ipam

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// unknownKey returns the path of a key of a decoded JSON value that has no field in the type, "" if all have. Case does
// not matter, as it does not to the decoder.
func unknownKey(v any, t reflect.Type, path string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return "" // the decoder rejects it
		}
		for i, e := range v {
			if key := unknownKey(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); key != "" {
				return key
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return ""
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			f, ok := fieldOf(t, name)
			if !ok {
				return path + "." + name
			}
			if key := unknownKey(v[name], f, path+"."+name); key != "" {
				return key
			}
		}
	}
	return ""
}

// fieldOf returns the type of the field that a key is decoded into. Fields of embedded structs count, as they do for
// the decoder.
func fieldOf(t reflect.Type, key string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		if name != "-" && strings.EqualFold(name, key) {
			return f.Type, true
		}
	}
	return nil, false
}
