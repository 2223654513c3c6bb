// Package redact removes secrets from what leaves a node: from texts by their form, and from the files of other
// programs by keeping only what is known to be needed.
package redact

import (
	"bytes"
	"regexp"
)

// Removed stands where a secret was.
const Removed = "(removed)"

// forms are secrets that are known by what they look like, without a name before them. Each is a regular expression
// of RE2, whose time is linear in the text.
var forms = []struct {
	pattern *regexp.Regexp
	with    string
}{
	// Private keys; one whose end is missing reaches to the end of the text.
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*-----|\z)`), Removed},
	// What cloud-init was given has whatever the owner of the machine wrote.
	{regexp.MustCompile(`(?s)#cloud-config.*`), Removed},
	// Base64 of "-----BEGIN", of "#cloud-config", and of {" as in JSON web tokens and Docker's configuration.
	{regexp.MustCompile(`(?:LS0tLS1CRUdJTi|I2Nsb3VkLWNvbmZpZ)[\w+/=\\-]*`), Removed},
	{regexp.MustCompile(`eyJ[\w+/=-]{8,}(?:\.[\w+/=-]*)*`), Removed},
	// URLs with a user and a password, of any scheme, and the same without a scheme.
	{regexp.MustCompile(`(\w://)[^\s<>]*@`), "${1}" + Removed + "@"},
	{regexp.MustCompile(`(?i)(jdbc:)\S*@`), "${1}" + Removed + "@"},
	{regexp.MustCompile(`[\w.%+-]+:[^\s@/]+@([\w\[])`), Removed + "@${1}"},
	// Headers.
	{regexp.MustCompile(`(?i)\b(bearer|basic|negotiate)[ \t]+[\w.~+/=-]{8,}`), "$1 " + Removed},
	// Keys of clouds and services with a fixed beginning.
	{regexp.MustCompile(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}`), Removed},
	{regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|AIza|ya29\.|hf_|sk-|AGE-SECRET-KEY-1)` +
		`[\w.-]{16,}`), Removed},
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), Removed}, // kubeadm
	// Hashes of passwords, as in /etc/shadow.
	{regexp.MustCompile(`\$(?:1|2[abxy]|5|6|7|y|gy|argon2\w*)\$[\w./$=,+-]+`), Removed},
	// netrc, curl -u, and XML.
	{regexp.MustCompile(`(?i)\b(login[ \t]+\S+\s+password)[ \t]+\S+`), "$1 " + Removed},
	{regexp.MustCompile(`((?:^|\s)(?:-u|--user|--proxy-user)[ =])\S+:\S+`), "${1}" + Removed},
	{regexp.MustCompile(`(?i)(<[\w:.-]*(?:` + names + `|pass)[\w:.-]*[^<>]*>)[^<]+`), "${1}" + Removed},
}

// passes is how often a text is gone through: what one pass removes can make another form visible.
const passes = 8

// Text removes secrets: the values of fields, variables and options that are called like one, and what looks like one
// (see forms). The same text again stays as it is. JSON is read as such, with whatever is in its strings.
func Text(b []byte) []byte {
	if out, ok := jsonText(b); ok {
		return out
	}
	b = plain(b)
	if out, ok := jsonText(b); ok { // it was none because of what has been removed
		return out
	}
	return b
}

func plain(b []byte) []byte {
	for range passes {
		next := pairs(b)
		for _, f := range forms {
			next = f.pattern.ReplaceAll(next, []byte(f.with))
		}
		if bytes.Equal(next, b) {
			return b
		}
		b = next
	}
	return []byte(Removed) // no text that a program prints gets here
}
