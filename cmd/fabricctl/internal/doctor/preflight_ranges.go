package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// mostRanges is how many ranges preflight names.
const mostRanges = 8

// preflightRanges names the addresses that a Fabric must not have.
func preflightRanges(p *Preflight) (out []Finding) {
	if p.Net == nil {
		return nil
	}
	var used []string
	seen := map[netip.Prefix]bool{}
	for i := range p.Net.Uses {
		if u := &p.Net.Uses[i]; u.Sure && !seen[u.Prefix] {
			seen[u.Prefix] = true
			used = append(used, u.String())
		}
	}
	if len(p.Net.Missing) > 0 {
		out = append(out, finding("preflight-ranges", Warn, "a range can't be compared with "+
			quote.Clip(strings.Join(p.Net.Missing, "; "), 600)))
	}
	if len(used) == 0 {
		return out
	}
	text := "a Fabric must not have addresses of " + strings.Join(used[:min(len(used), mostRanges)], ", ")
	if more := len(used) - mostRanges; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	text += ": fabricctl generate fabric --cluster proposes a free range"
	return append(out, finding("preflight-ranges", OK, text))
}
