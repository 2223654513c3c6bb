package doctor

import (
	"bytes"
	"encoding/json"
	"html"
	"regexp"
	"strings"
)

// logLine is one line of a log, as the program has printed it.
type logLine struct {
	text string // without what a terminal, a page or a container runtime has added
	time string // that the container runtime has noted, as it stands there
}

// plainly undoes what web pages and editors make of quotation marks and spaces.
var plainly = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`, "\u00a0", " ", "\x00", "")

// escaped is a sign that Markdown or JSON has put a backslash before.
var escaped = regexp.MustCompile("\\\\([]_*`#().!<>+\"'|~{}[-])")

// cleaned takes a line out of its wrapping: colours have gone by now.
func cleaned(raw []byte) (l logLine) {
	if bytes.HasPrefix(raw, []byte(`{"log":"`)) { // Docker's json-file
		var wrapped struct{ Log, Time string }
		if json.Unmarshal(raw, &wrapped) == nil {
			raw, l.time = []byte(wrapped.Log), wrapped.Time[:min(len(wrapped.Time), maxTime)]
		}
	}
	s := string(raw)
	if bytes.ContainsFunc(raw, func(r rune) bool { return r == 0 || r >= 0x7f }) {
		s = plainly.Replace(strings.ToValidUTF8(s, "?"))
	}
	if strings.IndexByte(s, '\\') >= 0 {
		s = escaped.ReplaceAllString(s, "$1")
	}
	if strings.IndexByte(s, '&') >= 0 {
		s = html.UnescapeString(s)
	}
	l.text = strings.TrimSpace(s)
	return l
}

// before is what programs that collect logs put before a line: kubectl --prefix and --timestamps, the files of CRI, the
// journal, mpirun --tag-output and --timestamp-output, torchrun, srun --label, docker compose, stern.
var before = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`\[(?:pod|container)/[^\]\s]*\]`,
	`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*(?: std(?:out|err) [FP])?`,
	`[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}`,
	`[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ \S+?(?:\[\d+\])?:`,
	`\[\d+,\d+\](?:<std\w+>)?:`,
	`\[(?:rank|default|trainer)?\d+\]:`,
	`\d{1,5}:`,
	`[\w.-]+ +\|`,
}, "|") + `)\s*`)

// bare is a line without what collectors of logs have put before it.
func (l logLine) bare() string {
	s := l.text
	for range 4 {
		cut := len(before.FindString(s))
		if cut == 0 {
			break
		}
		s = s[cut:]
	}
	return s
}

// maxTime bounds a time stamp, and maxHead where in a line one is looked for, in bytes.
const (
	maxTime = 40
	maxHead = 256
)

// stamps are time stamps: RFC 3339 and what is like it, klog and glog, syslog and ctime, and seconds (UCX since 1970,
// the kernel since it was started).
var stamps = regexp.MustCompile(strings.Join([]string{
	`\b(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d\b)?)`,
	`\b[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{1,9})\b`,
	`\b([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \d{4})?)\b`,
	`^\[ *(\d{1,10}\.\d{6})\]`,
}, "|"))

// stamp is the time in a line, as it stands there, or empty.
func (l logLine) stamp() string {
	if l.time != "" {
		return l.time
	}
	m := stamps.FindStringSubmatch(l.text[:min(len(l.text), maxHead)])
	for _, s := range m[min(1, len(m)):] {
		if s != "" {
			return s[:min(len(s), maxTime)]
		}
	}
	return ""
}

// colours are escape sequences of terminals.
var colours = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])`)
