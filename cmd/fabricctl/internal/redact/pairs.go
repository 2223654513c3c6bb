package redact

import (
	"bytes"
	"regexp"
	"strings"
)

// names are parts of what fields and variables with secrets are called.
const names = `password|passwd|passphrase|passcode|secret|token|credential|authorization|cookie|` +
	`(?:api|access|private|account|encryption|master|signing|shared|ssh)[` +
	` _-]?key|(?:key|certificate|authority)-data|` +
	`connection[ _-]?string|user[_-]?data|bearer|jwt`

const (
	// key is a name with one of these in it, or with one of the short ones at its end.
	key = `[\w.-]*(?:(?:` + names + `)[\w.-]*|pass|pwd|auth|dsn|psk|sig|signature|session[_-]?id)`
	// closing is the quote after a key, at any depth of escaping.
	closing = "(?:\\\\*(?:[\"'`]|u002[27])|&quot;|&#3[49];)?"
	is      = `[ \t]*(?::=|=>|[:=]|%3[adAD])[ \t]*`
)

// named finds what comes before a secret: in the first group the name and value of a Kubernetes variable, in the
// second a field or variable, in the third an option whose value is the next word.
var named = regexp.MustCompile(`(?i)(\bname` + closing + is + `\\*["']?` + key + closing +
	`,?\s+(?:- )?\\*["']?value` +
	closing + is + `)|(` + key + closing + is + `)|(--?` + key + closing + `,?(?:[ \t]+|[ \t]*\n[ \t]*(?:-[ \t]+)?))`)

// start is what may be before the first key of a line.
var start = regexp.MustCompile(`^[\s#>;"'?-]*(?:export[ \t]+|set[ \t]+)?["']?$`)

// pairs removes the values of what is called like a secret. A value without quotes reaches to the end of its line, as
// it may have spaces; with what follows it, if that is indented more than the name, as in YAML.
func pairs(b []byte) []byte {
	var out bytes.Buffer
	for {
		at := named.FindSubmatchIndex(b)
		if at == nil {
			out.Write(b)
			return out.Bytes()
		}
		begin, end := at[0], at[1]
		line := lineBefore(out.Bytes(), b[:begin])
		if at[2] >= 0 { // what is indented counts from the line of "value"
			if i := bytes.LastIndexByte(b[:end], '\n'); i >= begin {
				line = b[i+1 : i+1+len(b[i+1:end])-len(bytes.TrimLeft(b[i+1:end], " \t-"))]
			}
		}
		text, rest := value(b[end:], at[6] >= 0)
		if start.Match(line) && at[6] < 0 {
			rest = indented(rest, len(line))
		}
		out.Write(b[:end])
		out.WriteString(text)
		b = rest
	}
}

// lineBefore is the part of the current line that has been looked at.
func lineBefore(done, more []byte) []byte {
	if i := bytes.LastIndexByte(more, '\n'); i >= 0 {
		return more[i+1:]
	}
	// A line that has a secret in it already does not begin with this one: a few bytes tell.
	tail := done[max(0, len(done)-200):]
	return append(tail[bytes.LastIndexByte(tail, '\n')+1:len(tail):len(tail)], more...)
}

// value returns what stands for the value at the beginning of b, and what comes after the value.
func value(b []byte, word bool) (text string, rest []byte) {
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) > 0 && strings.IndexByte("\"'`\\", trimmed[0]) >= 0 {
		if text, rest, ok := quoted(trimmed); ok {
			return text, rest
		}
	}
	end := len(b)
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		end = i
	}
	if word {
		if i := bytes.IndexAny(b[:end], " \t\r"); i >= 0 {
			end = i
		}
	}
	for !word && end > 0 && end < len(b) && b[end-1] == '\\' { // the value goes on in the next line
		next := bytes.IndexByte(b[end+1:], '\n')
		if next < 0 {
			next = len(b) - end - 1
		}
		end += 1 + next
	}
	if len(bytes.TrimSpace(b[:end])) == 0 {
		return "", b[end:]
	}
	return Removed, b[end:]
}

// quoted is value for one in quotes, at any depth of escaping. A value that is not closed reaches to the end of the
// text. It returns false if b does not begin with a quote.
func quoted(b []byte) (text string, rest []byte, ok bool) {
	depth := 0
	for depth < len(b) && b[depth] == '\\' {
		depth++
	}
	if depth == len(b) || strings.IndexByte("\"'`", b[depth]) < 0 {
		return "", nil, false
	}
	open := b[:depth+1]
	if q := bytes.Repeat(open[depth:], 3); depth == 0 && bytes.HasPrefix(b, q) { // TOML, Python
		_, rest, _ := bytes.Cut(b[3:], q)
		return string(q) + Removed + string(q), rest, true
	}
	slashes := 0
	for i := len(open); i < len(b); i++ {
		switch {
		case b[i] == '\\':
			slashes++
			continue
		case b[i] == open[depth] && slashes < depth: // the quote around it ends here
			return lineEnd(b, i)
		case b[i] == open[depth] && slashes%(2*depth+2) == depth:
			if i+1 < len(b) && strings.IndexByte(" \t\r\n,;}])>", b[i+1]) < 0 && !escapedEnd(b[i+1:], depth) {
				return lineEnd(b, i) // a quote within it
			}
			return string(open) + Removed + string(open), b[i+1:], true
		}
		slashes = 0
	}
	return Removed, nil, true
}

// escapedEnd reports whether the text around an escaped one goes on in a way that ends a value.
func escapedEnd(b []byte, depth int) bool {
	return depth > 0 && (b[0] == '"' || b[0] == '\'' || bytes.HasPrefix(b, []byte(`\n`)))
}

func lineEnd(b []byte, from int) (text string, rest []byte, ok bool) {
	if i := bytes.IndexByte(b[from:], '\n'); i >= 0 {
		return Removed, b[from+i:], true
	}
	return Removed, nil, true
}

// indented cuts off the lines that belong to a key in column: more indented ones, and the items of a list. b begins
// where the key's own line ends, or goes on.
func indented(b []byte, column int) []byte {
	eol := bytes.IndexByte(b, '\n')
	if eol < 0 || len(bytes.TrimSpace(b[:eol])) > 0 {
		return b
	}
	rest := b[eol:]
	for len(rest) > 1 {
		line, _, _ := bytes.Cut(rest[1:], []byte("\n"))
		text := bytes.TrimLeft(line, " \t\r")
		indent := len(line) - len(text)
		item := indent == column && bytes.HasPrefix(text, []byte("- "))
		if len(text) > 0 && indent <= column && !item {
			break
		}
		rest = rest[1+len(line):]
	}
	return rest
}
