package doctor

import (
	"regexp/syntax"
	"strings"
)

// leastLiteral is the shortest text, in bytes, that is worth looking for: shorter ones are in every log.
const leastLiteral = 4

// everyday are words that many programs print: they make a literal longer, not rarer.
var everyday = strings.NewReplacer("nccl warn", "", "nccl info", "", "nccl", "", "failed", "", "error", "",
	"not found", "", "warning", "", " with ", "", "device", "", "interface", "", "could not", "", "unable to", "")

// required returns texts of which each line that matches has one at least, in lower case, and the rarest set of them
// that the expression gives away. It returns nil if it gives away nothing. Quotation marks and what a page may have put
// a backslash before are not in them, because such a line is still to be found.
func required(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if s := longest(strings.ToLower(string(re.Rune))); len(s) >= leastLiteral {
			return []string{s}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []string
		for _, s := range re.Sub {
			if set := required(s); rarity(set) > rarity(best) {
				best = set
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, s := range re.Sub {
			set := required(s)
			if set == nil {
				return nil
			}
			all = append(all, set...)
		}
		return all
	}
	return nil
}

// longest is the longest part of a literal without characters that are printed in more than one way.
func longest(s string) (best string) {
	variable := func(r rune) bool { return strings.ContainsRune("'\"`\\<>&", r) || r >= 0x7f }
	for part := range strings.FieldsFuncSeq(s, variable) {
		if len(part) > len(best) {
			best = part
		}
	}
	return best
}

// rarity compares sets: it is that of the most usual text in a set.
func rarity(set []string) int {
	if set == nil {
		return 0
	}
	least := 1 << 10
	for _, s := range set {
		least = min(least, 1+len(everyday.Replace(s)))
	}
	return least
}
