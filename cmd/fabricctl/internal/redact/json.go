package redact

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// secret is a key as a whole.
var secret = regexp.MustCompile(`(?i)^(?:` + key + `)$`)

// option is an option of a command whose value is the next element of its list.
var option = regexp.MustCompile(`(?i)^--?` + key + `$`)

// jsonText is Text for a JSON document. It returns false if b is not one.
func jsonText(b []byte) ([]byte, bool) {
	v, ok := document(b)
	if !ok {
		return nil, false
	}
	return encode(clean(v, nil), "  "), true
}

// document reads a JSON object or list.
func document(b []byte) (v any, ok bool) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '{' && b[0] != '[' || !json.Valid(b) {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	return v, dec.Decode(&v) == nil
}

func encode(v any, indent string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return []byte(Removed + "\n")
	}
	return b.Bytes()
}

// clean removes secrets from a value. With keys, fields that are not among them lose their values too.
func clean(v any, keys map[string]bool) any {
	switch v := v.(type) {
	case map[string]any:
		variable, _ := v["name"].(string)
		for k, old := range v {
			next := clean(old, keys)
			if secret.MatchString(k) || k == "value" && secret.MatchString(variable) || !kept(k, old, keys) {
				next = without(old)
			}
			if clean := string(plain([]byte(k))); clean != k {
				delete(v, k)
				k = clean
			}
			v[k] = next
		}
	case []any:
		for i, old := range v {
			if s, ok := old.(string); ok && i > 0 && isOption(v[i-1]) {
				v[i] = without(s)
				continue
			}
			v[i] = clean(old, keys)
		}
	case string:
		if inner, ok := document([]byte(v)); ok {
			return strings.TrimSpace(string(encode(clean(inner, keys), "")))
		}
		return string(plain([]byte(v)))
	}
	return v
}

// kept reports whether a field is one that is known, in upper or lower case, as peers of the plugin write theirs.
// Numbers are those of a pool's addresses. A configuration that is not JSON can't be reduced.
func kept(k string, v any, keys map[string]bool) bool {
	if text, ok := v.(string); ok && k == "config" && keys != nil {
		_, isJSON := document([]byte(text))
		return isJSON
	}
	_, err := strconv.Atoi(k)
	return keys == nil || keys[strings.ToLower(k)] || err == nil
}

func isOption(v any) bool {
	s, ok := v.(string)
	return ok && option.MatchString(s)
}

// without is what stands for a removed value: that there was none is no secret.
func without(v any) any {
	switch v {
	case nil, true, false, "":
		return v
	}
	return Removed
}
