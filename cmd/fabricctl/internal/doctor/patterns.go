package doctor

import (
	"bytes"
	"cmp"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

// pattern is one of the alternatives of a message's expressions.
type pattern struct {
	message int // index in Messages
	near    bool
	too     [][]string // of each set a line has one text beside the literal that has been found
	re      *regexp.Regexp
}

// fits reports whether a line, folded, is worth a closer look.
func (p *pattern) fits(folded []byte) bool {
	for _, set := range p.too {
		if !slices.ContainsFunc(set, func(t string) bool { return bytes.Contains(folded, []byte(t)) }) {
			return false
		}
	}
	return true
}

// keyLength is how many bytes of a literal the filter looks up at once. Shorter literals are in every log.
const keyLength = 4

// literal is a text that each line has which fits a pattern.
type literal struct {
	text    []byte // in lower case
	pattern int
}

// known is what a Scan looks for. A line is compared with literals first, which is many times faster than to try the
// expressions.
type known struct {
	patterns []pattern
	ends     map[uint32][]literal // by their last keyLength bytes
	may      [1 << 16]bool        // by the hash of such a key
	weak     []string             // expressions without a literal, which are never found (TestLiterals)
}

func hash(key uint32) uint32 { return key * 2654435761 >> 16 }

// fold maps bytes to lower case, and to 0 what does not count: pages put backslashes before underscores, and a log that
// was saved as UTF-16 has zero bytes between letters.
var fold = func() (f [256]byte) {
	for c := range f {
		f[c] = byte(c)
	}
	for c := 'A'; c <= 'Z'; c++ {
		f[c] = byte(c + 'a' - 'A')
	}
	f['\\'] = 0
	return f
}()

// candidates adds to found the patterns whose literals are in the line. folded is a buffer to work in.
func (k *known) candidates(found []int, folded, line []byte) ([]int, []byte) {
	key := uint32(0)
	for _, c := range line {
		if c = fold[c]; c == 0 {
			continue
		}
		folded = append(folded, c)
		key = key<<8 | uint32(c)
		if !k.may[hash(key)] {
			continue
		}
		for _, l := range k.ends[key] {
			if bytes.HasSuffix(folded, l.text) && !slices.Contains(found, l.pattern) {
				found = append(found, l.pattern)
			}
		}
	}
	found = slices.DeleteFunc(found, func(i int) bool { return !k.patterns[i].fits(folded) })
	slices.Sort(found)
	return found, folded
}

// catalogue is made when it is first needed: that takes a few milliseconds.
var catalogue = sync.OnceValue(func() *known {
	k := &known{ends: map[uint32][]literal{}}
	for i := range Messages {
		k.add(i, Messages[i].Pattern, false)
		k.add(i, Messages[i].Near, true)
	}
	return k
})

func (k *known) add(message int, re *regexp.Regexp, near bool) {
	if re == nil {
		return
	}
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil { // it has been compiled
		panic(err)
	}
	for tree.Op == syntax.OpCapture {
		tree = tree.Sub[0]
	}
	alternatives := []*syntax.Regexp{tree}
	if tree.Op == syntax.OpAlternate {
		alternatives = tree.Sub
	}
	for _, a := range alternatives {
		sets := literals(a)
		if sets == nil {
			k.weak = append(k.weak, Messages[message].ID+": "+a.String())
			continue
		}
		for _, t := range sets[0] {
			key := uint32(0)
			for _, c := range []byte(t[len(t)-keyLength:]) {
				key = key<<8 | uint32(c)
			}
			k.ends[key] = append(k.ends[key], literal{[]byte(t), len(k.patterns)})
			k.may[hash(key)] = true
		}
		k.patterns = append(k.patterns, pattern{message, near, sets[1:], regexp.MustCompile(a.String())})
	}
}

// literals are sets of texts in lower case: a line that fits the expression has one of each. The rarest set is the
// first; nil: the expression gives away nothing.
func literals(re *syntax.Regexp) (sets [][]string) {
	switch re.Op {
	case syntax.OpLiteral:
		// Quotation marks and angle brackets are written in more than one way.
		variable := func(r rune) bool { return strings.ContainsRune("'\"`\\<>&", r) || r >= 0x7f }
		for _, part := range strings.FieldsFunc(strings.ToLower(string(re.Rune)), variable) {
			if len(part) >= keyLength {
				sets = append(sets, []string{part})
			}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return literals(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return literals(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, s := range re.Sub {
			sets = append(sets, literals(s)...)
		}
	case syntax.OpAlternate:
		var all []string
		for _, s := range re.Sub {
			of := literals(s)
			if of == nil {
				return nil
			}
			all = append(all, of[0]...)
		}
		return [][]string{all}
	}
	slices.SortStableFunc(sets, func(a, b []string) int { return cmp.Compare(rarity(b), rarity(a)) })
	return sets
}

// everyday are words that many programs print: they make a literal longer, not rarer.
var everyday = strings.NewReplacer("nccl warn", "", "nccl info", "", "nccl", "", "failed", "", "error", "",
	"not found", "", "warning", "", " with ", "", "device", "", "interface", "", "could not", "", "unable to", "")

// rarity compares sets, by the most usual text in each.
func rarity(set []string) int {
	least := len(everyday.Replace(set[0]))
	for _, s := range set[1:] {
		least = min(least, len(everyday.Replace(s)))
	}
	return least
}

// said is an expression for what a program says, in one of several ways.
func said(ways ...string) *regexp.Regexp {
	return regexp.MustCompile("(?:" + strings.Join(ways, ")|(?:") + ")") // flags such as (?i) are of one way only
}
