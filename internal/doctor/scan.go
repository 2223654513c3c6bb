package doctor

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
)

// Bounds of what is kept of a log, in bytes.
const (
	chunk    = 256 << 10 // that is looked at in one go
	maxLine  = 16 << 10  // of a line around what was found in it
	maxShown = 2 << 10   // of a line that is shown
	nearby   = 16 << 10  // how far a message reaches that gives a meaning to those after it
	fewLines = 10        // a log with no more than these lines was picked out by somebody, who asks what they mean
)

// Scan looks for known messages in logs, in one pass over each: an automaton finds the literals of all patterns, and
// the patterns themselves are tried on the lines with one only. What it keeps is bounded by the number of messages.
type Scan struct {
	Lines int64 // of all logs so far
	asked bool  // the lines were picked out by somebody

	name   string
	number int64 // of lines of this log
	offset int64 // in this log, of the buffer
	state  uint32
	known  int64 // where the last message was that gives a meaning to others; negative: nowhere
	seen   map[string]*Explanation
	order  []*Explanation
	heads  map[string][]byte // the beginning of the last line with the message, in this log

	from, to   int // the line in the buffer that is looked at
	counted    int // up to where the lines of the buffer have been counted
	candidates []int32
	may        []int32
	folded     []byte
}

// folded adds a line to b as the automaton reads it: in lower case, without what does not count.
func folded(b, line []byte) []byte {
	for _, c := range line {
		switch {
		case c == '\\' || c == 0:
			continue
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// NewScan begins with logs.
func NewScan() *Scan {
	return &Scan{seen: map[string]*Explanation{}, heads: map[string][]byte{}}
}

// Explain recognises the messages in a text that somebody asks about: each once, with the first line it is in, in the
// order of the text.
func Explain(text string) []Explanation {
	s := NewScan()
	s.asked = true
	_ = s.Read("", strings.NewReader(text)) // nothing fails in a string
	return s.Explanations()
}

// Explanations are the messages in all logs, each once, in their order.
func (s *Scan) Explanations() []Explanation {
	out := make([]Explanation, 0, len(s.order))
	for _, e := range s.order {
		out = append(out, *e)
	}
	return out
}

// Read looks at a log to its end, and at what there is of it if it can't be read to its end. The name may be empty.
func (s *Scan) Read(name string, log io.Reader) error {
	s.name, s.number, s.offset, s.state, s.known = name, 0, 0, 0, -nearby-1
	buf, have := make([]byte, chunk), 0
	first, asked := true, s.asked
	for {
		n, err := io.ReadFull(log, buf[have:])
		have += n
		end := err != nil
		if first && end {
			s.asked = asked || bytes.Count(buf[:have], []byte{'\n'}) <= fewLines
		}
		first = false
		whole := bytes.LastIndexByte(buf[:have], '\n') + 1
		switch {
		case end:
			whole = have
		case whole == 0: // a line longer than the buffer is looked at in parts
			whole = have - maxLine
		}
		s.look(buf[:whole])
		s.offset += int64(whole)
		have = copy(buf, buf[whole:have])
		if end {
			s.Lines += s.number
			if whole > 0 && buf[whole-1] != '\n' {
				s.Lines++
			}
			s.asked = asked
			s.finish()
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return err
		}
	}
}

// look looks at lines.
func (s *Scan) look(text []byte) {
	if bytes.IndexByte(text, 0x1b) >= 0 {
		text = colours.ReplaceAllLiteral(text, nil)
	}
	known := catalogue()
	s.from, s.to, s.counted = 0, 0, 0
	for at := 0; at < len(text); {
		next, done, found := known.automaton.step(s.state, text[at:])
		s.state, at = next, at+done
		if found == nil {
			break
		}
		if at > s.to {
			s.line(text)
			s.from = bytes.LastIndexByte(text[:at], '\n') + 1
			s.to = len(text)
			if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
				s.to = at + i
			}
			s.from, s.to = max(s.from, at-maxLine/2), min(s.to, at+maxLine/2)
		}
		for _, f := range found {
			if !slices.Contains(s.candidates, f) {
				s.candidates = append(s.candidates, f)
			}
		}
	}
	s.line(text)
	s.number += int64(bytes.Count(text[s.counted:], []byte{'\n'}))
}

// line tries the candidates on a line. A program that draws over its line, such as a progress bar, has several in one.
func (s *Scan) line(text []byte) {
	if len(s.candidates) == 0 {
		return
	}
	slices.Sort(s.candidates)
	s.number += int64(bytes.Count(text[s.counted:s.from], []byte{'\n'}))
	s.counted = s.from
	for raw := range bytes.SplitSeq(text[s.from:s.to], []byte{'\r'}) {
		s.folded = folded(s.folded[:0], raw)
		may := s.may[:0]
		for _, i := range s.candidates {
			if catalogue().patterns[i].may(s.folded) {
				may = append(may, i)
			}
		}
		if s.may = may; len(may) > 0 {
			s.try(raw)
		}
	}
	s.candidates = s.candidates[:0]
}

// try looks what a line says.
func (s *Scan) try(raw []byte) {
	l, at := cleaned(raw), s.offset+int64(s.from)
	bare, last := "", int32(-1)
	for _, i := range s.may {
		p := &catalogue().patterns[i]
		if p.message == last {
			continue // by another pattern
		}
		m := &Messages[p.message]
		if !p.fits(l.text) {
			if bare == "" {
				bare = l.bare()
			}
			if len(bare) == len(l.text) || !p.fits(bare) {
				continue
			}
		}
		after := at-s.known <= nearby
		if m.Except != nil && m.Except.MatchString(l.text) || p.near && !s.asked && !after || m.Follows && after {
			continue
		}
		last = p.message
		if !m.Follows {
			s.known = at
		}
		s.note(m, l, raw)
	}
}

// note counts a line with a message.
func (s *Scan) note(m *Message, l logLine, raw []byte) {
	e := s.seen[m.ID]
	if e == nil {
		e = &Explanation{ID: m.ID, Title: m.Title, Line: l.text[:min(len(l.text), maxShown)],
			Cause: m.Cause, Cure: m.Cure, Docs: page(m.ID), Log: s.name, LineNumber: s.number + 1, Harmless: m.Harmless}
		e.Line = strings.ToValidUTF8(e.Line, "")
		e.refine(l.text)
		s.seen[m.ID] = e
		s.order = append(s.order, e)
	}
	e.Count++
	if _, ok := s.heads[m.ID]; !ok {
		e.earliest(l.stamp())
	}
	s.heads[m.ID] = append(s.heads[m.ID][:0], raw[:min(len(raw), 2*maxHead)]...)
}

// finish takes the times of the last lines of a log: only those are looked at, because a message may be there a million
// times.
func (s *Scan) finish() {
	s.line(nil)
	for id, head := range s.heads {
		s.seen[id].latest(cleaned(head).stamp())
	}
	clear(s.heads)
}

// earliest and latest keep the first and the last time. Of several logs, times that say their zone are compared; of
// others the last log's count.
func (e *Explanation) earliest(t string) {
	if e.FirstTime == "" || ordered(t, e.FirstTime) && t < e.FirstTime {
		e.FirstTime = t
	}
}

func (e *Explanation) latest(t string) {
	if t != "" && (!ordered(t, e.LastTime) || t > e.LastTime) {
		e.LastTime = t
	}
}

// ordered tells whether two times are in order as texts are: both of RFC 3339 in UTC.
func ordered(a, b string) bool {
	utc := func(t string) bool { return len(t) > 19 && t[4] == '-' && t[10] == 'T' && t[len(t)-1] == 'Z' }
	return utc(a) && utc(b) && len(a) == len(b)
}
