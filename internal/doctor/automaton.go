package doctor

import "slices"

// automaton finds literals in one pass over a text (Aho and Corasick, 1975), without regard to case. Backslashes and
// zero bytes in the text do not count: pages put the former before underscores, and a log that was saved in UTF-16 has
// the latter between letters. No literal goes over the end of a line.
type automaton struct {
	class   [256]uint16
	classes uint32
	next    []uint32  // by state*classes + class: the same of the next state; the states from found on have finds
	found   uint32    // the first state that has finds, times classes
	finds   [][]int32 // by state - found/classes: what was found
}

// Bytes of a text that are in no literal have class 0, which leads back to the start, as the end of a line does.
func newAutomaton(literals []string, find []int32) *automaton {
	a := &automaton{classes: 1}
	for _, l := range literals {
		for i := range len(l) {
			if a.class[l[i]] == 0 {
				a.class[l[i]] = uint16(a.classes)
				a.classes++
			}
		}
	}
	for c := byte('a'); c <= 'z'; c++ {
		a.class[c-'a'+'A'] = a.class[c]
	}
	skip := a.classes
	a.class['\\'], a.class[0] = uint16(skip), uint16(skip)
	a.classes++

	t := trie{classes: a.classes, next: make([]uint32, a.classes), finds: [][]int32{nil}}
	for i, l := range literals {
		t.add(a, l, find[i])
	}
	t.link()
	for s := range t.finds {
		t.next[uint32(s)*a.classes+skip] = uint32(s)
	}
	a.take(&t)
	return a
}

// trie is an automaton while it is made. State 0 is the start, and stands for a transition that is not there yet.
type trie struct {
	classes uint32
	next    []uint32 // by state*classes + class
	finds   [][]int32
}

func (t *trie) add(a *automaton, literal string, find int32) {
	s := uint32(0)
	for i := range len(literal) {
		n := &t.next[s*t.classes+uint32(a.class[literal[i]])]
		if *n == 0 {
			*n = uint32(len(t.finds))
			s = *n
			t.finds = append(t.finds, nil)
			t.next = append(t.next, make([]uint32, t.classes)...)
			continue
		}
		s = *n
	}
	if !slices.Contains(t.finds[s], find) {
		t.finds[s] = append(t.finds[s], find)
	}
}

// link gives each state the transitions of the longest literal's beginning that its own ends with, breadth first.
func (t *trie) link() {
	fallback := make([]uint32, len(t.finds))
	var queue []uint32
	for c := range t.classes {
		if s := t.next[c]; s != 0 {
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		f := fallback[s]
		for _, x := range t.finds[f] {
			if !slices.Contains(t.finds[s], x) {
				t.finds[s] = append(t.finds[s], x)
			}
		}
		for c := range t.classes {
			n := &t.next[s*t.classes+c]
			if *n == 0 {
				*n = t.next[f*t.classes+c]
				continue
			}
			fallback[*n] = t.next[f*t.classes+c]
			queue = append(queue, *n)
		}
	}
}

// take numbers the states so that those with finds come last: one comparison tells them in the loop over a text.
func (a *automaton) take(t *trie) {
	order := make([]uint32, 0, len(t.finds))
	for _, with := range []bool{false, true} {
		for s := range t.finds {
			if (t.finds[s] != nil) == with {
				order = append(order, uint32(s))
			}
		}
		if !with {
			a.found = uint32(len(order)) * a.classes
		}
	}
	number := make([]uint32, len(order))
	for i, s := range order {
		number[s] = uint32(i) * a.classes
	}
	a.next = make([]uint32, 0, len(t.next))
	for _, s := range order {
		for _, n := range t.next[s*a.classes : (s+1)*a.classes] {
			a.next = append(a.next, number[n])
		}
		if t.finds[s] != nil {
			a.finds = append(a.finds, t.finds[s])
		}
	}
}

// step goes on in a text until it has found something: it returns the state, and how far it is, or that of the end.
func (a *automaton) step(state uint32, text []byte) (next uint32, done int, found []int32) {
	table, class, limit := a.next, &a.class, a.found
	for i, c := range text {
		state = table[state+uint32(class[c])]
		if state >= limit {
			return state, i + 1, a.finds[(state-limit)/a.classes]
		}
	}
	return state, len(text), nil
}
