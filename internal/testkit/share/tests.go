package share

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rotate picks n groups of tests of a suite and returns the pattern for -test.skip that leaves out the others, with a
// line that names both. A group is one name, or more with a | between them. With All both are empty.
func Rotate(suite string, n int, groups ...string) (skip, note string) {
	picked := Pick(n, groups...)
	left := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return slices.Contains(picked, g) })
	if len(left) == 0 {
		return "", ""
	}
	slices.Sort(picked)
	return "^(" + strings.Join(left, "|") + ")$", fmt.Sprintf("%s: of what takes turns this landing runs %s; left to "+
		"test-full: %s", suite, strings.Join(picked, ", "), strings.Join(left, ", "))
}

// NoTime prints that something is left out, if it would not end before the deadline.
func NoTime(what string, takes time.Duration) bool {
	if TimeFor(takes) {
		return false
	}
	fmt.Printf("%s: left to test-full, for want of time: it takes %.0f s\n", what, takes.Seconds())
	return true
}
