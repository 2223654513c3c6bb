package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The reading below is done on the raw text, after it is known to be valid JSON. Decoding into a struct would lose what
// the errors need (the value as written, a key that is there twice) and costs several times more in each exec.

// value is a piece of valid JSON and where it is. A zero value is a field that is not there, or null.
type value struct {
	path string // "runtimeConfig.mac", in the user's spelling
	raw  []byte
}

func (v value) ok() bool { return v.raw != nil }

// member is one key of an object with its value.
type member struct {
	key     string // as we know it
	written string // as the user wrote it; differs from key in case only
	raw     []byte
}

// object is a JSON object. The zero object has no members.
type object struct {
	path    string
	members []member
}

func (o object) at(m member) value {
	if o.path == "" {
		return value{m.written, m.raw}
	}
	return value{o.path + "." + m.written, m.raw}
}

// checkJSON makes sure that stdin is one JSON object of at most so many bytes, within the other limits.
func checkJSON(stdin []byte, most int) *Error {
	bad := func(problem, allowed string, err error) *Error {
		return &Error{Code: CodeDecode, Problem: problem, Allowed: allowed, Err: err}
	}
	if len(stdin) > most {
		return bad(fmt.Sprintf("%d bytes on stdin", len(stdin)), fmt.Sprintf("at most %d KiB", most>>10), nil)
	}
	if !utf8.Valid(stdin) {
		n := 0
		for rest := stdin; ; {
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError && size == 1 {
				break
			}
			n, rest = n+size, rest[size:]
		}
		return bad(fmt.Sprintf("the byte at offset %d is not UTF-8", n), "JSON in UTF-8", nil)
	}
	if depth(stdin) > maxDepth {
		return bad("nested too deep", fmt.Sprintf("at most %d levels", maxDepth), nil)
	}
	text := bytes.Trim(stdin, jsonSpace)
	switch {
	case len(text) == 0:
		return bad("nothing on stdin", "a JSON object", nil)
	case json.Valid(stdin) && text[0] == '{':
		return nil
	case json.Valid(stdin):
		return &Error{Code: CodeDecode, Value: shown(text), Allowed: "a JSON object"}
	}
	var whole json.RawMessage
	err := json.Unmarshal(stdin, &whole)
	at := ""
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		before := stdin[:min(max(int(syntax.Offset)-1, 0), len(stdin))]
		at = fmt.Sprintf(
			" (line %d, column %d)",
			bytes.Count(before, []byte("\n"))+1,
			len(before)-bytes.LastIndexByte(before, '\n'),
		)
	}
	return bad("not valid JSON"+at, "", err)
}

const jsonSpace = " \t\r\n"

// depth counts the deepest nesting of a text that need not be valid JSON.
func depth(text []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// stringEnd returns the index behind the string that starts at i.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// valueEnd returns the index behind the value that starts at i, in valid JSON.
func valueEnd(text []byte, i int) int {
	if text[i] == '"' {
		return stringEnd(text, i)
	}
	for now := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			i = stringEnd(text, i) - 1
		case c == '{' || c == '[':
			now++
		case now == 0 && (c == ',' || c == '}' || c == ']' || strings.IndexByte(jsonSpace, c) >= 0):
			return i
		case c == '}' || c == ']':
			if now--; now == 0 {
				return i + 1
			}
		}
	}
	return i
}

// skipSpace returns the index of the first byte at or after i that is no space.
func skipSpace(text []byte, i int) int {
	for i < len(text) && strings.IndexByte(jsonSpace, text[i]) >= 0 {
		i++
	}
	return i
}

// split returns the members of a valid JSON object.
func split(raw []byte) []member {
	var ms []member
	for i := skipSpace(raw, 1); raw[i] != '}'; {
		end := valueEnd(raw, i)
		key := unquote(raw[i:end])
		i = skipSpace(raw, skipSpace(raw, end)+1) // over the colon
		end = valueEnd(raw, i)
		ms = append(ms, member{key, key, raw[i:end:end]})
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return ms
}

// elements returns the elements of a valid JSON array.
func elements(raw []byte) [][]byte {
	var es [][]byte
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		end := valueEnd(raw, i)
		es = append(es, raw[i:end:end])
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return es
}

// unquote returns the text of a valid JSON string.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return string(raw) // not reached: the text is valid
	}
	return s
}

func isNull(raw []byte) bool { return string(raw) == "null" }
