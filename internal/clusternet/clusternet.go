// Package clusternet says which addresses a cluster uses already: those of Services, pods, nodes, and of the pools of
// IPAM plugins. A Fabric that has some of them takes the traffic of its pods away from what they belong to, because the
// subnet of a rail is a route. It is pure: a Reader lists the objects.
package clusternet

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/quote"
)

// Use is a range that something in the cluster uses.
type Use struct {
	Prefix netip.Prefix
	What   string // for messages, quoted and bounded: "podCIDRs of Node n1"
	// Sure tells that every pod reaches these addresses by its first interface: a rail that has them cuts pods off.
	Sure bool
	// Idle tells that it is a pool of which no address is given.
	Idle bool
	// Pool is the pool of an IPAM plugin that this is: a Fabric may take its addresses from it.
	Pool Pool
}

// Pool names a pool of an IPAM plugin; the zero value names nothing.
type Pool struct{ Group, Kind, Name string }

// String is the use and its range.
func (u *Use) String() string { return fmt.Sprintf("%s (%s)", u.What, u.Prefix) }

// Net is what a cluster uses, as far as it could be read.
type Net struct {
	Uses     []Use
	Compared []string // what was read, with numbers: "Nodes (2)"
	Missing  []string // what could not be read, with the reason; bounded
}

// Reader lists objects.
type Reader interface {
	// Each hands over the objects of a source in one version of its group: of a source with a name that one only. known
	// is false if the API server does not serve them.
	Each(ctx context.Context, s *Source, version string, each func(object map[string]any)) (known bool, err error)
}

// maxUses bounds what is kept: a Node has four ranges at most in common clusters, and there are 5,000.
const maxUses = 50_000

// Read reads what the cluster uses. What can't be read is in Missing; of what is not installed nothing is said.
func Read(ctx context.Context, r Reader) *Net {
	n := &Net{}
	read := map[string]bool{}
	for i := range Sources {
		s := &Sources[i]
		if s.instead != "" && read[s.instead] {
			continue
		}
		read[s.Resource] = n.source(ctx, r, s)
	}
	return n
}

// source reads one source, in the first version that the API server serves. It returns whether it had any range.
func (n *Net) source(ctx context.Context, r Reader, s *Source) bool {
	before := len(n.Uses)
	for _, version := range s.Versions {
		objects, more := 0, false
		known, err := r.Each(ctx, s, version, func(o map[string]any) {
			objects++
			for _, u := range s.read(o) {
				if len(n.Uses) < maxUses {
					n.Uses = append(n.Uses, u)
				} else {
					more = true
				}
			}
		})
		switch {
		case err != nil:
			n.Missing = append(n.Missing, s.What+": "+quote.Clip(quote.Terminal(err.Error()), maxError))
			return false
		case !known:
			continue
		case more:
			n.Missing = append(n.Missing, fmt.Sprintf("%s: there are more than %d ranges", s.What, maxUses))
		}
		if objects > 0 {
			n.Compared = append(n.Compared, fmt.Sprintf("%s (%d)", s.What, objects))
		}
		break
	}
	return len(n.Uses) > before
}

// Because says what ranges were compared with, and what they could not be compared with.
func (n *Net) Because() string {
	text := "compared with " + strings.Join(n.Compared, ", ")
	if len(n.Compared) == 0 {
		text = "compared with nothing"
	}
	if len(n.Missing) > 0 {
		text += "; not with " + strings.Join(n.Missing, "; ")
	}
	return text
}

// Bounds of texts, in bytes.
const (
	maxName  = 100
	maxError = 200
)
