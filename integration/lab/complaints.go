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

// stalled begins a part of the report of a stall or a lockup that has a call trace.
var stalled = regexp.MustCompile(`soft lockup|detected (expedited )?stall|kthread starved|` +
	`kthread timer wakeup didn't happen|kthread stack dump|Stack dump where RCU GP kthread last ran`)

// mostLines is how long the report of a stall may be up to its call trace: modules and registers.
const mostLines = 60

// Complaints returns the lines of a kernel log that show a bug or a leak.
func Complaints(dmesg string) []string {
	var found []string
	left := 0 // lines in which a call trace is that of a stall
	for line := range strings.Lines(dmesg) {
		left--
		if stalled.MatchString(line) {
			left = mostLines
		}
		if left > 0 && strings.Contains(line, "Call Trace") {
			left = 0
			continue
		}
		if complaint.MatchString(line) && !harmless.MatchString(line) {
			found = append(found, strings.TrimRight(line, "\n"))
		}
	}
	return found
}
