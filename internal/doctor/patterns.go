package doctor

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

// pattern is one of the alternatives of a message's expressions.
type pattern struct {
	message int32 // index in Messages
	near    bool
	too     [][][]byte // what a line needs beside the literal that has been found, see required
	re      *regexp.Regexp
}

// may tells whether a line, in lower case, is worth a closer look: that is many times faster than the expression.
func (p *pattern) may(line []byte) bool {
	for _, set := range p.too {
		if !slices.ContainsFunc(set, func(l []byte) bool { return bytes.Contains(line, l) }) {
			return false
		}
	}
	return true
}

func bytesOf(sets [][]string) [][][]byte {
	out := make([][][]byte, len(sets))
	for i, set := range sets {
		for _, l := range set {
			out[i] = append(out[i], []byte(l))
		}
	}
	return out
}

func (p *pattern) fits(line string) bool { return p.re.MatchString(line) }

// known is what a Scan looks for.
type known struct {
	patterns  []pattern
	automaton *automaton
	weak      []string // expressions without a literal, which are never looked for: there are none (TestLiterals)
}

// catalogue is made when it is first needed: that takes a few milliseconds.
var catalogue = sync.OnceValue(func() *known {
	k := &known{}
	var literals []string
	var find []int32
	for i := range Messages {
		m := &Messages[i]
		for _, e := range []struct {
			re   *regexp.Regexp
			near bool
		}{{m.Pattern, false}, {m.Near, true}} {
			if e.re == nil {
				continue
			}
			for _, alternative := range alternatives(e.re) {
				sets := required(alternative)
				if sets == nil {
					k.weak = append(k.weak, m.ID+": "+alternative.String())
					continue
				}
				for _, l := range sets[0] {
					literals, find = append(literals, l), append(find, int32(len(k.patterns)))
				}
				k.patterns = append(k.patterns, pattern{
					int32(i), e.near,
					bytesOf(sets[1:]), regexp.MustCompile(alternative.String())})
			}
		}
	}
	k.automaton = newAutomaton(literals, find)
	return k
})

// alternatives splits an expression, so that each part has literals of its own.
func alternatives(re *regexp.Regexp) []*syntax.Regexp {
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil { // it has been compiled
		panic(err)
	}
	for tree.Op == syntax.OpCapture {
		tree = tree.Sub[0]
	}
	if tree.Op == syntax.OpAlternate {
		return tree.Sub
	}
	return []*syntax.Regexp{tree}
}

// said is an expression for what a program says, in one of several ways.
func said(ways ...string) *regexp.Regexp {
	return regexp.MustCompile("(?:" + strings.Join(ways, ")|(?:") + ")") // flags such as (?i) are of one way only
}
