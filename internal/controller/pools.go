package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

// poolsEvery is how often pools of IPAM plugins are read. Those of whereabouts are as large as what is allocated, and
// change with every pod: a watch of them would be the most expensive thing that the controller does.
const poolsEvery = 5 * time.Minute

// whereaboutsPools are the pools of whereabouts.
var whereaboutsPools = schema.GroupVersionKind{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Kind: "IPPool"}

// usedPool is an IPPool of whereabouts.
type usedPool struct {
	name      string
	prefix    netip.Prefix
	allocated int
}

// pools are the pools that the fabrics in force use, as they were some minutes ago.
type pools struct {
	at  time.Time
	key string
	// What can't be used by pods as it is, so that it is looked for again soon.
	missing bool

	kinds       map[schema.GroupVersionKind]bool // whether the cluster knows a kind
	whereabouts []usedPool
	nvipam      map[ranges.Ref]*nvipam.Pool
	unreadable  map[ranges.Ref]error
}

// lookAtPools reads the pools that fabrics use: at most every few minutes, sooner if others are used or some are
// missing. If it can't, what was read before stays. It returns whether it has read them.
func (c *Controller) lookAtPools(ctx context.Context, force []fabrics.Fabric) bool {
	kinds := map[schema.GroupVersionKind]bool{}
	refs := map[ranges.Ref]bool{}
	var sections []*ranges.Section
	for i := range force {
		section := sectionOf(&force[i])
		if section.HasPools() {
			kinds[whereaboutsPools] = true
			sections = append(sections, section)
		}
		for _, r := range section.Refs {
			kinds[kindOf(r)] = true
			refs[r] = true
		}
	}
	if len(kinds) == 0 {
		c.pools = pools{}
		return false
	}
	key := fmt.Sprint(kinds, refs)
	age := c.Now().Sub(c.pools.at)
	if key == c.pools.key && (age < missingEvery || age < poolsEvery && !c.pools.missing) {
		return false
	}
	p := pools{
		at: c.Now(), key: key, kinds: kinds, nvipam: map[ranges.Ref]*nvipam.Pool{}, unreadable: map[ranges.Ref]error{},
	}
	for kind := range kinds {
		known, err := c.eachPool(ctx, kind, func(name string) bool { return wants(sections, refs, kind, name) },
			func(u *unstructured.Unstructured) { p.read(kind, u, refs) })
		if err != nil {
			c.Log.Error("cannot read address pools: what was read before stays", "kind", kind.GroupKind(), "error", err)
			c.pools.at, c.pools.missing = p.at, true
			return false
		}
		kinds[kind] = known
		p.missing = p.missing || !known
	}
	p.missing = p.missing || len(p.nvipam) < len(refs)
	c.pools = p
	return true
}

// wants reports whether fabrics in force use a pool of this name.
func wants(sections []*ranges.Section, refs map[ranges.Ref]bool, kind schema.GroupVersionKind, name string) bool {
	if kind != whereaboutsPools {
		return refs[ranges.Ref{Kind: kind.Kind, Name: name}]
	}
	return slices.ContainsFunc(whereabouts.Named(name), func(of netip.Prefix) bool {
		return slices.ContainsFunc(sections, func(s *ranges.Section) bool {
			_, ours := s.PoolCapacity(name, of)
			return ours
		})
	})
}

// eachPool reads the pools of a kind whose names are wanted, one at a time; false: the cluster does not know the kind.
func (c *Controller) eachPool(
	ctx context.Context, kind schema.GroupVersionKind, wanted func(name string) bool,
	take func(*unstructured.Unstructured),
) (known bool, err error) {
	list, known, err := listAll(ctx, c.Ranges.Live, kind)
	for i := range list {
		if !wanted(list[i].Name) {
			continue
		}
		u, err := c.read(ctx, kind, list[i].Namespace, list[i].Name)
		if err != nil {
			return known, err
		}
		if u != nil {
			take(u)
		}
	}
	return known, err
}

// sectionOf is the ipam section of a fabric; an empty one, if it has none or nodeRanges.
func sectionOf(f *fabrics.Fabric) *ranges.Section {
	if f != nil && f.NodeRanges == nil && f.Network["ipam"] != nil {
		if s, err := f.IPAM(); err == nil {
			return s
		}
	}
	return &ranges.Section{}
}

func kindOf(r ranges.Ref) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: nvipam.Group, Version: nvipam.Version, Kind: r.Kind}
}

// read takes over one pool.
func (p *pools) read(kind schema.GroupVersionKind, u *unstructured.Unstructured, refs map[ranges.Ref]bool) {
	if kind == whereaboutsPools {
		text, _, _ := unstructured.NestedString(u.Object, "spec", "range")
		allocations, _, _ := unstructured.NestedMap(u.Object, "spec", "allocations")
		if prefix, err := netip.ParsePrefix(text); err == nil {
			p.whereabouts = append(p.whereabouts, usedPool{u.GetName(), prefix, len(allocations)})
		}
		return
	}
	ref := ranges.Ref{Kind: kind.Kind, Name: u.GetName()}
	if !refs[ref] {
		return
	}
	text, err := json.Marshal(u.Object)
	var pool *nvipam.Pool
	if err == nil {
		pool, err = nvipam.ReadPool(kind.Kind, u.GetNamespace(), u.GetName(), text)
	}
	if err != nil {
		p.unreadable[ref] = err
		return
	}
	// nv-ipam looks into one namespace, and only it knows which: that where it has given something.
	if other := p.nvipam[ref]; other == nil || len(other.Given) < len(pool.Given) {
		p.nvipam[ref] = pool
	}
}

// list names some of many, for a message.
func list(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxUsers; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxUsers], ", "), more)
	}
	return strings.Join(names, ", ")
}

// lacking are the nodes that a pool has nothing for, and those that it has too little for.
func lacking(p *nvipam.Pool, needs map[string]int) (nothing, little []string) {
	for node, need := range maps.All(needs) {
		have, given := p.Given[node]
		switch {
		case !given:
			nothing = append(nothing, node)
		case have < need:
			little = append(little, fmt.Sprintf("%s has %d and needs %d", node, have, need))
		}
	}
	return nothing, little
}
