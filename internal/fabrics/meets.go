package fabrics

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Meeting is a range or a route of a fabric, and something else of the cluster that has some of its addresses.
type Meeting struct {
	Field  string // of the Fabric, without spec
	Prefix netip.Prefix
	Use    clusternet.Use

	pooled bool // the range is that of a pool of nv-ipam
}

// Meetings are all of a fabric, in the order of their texts.
type Meetings []Meeting

// Sure reports whether one of them cuts pods off.
func (m Meetings) Sure() bool {
	return slices.ContainsFunc(m, func(m Meeting) bool { return m.Use.Sure })
}

// Breaks are those of a spec that is not in force yet and that would cut pods off: it is refused. What is in force
// stays so, whatever comes later, and so do pools: they are not the Fabric's. force is nil if nothing is in force.
func (m Meetings) Breaks(force *Fabric) (out Meetings) {
	var before []netip.Prefix
	if force != nil {
		before = force.Taken()
	}
	for _, one := range m {
		if one.Use.Sure && !one.pooled && !slices.Contains(before, one.Prefix) {
			out = append(out, one)
		}
	}
	return out
}

// Err names a few of what is met, those that cut pods off first; nil: nothing is met.
func (m Meetings) Err() error {
	if len(m) == 0 {
		return nil
	}
	const most = 3
	var names []string
	for i := range m {
		if text := m[i].Use.String(); !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	why := "addresses that both have can't be reached"
	if m.Sure() {
		why = "pods would send to these addresses through the rail"
	}
	return fmt.Errorf("%s %s meets %s%s: %s; choose another range (docs/addresses.md)", m[0].Field, m[0].Prefix,
		strings.Join(names, ", "), more, why)
}

// pooled begins the field of a range that is a pool's.
const pooled = "addresses.ipam: "

// taken are the subnets of the rails and the routes that their IPAM plugin adds: pods reach them through a rail. A
// default route is not among them: that of the pod's first interface stays.
func (f *Fabric) taken() (out []span) {
	spans, err := f.spans()
	if err != nil {
		return nil // it is refused for that
	}
	for _, s := range spans {
		s.prefix = s.prefix.Masked()
		if !slices.ContainsFunc(out, func(o span) bool { return o.prefix == s.prefix }) {
			out = append(out, s)
		}
	}
	if on, _ := f.Network["routing"].(map[string]any); on["sourceBased"] == true {
		return out // routes are in a table that only what has the rail's address looks into
	}
	section, _ := f.Network["ipam"].(map[string]any)
	routes, _ := section["routes"].([]any)
	for i, r := range routes {
		route, _ := r.(map[string]any)
		text, _ := route["dst"].(string)
		if p, err := netip.ParsePrefix(text); err == nil && p.Bits() > 0 {
			out = append(out, span{field: fmt.Sprintf("addresses.ipam.routes[%d].dst", i), prefix: p.Masked()})
		}
	}
	return out
}

// Taken are the subnets and routes of a fabric's rails, as far as it has them itself: those of nv-ipam's pools are
// theirs.
func (f *Fabric) Taken() (out []netip.Prefix) {
	for _, s := range f.taken() {
		out = append(out, s.prefix)
	}
	return out
}

// Meets says what of the cluster has addresses of the fabric's subnets or routes. Pools that the fabric takes its
// addresses from are its own; one of which no address is given does no harm yet.
func (f *Fabric) Meets(uses []clusternet.Use) (out Meetings) {
	section := &ranges.Section{}
	if f.NodeRanges == nil && f.Network["ipam"] != nil {
		if s, err := f.IPAM(); err == nil {
			section = s
		}
	}
	own := func(u *clusternet.Use) bool {
		if u.Pool.Group == clusternet.Whereabouts {
			_, ours := section.PoolCapacity(u.Pool.Name, u.Prefix)
			return ours
		}
		return u.Pool.Group != "" && slices.Contains(section.Refs, ranges.Ref{Kind: u.Pool.Kind, Name: u.Pool.Name})
	}
	mine := f.taken()
	for i := range uses {
		if u := &uses[i]; len(section.Refs) > 0 && own(u) {
			mine = append(mine, span{field: pooled + u.What, prefix: u.Prefix})
		}
	}
	others := slices.DeleteFunc(slices.Clone(uses), func(u clusternet.Use) bool { return u.Idle || own(&u) })
	for _, m := range mine {
		met := MeetsRange(m.field, m.prefix, others)
		for i := range met {
			met[i].pooled = strings.HasPrefix(m.field, pooled)
		}
		out = append(out, met...)
	}
	return sorted(out)
}

// MeetsRange says what has addresses of a range; field is where it is written, for messages.
func MeetsRange(field string, p netip.Prefix, uses []clusternet.Use) (out Meetings) {
	for i := range uses {
		if p.Overlaps(uses[i].Prefix) {
			out = append(out, Meeting{Field: field, Prefix: p, Use: uses[i]})
		}
	}
	return sorted(out)
}

// sorted puts what cuts pods off first.
func sorted(m Meetings) Meetings {
	slices.SortFunc(m, func(a, b Meeting) int {
		if a.Use.Sure != b.Use.Sure {
			return map[bool]int{true: -1, false: 1}[a.Use.Sure]
		}
		return cmp.Or(cmp.Compare(a.Use.What, b.Use.What), a.Use.Prefix.Addr().Compare(b.Use.Prefix.Addr()),
			cmp.Compare(a.Field, b.Field), a.Prefix.Addr().Compare(b.Prefix.Addr()))
	})
	return m
}

// Uses are the ranges of Fabrics, in force and wanted, for what chooses others.
func Uses(list []v1alpha1.Fabric) (out []clusternet.Use) {
	for f := range Readable(list) {
		for _, p := range f.Taken() {
			out = append(out, clusternet.Use{Prefix: p, What: "Fabric " + f.Name})
		}
	}
	return out
}

// Readable yields what can be read of Fabrics: of each its spec, and the spec that is in force.
func Readable(list []v1alpha1.Fabric) iter.Seq[*Fabric] {
	return func(yield func(*Fabric) bool) {
		for i := range list {
			o := list[i].DeepCopy()
			specs := []v1alpha1.FabricSpec{o.Spec}
			if o.Status.InForce != nil {
				specs = append(specs, o.Status.InForce.Spec)
			}
			for _, spec := range specs {
				o.Spec = spec
				if f, err := Parse(o); err == nil && !yield(f) {
					return
				}
			}
		}
	}
}
