package page

import (
	"fmt"
	"regexp"
	"strings"
)

// Compare returns how what a command printed differs from the lines that the page shows. Spaces don't matter. "..."
// in a line of its own stands for any lines, and at the end of a line for any words. Times, addresses and versions may
// be others of their kind.
func Compare(want []string, got string) error {
	wanted := words(want)
	printed := words(strings.Split(strings.TrimRight(got, "\n"), "\n"))
	if equal(wanted, printed) {
		return nil
	}
	return fmt.Errorf("the page shows\n%s\nprinted was\n%s", strings.Join(want, "\n"), got)
}

// words of each line, without the empty lines.
func words(lines []string) (out [][]string) {
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 0 {
			out = append(out, fields)
		}
	}
	return out
}

const anything = "..."

func equal(want, got [][]string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if len(want[0]) == 1 && want[0][0] == anything {
		for skip := range len(got) + 1 {
			if equal(want[1:], got[skip:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && sameLine(want[0], got[0]) && equal(want[1:], got[1:])
}

func sameLine(want, got []string) bool {
	if last := len(want) - 1; want[last] == anything {
		want = want[:last]
		got = got[:min(last, len(got))]
	}
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		if w != got[i] && !alike(w, got[i]) {
			return false
		}
	}
	return true
}

// kinds are of words that are other ones each time. What they capture is not.
var kinds = []*regexp.Regexp{
	regexp.MustCompile(`^(?:[0-9.]+(?:ns|us|ms|s|m|h|d))+$`),                    // an age
	regexp.MustCompile(`^(?:[0-9]{1,3}\.){3}[0-9]{1,3}(/[0-9]+)?([.,;:]?)$`),    // an IPv4 address
	regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]([.,;:]?)$`), // a PCI address
	regexp.MustCompile(`^(?:[0-9a-f]{2}:){5,}[0-9a-f]{2}$`),                     // a hardware address, a GUID
	regexp.MustCompile(`^([a-z][a-z0-9-]*-)[a-z0-9]{5}$`),                       // a pod's name
	regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+\S*$`),                          // a version
}

func alike(want, got string) bool {
	for _, k := range kinds {
		w, g := k.FindStringSubmatch(want), k.FindStringSubmatch(got)
		if w != nil && g != nil && strings.Join(w[1:], " ") == strings.Join(g[1:], " ") {
			return true
		}
	}
	return false
}
