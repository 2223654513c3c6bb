package lab

import (
	"regexp"
	"strings"
)

// Stalls and lockups are missing on purpose: in emulation on a busy machine they say nothing about the kernel.
var (
	complaint = regexp.MustCompile(`BUG|WARNING|Oops|Call Trace|general protection|refcount|leaked|KASAN|UBSAN|` +
		`waiting for .* to become free|Unable to handle kernel|list_(add|del) corruption|double free`)
	harmless = regexp.MustCompile(`report a bug|not a bug|soft lockup|stall|debugging|` +
		// printed by every boot of a kernel without a firmware that knows better
		`WARNING: Support for the .* is deprecated|Spectre|retbleed|mitigation`)
)

// Complaints returns the lines of a kernel log that show a bug or a leak.
func Complaints(dmesg string) []string {
	var found []string
	for line := range strings.Lines(dmesg) {
		if complaint.MatchString(line) && !harmless.MatchString(line) {
			found = append(found, strings.TrimRight(line, "\n"))
		}
	}
	return found
}
