package cli

import "regexp"

// secretNames are parts of the names of fields and variables with secrets.
const secretNames = "password|passwd|secret|token|api[_-]?key|credential|(?:client-)?key-data|authorization"

// secrets are what must not leave the node, wherever it turns up: values of fields and variables that are called so,
// bearer and JSON web tokens, private keys, passwords in URLs.
var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?is)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`), "REDACTED KEY"},
	{regexp.MustCompile(`eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*`), "REDACTED TOKEN"},
	{regexp.MustCompile(`(?i)(bearer|basic)\s+[\w.~+/=-]{8,}`), "$1 REDACTED"},
	{regexp.MustCompile(`(?i)("?[\w.-]*(?:` + secretNames + `)[\w.-]*"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|[^\s,;}]+)`),
		`$1"REDACTED"`},
	{regexp.MustCompile(`(\w+://[^/\s:@]+:)[^@\s/]+@`), "${1}REDACTED@"},
}

// redact removes secrets from a text.
func redact(b []byte) []byte {
	for _, s := range secrets {
		b = s.pattern.ReplaceAll(b, []byte(s.with))
	}
	return b
}
