package doctor

import (
	"cmp"
	"regexp/syntax"
	"slices"
	"strings"
)

// leastLiteral is the shortest text, in bytes, that is worth looking for: shorter ones are in every log.
const leastLiteral = 4

// everyday are words that many programs print: they make a literal longer, not rarer.
var everyday = strings.NewReplacer("nccl warn", "", "nccl info", "", "nccl", "", "failed", "", "error", "",
	"not found", "", "warning", "", " with ", "", "device", "", "interface", "", "could not", "", "unable to", "")

// required returns what each line that matches has, in lower case: of each set of texts at least one. Quotation marks
// and what a page may have put a backslash before are not in them, because such a line is still to be found. The rarest
// set is the first. It returns nil if the expression gives away nothing.
func required(re *syntax.Regexp) (sets [][]string) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, part := range parts(strings.ToLower(string(re.Rune))) {
			sets = append(sets, []string{part})
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, s := range re.Sub {
			sets = append(sets, required(s)...)
		}
	case syntax.OpAlternate:
		var all []string
		for _, s := range re.Sub {
			of := required(s)
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

// parts are the parts of a literal without characters that are printed in more than one way, but the short ones.
func parts(s string) (out []string) {
	variable := func(r rune) bool { return strings.ContainsRune("'\"`\\<>&", r) || r >= 0x7f }
	for _, part := range strings.FieldsFunc(s, variable) {
		if len(part) >= leastLiteral {
			out = append(out, part)
		}
	}
	return out
}

// rarity compares sets: it is that of the most usual text in a set.
func rarity(set []string) int {
	least := 1 << 10
	for _, s := range set {
		least = min(least, 1+len(everyday.Replace(s)))
	}
	return least
}
