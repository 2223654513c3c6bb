package doctor

import (
	"regexp"
	"strings"
)

// Message is a family of log lines with one cause.
type Message struct {
	ID       string
	Title    string
	Pattern  *regexp.Regexp
	Except   *regexp.Regexp // lines that Pattern fits, and that mean something else; may be nil
	Examples []string       // as the programs print them
	Cause    string
	Cure     string
}

// Explanation is what a line means.
type Explanation struct {
	ID    string `json:"id"`
	Line  string `json:"line"`
	Title string `json:"title"`
	Cause string `json:"cause"`
	Cure  string `json:"cure"`
	Docs  string `json:"docs"`
}

// maxLine bounds what is looked at of one line, in bytes.
const maxLine = 16 << 10

// plainly undoes what web pages and editors make of quotation marks.
var plainly = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`)

// Explain recognises the messages in a log: each once, with the first line it is in, in the order of the log.
func Explain(log string) (out []Explanation) {
	seen := map[string]bool{}
	for line := range strings.Lines(log) {
		line = plainly.Replace(strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), maxLine)], "?")))
		for _, m := range Messages {
			if seen[m.ID] || !m.Pattern.MatchString(line) || m.Except != nil && m.Except.MatchString(line) {
				continue
			}
			seen[m.ID] = true
			e := Explanation{ID: m.ID, Line: line, Title: m.Title, Cause: m.Cause, Cure: m.Cure, Docs: page(m.ID)}
			e.refine(line)
			out = append(out, e)
		}
	}
	return out
}

var bondName = regexp.MustCompile(`IB device (\S*bond\S*) not found`)

// refine adds what the line itself gives away.
func (e *Explanation) refine(line string) {
	if m := bondName.FindStringSubmatch(line); m != nil {
		e.Cause = m[1] + " is the RDMA face of an Ethernet bond (RoCE), not an InfiniBand device. " + e.Cause
	}
	if e.ID == "log-qp-modify" && strings.Contains(line, "link-local") {
		e.Cause = "the GID is link-local: the two ends are not in one layer 2 network. " + e.Cause
	}
}
