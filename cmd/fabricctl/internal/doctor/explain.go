package doctor

import (
	"regexp"
	"strings"
)

// Message is a family of log lines with one cause. Its patterns name the speaker, as NCCL WARN, or are sentences that
// only one program prints, and never what any program may say.
type Message struct {
	ID       string
	Title    string
	Pattern  *regexp.Regexp
	Near     *regexp.Regexp // lines that mean it shortly after another message only, or when they are asked for; or nil
	Except   *regexp.Regexp // lines that the patterns fit, and that mean something else; may be nil
	Follows  bool           // a consequence: says nothing shortly after the message that names the cause
	Harmless bool           // nothing is wrong
	Examples []string       // as the programs print them
	Cause    string
	Cure     string
}

// Explanation is what a message means, and where it is.
type Explanation struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	Line       string   `json:"line,omitempty"`       // the first
	Log        string   `json:"log,omitempty"`        // the file it is in; empty on standard input
	LineNumber int64    `json:"lineNumber,omitempty"` // from 1
	Count      int64    `json:"count,omitempty"`      // of lines
	FirstTime  string   `json:"firstTime,omitempty"`
	LastTime   string   `json:"lastTime,omitempty"` // both as they stand in the log
	Harmless   bool     `json:"harmless,omitempty"`
	Cause      string   `json:"cause"`
	Cure       string   `json:"cure"`
	Docs       string   `json:"docs"`
	Examples   []string `json:"examples,omitempty"` // of an id that was asked for: as the programs print it
}

// IDs are the ids of all checks and messages.
func IDs() []string {
	out := make([]string, 0, len(Checks)+len(Messages))
	for _, c := range Checks {
		out = append(out, c.ID)
	}
	for i := range Messages {
		out = append(out, Messages[i].ID)
	}
	return out
}

// ExplainID is what is known of the id of a check or a message.
func ExplainID(id string) Explanation {
	for _, c := range Checks {
		if c.ID == id {
			return Explanation{ID: id, Title: c.Title, Cause: c.Cause, Cure: c.Cure, Docs: page(id)}
		}
	}
	for i := range Messages {
		if m := &Messages[i]; m.ID == id {
			return Explanation{ID: id, Title: m.Title, Cause: m.Cause, Cure: m.Cure, Docs: page(id),
				Examples: m.Examples, Harmless: m.Harmless}
		}
	}
	return Explanation{ID: id}
}

var bondName = regexp.MustCompile(`IB device (\S*bond\S*) not found`)

// refine adds what the line itself gives away.
func (e *Explanation) refine(line string) {
	if m := bondName.FindStringSubmatch(line); m != nil {
		e.Cause = m[1] + " is the RDMA face of an Ethernet bond (RoCE), not an InfiniBand device; " + e.Cause
	}
	if e.ID == "log-qp-modify" && strings.Contains(line, "link-local") {
		e.Cause = "the GID is link-local: the two ends are not in one layer 2 network; " + e.Cause
	}
}
