package doctor

import (
	"fmt"
	"strings"
)

// markdown is docs/doctor.md: every id with its cause and cure, every message that is recognised.
func markdown() string {
	var b strings.Builder
	b.WriteString("# What fabricctl doctor says\n\n" +
		"Written by `go test ./cmd/fabricctl/internal/doctor -update`; do not edit. " +
		"`fabricctl doctor host`, `doctor cluster`, `doctor pod` and `preflight` print the ids below with\n" +
		"the evidence; `fabricctl doctor explain \"<log line>\"` recognises the messages of the second half, and " +
		"`fabricctl doctor explain host-mtu`\nprints what stands here.\n\n## Checks\n")
	for _, c := range Checks {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n- **Cause:** %s\n- **Cure:** %s\n", c.ID, c.Title, c.Cause, c.Cure)
	}
	b.WriteString("\n## Messages\n")
	for i := range Messages {
		m := &Messages[i]
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n```\n%s\n```\n\n- **Cause:** %s\n- **Cure:** %s\n", m.ID, m.Title,
			strings.Join(m.Examples, "\n"), m.Cause, m.Cure)
	}
	return b.String()
}
