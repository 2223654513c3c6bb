package netconf

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The error codes of the CNI specification (section "Error") that a Config can fail with.
const (
	CodeEnvironment uint = 4 // a CNI_* variable is missing or bad
	CodeDecode      uint = 6 // stdin is not one JSON object
	CodeConfig      uint = 7 // a field is unknown, missing or has a value that is not allowed
)

// Error says what is wrong with the configuration or the environment: the field, its value, and what is allowed.
type Error struct {
	Code    uint   // CodeEnvironment, CodeDecode or CodeConfig
	Field   string // with its path as written: "runtimeConfig.mac"; or the variable: "CNI_IFNAME"; empty: all of stdin
	Value   string // as written, shortened; empty when nothing was written
	Allowed string // what is allowed instead
	Problem string // what is wrong; empty: the value is not allowed, or is missing
	Hint    string // what to do
	Err     error  // the cause, if another package found it
}

// Error is one line: field "mtu": value 99999 is not allowed: want 68 to 65520.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case e.Field == "":
		b.WriteString("configuration")
	case e.Code == CodeEnvironment:
		b.WriteString("variable " + e.Field)
	default:
		b.WriteString("field " + strconv.Quote(e.Field))
	}
	b.WriteString(": ")
	if e.Value != "" {
		b.WriteString("value " + e.Value + " ")
	}
	switch {
	case e.Problem != "":
		b.WriteString(e.Problem)
	case e.Value == "":
		b.WriteString("is missing")
	default:
		b.WriteString("is not allowed")
	}
	if e.Allowed != "" {
		b.WriteString(": want " + e.Allowed)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// maxShown bounds what an error repeats of a value, in bytes: the message ends up in the events of a pod.
const maxShown = 80

// shown makes a value of the configuration fit for one line of a message.
func shown(raw []byte) string {
	s := string(raw[:min(len(raw), maxShown+utf8.UTFMax)])
	s = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) <= maxShown {
		return s
	}
	cut := maxShown
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// quoted is shown for a string that is not JSON, as the variables are.
func quoted(s string) string { return shown([]byte(strconv.QuoteToGraphic(s))) }

// notAllowed is the error for a value of a field.
func notAllowed(v value, allowed string) *Error {
	return &Error{Code: CodeConfig, Field: v.path, Value: shown(v.raw), Allowed: allowed}
}
