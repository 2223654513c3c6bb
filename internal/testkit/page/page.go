// Package page makes a script of the commands that a page of the documentation prints, so that a test can run them word
// by word: what the page says is what happens, or the test fails.
//
// A comment of HTML, which readers don't see, stands before each block of the part that is walked:
//
//	<!-- walk: begin -->                 the part begins: every block up to the end needs a mark
//	<!-- walk: run -->                   commands
//	<!-- walk: helm -->                  commands of one way through the page, left out on another one
//	<!-- walk: run, on gpu-1 -->         commands on a node
//	<!-- walk: run, fails -->            the last command fails
//	<!-- walk: file fabrics.yaml -->     the block is this file, in the directory where the commands run
//	<!-- walk: not run, REASON -->       not for the test
//	<!-- walk: end -->
//
// In a block of commands, lines that begin with "$ " are commands and the lines behind one are what it prints. Without
// such lines each line is a command, and what it prints is not shown. A line that ends with a backslash goes on.
package page

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Block is a block of the walked part of a page, in the page's order.
type Block struct {
	Line     int    // of its first line in the page, from 1
	Heading  string // the heading that it is below
	Step     string // the bold words at the beginning of a paragraph that it is below: "3. Install."
	Node     string // where its commands run, "" for the reader's machine
	File     string // the name of the file that it is
	NotRun   string // why it is not run
	Fails    bool   // its last command fails
	Text     string
	Commands []Command // of a block that is run
}

// Command is a command of a block.
type Command struct {
	Line  int
	Text  string
	Shown bool     // the page shows what it prints
	Want  []string // the lines
}

var (
	mark    = regexp.MustCompile(`^<!-- *walk: *(.*?) *-->$`)
	heading = regexp.MustCompile(`^#+ +(.*)$`)
	step    = regexp.MustCompile(`^\*\*(.+?)\*\*`)
)

// Parse returns the blocks of one way through the page; ways are all that there are. It fails if a block of the walked
// part has no mark, or a mark no block.
func Parse(text, way string, ways ...string) ([]Block, error) {
	p := parser{way: way, ways: ways}
	for i, line := range strings.Split(text, "\n") {
		p.line(i+1, line)
	}
	switch {
	case p.fence != "":
		p.complain(p.block.Line, "the block has no end")
	case p.walked:
		p.complain(strings.Count(text, "\n")+1, "walk: begin without walk: end")
	case len(p.blocks) == 0:
		p.errs = append(p.errs, errors.New("no block is walked"))
	}
	return p.blocks, errors.Join(p.errs...)
}

type parser struct {
	way    string
	ways   []string
	blocks []Block
	errs   []error

	heading, step string
	walked        bool
	marked        string // the mark that waits for its block
	markedAt      int
	fence         string // of the block that is being read
	block         Block
	lines         []string
}

func (p *parser) complain(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("line %d: "+format, append([]any{line}, args...)...))
}

func (p *parser) line(n int, line string) {
	switch trimmed := strings.TrimSpace(line); {
	case p.fence != "" && trimmed == p.fence:
		p.end(n)
	case p.fence != "":
		p.lines = append(p.lines, line)
	case strings.HasPrefix(trimmed, "```"):
		p.fence, p.lines = "```", nil
		p.block = Block{Line: n + 1, Heading: p.heading, Step: p.step}
	case mark.MatchString(trimmed):
		p.mark(n, mark.FindStringSubmatch(trimmed)[1])
	case p.marked != "" && trimmed != "":
		p.complain(p.markedAt, "walk: %s: no block follows", p.marked)
		p.marked = ""
	default:
		if m := heading.FindStringSubmatch(trimmed); m != nil {
			p.heading, p.step = m[1], ""
		} else if m := step.FindStringSubmatch(trimmed); m != nil {
			p.step = m[1]
		}
	}
}

func (p *parser) mark(n int, m string) {
	switch {
	case m == "begin" && !p.walked, m == "end" && p.walked && p.marked == "":
		p.walked = m == "begin"
	case m == "begin", m == "end":
		p.complain(n, "walk: %s: it is not the other's turn", m)
	case p.marked != "":
		p.complain(p.markedAt, "walk: %s: no block follows", p.marked)
	default:
		p.marked, p.markedAt = m, n
	}
}

// end of a block.
func (p *parser) end(n int) {
	m := p.marked
	p.fence, p.marked = "", ""
	switch {
	case m == "" && !p.walked:
		return // of the reference
	case m == "":
		p.complain(p.block.Line, "the block has no mark: want <!-- walk: run -->, file NAME, or not run, REASON")
		return
	case !p.walked:
		p.complain(n, "walk: %s: it is before walk: begin, or after walk: end", m)
		return
	}
	b := p.block
	b.Text = strings.Join(p.lines, "\n") + "\n"
	mine, err := b.attributes(m, p.way, p.ways)
	if err != nil {
		p.complain(p.markedAt, "walk: %s: %w", m, err)
		return
	}
	if !mine {
		return
	}
	if b.File == "" && b.NotRun == "" {
		b.Commands = commands(b.Line, p.lines)
		if len(b.Commands) == 0 {
			p.complain(b.Line, "the block has no command")
		}
	}
	p.blocks = append(p.blocks, b)
}

// attributes sets what a mark says, and returns whether the block is of this way.
func (b *Block) attributes(m, way string, ways []string) (mine bool, err error) {
	if reason, ok := strings.CutPrefix(m, "not run, "); ok {
		b.NotRun = reason
		return true, nil
	}
	mine = true
	for i, a := range strings.Split(m, ", ") {
		key, value, _ := strings.Cut(a, " ")
		switch {
		case i == 0 && (a == "run" || a == way):
		case i == 0 && slices.Contains(ways, a):
			mine = false
		case i == 0 && key == "file" && filepath.IsLocal(value):
			b.File = value
		case i > 0 && b.File == "" && key == "on" && value != "":
			b.Node = value
		case i > 0 && b.File == "" && a == "fails":
			b.Fails = true
		default:
			return false, fmt.Errorf(
				"%q: want run or one of %q, then on NODE or fails; or file NAME; or not run, REASON", a, ways)
		}
	}
	return mine, nil
}

func commands(first int, lines []string) (out []Command) {
	shown := slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, "$ ") })
	goes := false // the command goes on in the next line
	for i, line := range lines {
		text, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case goes:
			out[len(out)-1].Text += "\n" + line
		case isCommand, !shown && strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			out = append(out, Command{Line: first + i, Text: text})
		case shown && len(out) > 0:
			last := &out[len(out)-1]
			last.Shown, last.Want = true, append(last.Want, line)
			continue
		default:
			continue
		}
		goes = strings.HasSuffix(line, `\`)
	}
	return out
}
