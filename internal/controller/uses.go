package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/ipam/nvipam"
	"github.com/fabric-cni/fabric-cni/internal/ipam/ranges"
	"github.com/fabric-cni/fabric-cni/internal/ipam/whereabouts"
)

const (
	// usesEvery is how often what the cluster uses is read: a watch would bring each heartbeat of each Node.
	// changedUsesEvery is that while a spec is not in force yet, or when the Fabrics have others.
	usesEvery        = 10 * time.Minute
	changedUsesEvery = missingEvery
	// usePage is how many objects a list has at once: a Node may have 64 KiB.
	usePage = 50
)

// netUses is what the cluster uses, as it was some minutes ago.
type netUses struct {
	at  time.Time
	key string // of the Fabrics' ranges, by which pools are chosen
	net *clusternet.Net
}

// lookAtUses reads what the cluster uses. candidate is judged beside what is in force; nil: none is.
func (c *Controller) lookAtUses(ctx context.Context, w *world, candidate *fabrics.Fabric) *clusternet.Net {
	taken, refs := w.taken()
	key, age := fmt.Sprint(taken, refs), c.Now().Sub(c.uses.at)
	if c.uses.net != nil && age < usesEvery && (age < changedUsesEvery || candidate == nil && key == c.uses.key) {
		return c.uses.net
	}
	c.uses = netUses{at: c.Now(), key: key, net: clusternet.Read(ctx, &usesReader{c, taken, refs})}
	return c.uses.net
}

// taken are the subnets of all Fabrics, in force and wanted, and the pools that they name.
func (w *world) taken() (taken []netip.Prefix, refs []ranges.Ref) {
	for f := range fabrics.Readable(w.fabrics) {
		taken = append(taken, f.Taken()...)
		refs = append(refs, sectionOf(f).Refs...)
	}
	return taken, refs
}

// usesReader reads objects from the API server. Pools of IPAM plugins are what tenants make large: of those of
// whereabouts it reads the ones whose names are of a Fabric's range, of nv-ipam's those that a Fabric names.
type usesReader struct {
	c     *Controller
	taken []netip.Prefix
	refs  []ranges.Ref
}

// Each is of clusternet.Reader.
func (r *usesReader) Each(
	ctx context.Context, s *clusternet.Source, version string, each func(map[string]any),
) (known bool, err error) {
	kind := schema.GroupVersionKind{Group: s.Group, Version: version, Kind: s.Kind}
	take := func(u *unstructured.Unstructured) { each(u.Object) }
	switch {
	case s.Name != "":
		u, err := r.c.read(ctx, kind, s.Namespace, s.Name)
		if u != nil {
			take(u)
		}
		return u != nil, err
	case s.Group == clusternet.Whereabouts:
		return r.c.eachPool(ctx, kind, r.reached, take)
	case s.Group == nvipam.Group:
		named := func(name string) bool { return slices.Contains(r.refs, ranges.Ref{Kind: s.Kind, Name: name}) }
		return r.c.eachPool(ctx, kind, named, take)
	}
	page := &unstructured.UnstructuredList{}
	page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = eachPage(ctx, r.c.Ranges.Live, page, usePage, func() {
		for i := range page.Items {
			each(page.Items[i].Object)
		}
	})
	if absent(err) {
		return false, nil
	}
	return err == nil, err
}

// reached reports whether an IPPool of whereabouts may have addresses of a Fabric.
func (r *usesReader) reached(name string) bool {
	return slices.ContainsFunc(whereabouts.Named(name), func(p netip.Prefix) bool {
		return slices.ContainsFunc(r.taken, p.Overlaps)
	})
}

// checkUses returns an error if a spec that is not in force yet would cut pods off from what they reach by their first
// interface. What is in force stays so, and the condition AddressesUnique says it.
func (c *Controller) checkUses(ctx context.Context, w *world, candidate, force *fabrics.Fabric) error {
	return candidate.Meets(c.lookAtUses(ctx, w, candidate).Uses).Breaks(force).Err()
}

// uniqueness judges the ranges of a fabric by what else has them.
func (c *Controller) uniqueness(ctx context.Context, j *judged, w *world) verdict {
	if j.force == nil {
		return verdict{reason: unique}
	}
	net := c.lookAtUses(ctx, w, nil)
	if err := j.force.Meets(net.Uses).Err(); err != nil {
		return verdict{reason: rangeInUse, err: err}
	}
	if len(net.Missing) > 0 && len(j.force.Taken()) > 0 {
		return verdict{reason: notCompared, note: net.Because()}
	}
	return verdict{reason: unique}
}
