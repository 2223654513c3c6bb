package selftest

import (
	"fmt"
	"maps"
	"slices"
)

// State is what the host has that a plugin may change, in a form that two equal hosts have in common: no indexes of
// interfaces, no numbers of queue pairs, no timers. A key is what it is, such as "ibs108 mtu".
type State map[string]string

// put adds a value. What the host has twice under one key is counted, so that one that is lost is a difference.
func (s State) put(key string, value any) {
	at := key
	for n := 2; ; n++ {
		if _, taken := s[at]; !taken {
			break
		}
		at = fmt.Sprintf("%s #%d", key, n)
	}
	s[at] = fmt.Sprint(value)
}

// Diff is how another state differs, a line for each value: with - what was, with + what is. It is empty without a
// difference.
func (s State) Diff(now State) (out []string) {
	keys := slices.Collect(maps.Keys(s))
	for k := range now {
		if _, was := s[k]; !was {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		old, was := s[k]
		is, has := now[k]
		if was && has && old == is {
			continue
		}
		if was {
			out = append(out, "- "+k+": "+old)
		}
		if has {
			out = append(out, "+ "+k+": "+is)
		}
	}
	return out
}

// few bounds the lines of a diff.
func few(diff []string) []string {
	if more := len(diff) - maxLines; more > 0 {
		return append(slices.Clone(diff[:maxLines]), fmt.Sprintf("%d more lines", more))
	}
	return diff
}
