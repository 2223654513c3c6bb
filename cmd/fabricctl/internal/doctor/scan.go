package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// Bounds of what is kept of a log, in bytes.
const (
	chunk    = 64 << 10 // of a line that is looked at in one go
	overlap  = 2 << 10  // of two pieces of a line that is longer
	maxShown = 2 << 10  // of a line that is shown
	nearby   = 16 << 10 // how far a message reaches that gives a meaning to those after it
	fewLines = 10       // a log with no more than these lines was picked out by hand
)

// Scan looks for known messages in logs, in one pass over each. What it keeps is bounded by the number of messages.
type Scan struct {
	Lines int64 // of all logs so far
	asked bool  // the lines were picked out by hand

	name   string
	number int64 // of lines of this log
	offset int64 // in this log, of what is looked at
	known  int64 // where the last message was that gives a meaning to others; negative: nowhere
	seen   map[string]*Explanation
	order  []*Explanation
	last   map[string]last // of this log, by message

	found  []int
	folded []byte
}

// last is the last line with a message.
type last struct {
	number int64
	head   []byte
}

// NewScan begins with logs.
func NewScan() *Scan {
	return &Scan{seen: map[string]*Explanation{}, last: map[string]last{}}
}

// Explain recognises the messages in a text: each once, with the first line it is in, in the order of the text.
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
	s.name, s.number, s.offset, s.known = name, 0, 0, -nearby-1
	in := bufio.NewReaderSize(log, chunk)
	asked := s.asked
	if all, err := in.Peek(chunk); err != nil && bytes.Count(all, []byte{'\n'}) <= fewLines {
		s.asked = true
	}
	var long []byte // the end of the last piece of a long line, before the next one
	for {
		line, err := in.ReadSlice('\n')
		if len(long) > 0 {
			long = append(long, line...)
			s.look(long)
		} else {
			s.look(line)
		}
		s.offset += int64(len(line))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long[:0], line[len(line)-overlap:]...)
			continue
		case err == nil:
			s.number++
			long = long[:0]
			continue
		}
		s.Lines += s.number
		if len(line)+len(long) > 0 {
			s.Lines++
		}
		s.asked = asked
		s.finish()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// look looks at a line, or a piece of one. A program that draws over its line, such as a progress bar, has several in
// one.
func (s *Scan) look(line []byte) {
	if bytes.IndexByte(line, 0x1b) >= 0 {
		line = colours.ReplaceAllLiteral(line, nil)
	}
	for raw := range bytes.SplitSeq(line, []byte{'\r'}) {
		if s.found, s.folded = catalogue().candidates(s.found[:0], s.folded[:0], raw); len(s.found) > 0 {
			s.try(raw)
		}
	}
}

// try looks what a line says.
func (s *Scan) try(raw []byte) {
	l, bare := cleaned(raw), ""
	for _, i := range s.found {
		p := &catalogue().patterns[i]
		m := &Messages[p.message]
		if before, ok := s.last[m.ID]; ok && before.number == s.number {
			continue // by another pattern, or in another piece of the line
		}
		if !p.re.MatchString(l.text) {
			if bare == "" {
				bare = l.bare()
			}
			if len(bare) == len(l.text) || !p.re.MatchString(bare) {
				continue
			}
		}
		after := s.offset-s.known <= nearby
		if m.Except != nil && m.Except.MatchString(l.text) || p.near && !s.asked && !after || m.Follows && after {
			continue
		}
		if !m.Follows {
			s.known = s.offset
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
	before, ok := s.last[m.ID]
	if !ok {
		e.earliest(l.stamp())
	}
	s.last[m.ID] = last{s.number, append(before.head[:0], raw[:min(len(raw), 2*maxHead)]...)}
}

// finish takes the times of the last lines of a log: only those are looked at, because a message may be there a million
// times.
func (s *Scan) finish() {
	for id, l := range s.last {
		s.seen[id].latest(cleaned(l.head).stamp())
	}
	clear(s.last)
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
