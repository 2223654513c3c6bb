package controller

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// judged is a Fabric, and what is in force of it.
type judged struct {
	object  *v1alpha1.Fabric
	force   *fabrics.Fabric // nil: nothing was ever accepted
	accept  bool            // force is new
	refused error           // why the present generation is not in force; nil: it is

	before    *fabrics.Fabric // what was in force before the round; nil: nothing
	unwritten bool            // the API server does not take what is in force: nothing more is done this time
}

// need is how many addresses the devices of a fabric need: on all nodes together, and on the node with most of them.
type need struct{ inCluster, onNode int }

// judge decides what is in force of each Fabric. Where two exclude each other, the older one has precedence, and what
// is in force already. dra is why the cluster can't have fabrics with allocation DRA; nil: it can. live says which
// address of a pod a candidate would take away or give again.
func judge(
	objects []v1alpha1.Fabric, needs map[string]need, dra error, live func(candidate, force *fabrics.Fabric) error,
) []judged {
	slices.SortFunc(objects, func(a, b v1alpha1.Fabric) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := make([]judged, len(objects))
	for i := range objects {
		o := &objects[i]
		out[i].object = o
		if o.Status.InForce == nil {
			continue
		}
		was := o.DeepCopy()
		was.Spec, was.Generation = o.Status.InForce.Spec, o.Status.InForce.Generation
		out[i].force, out[i].refused = fabrics.Parse(was)
		out[i].before = out[i].force
	}
	for i := range out {
		j := &out[i]
		o := j.object
		if !o.DeletionTimestamp.IsZero() || j.force != nil && j.force.Generation == o.Generation &&
			equality.Semantic.DeepEqual(o.Status.InForce.Spec, o.Spec) { // an older controller did not know all fields
			continue
		}
		candidate, err := judgeOne(out, i, needs[o.Name])
		if err == nil && candidate.Allocation == v1alpha1.DRA {
			err = dra
		}
		if err == nil {
			err = live(candidate, j.force)
		}
		if j.refused = err; err == nil {
			j.force, j.accept = candidate, true
		}
	}
	return out
}

// judgeOne reads the present generation of a Fabric, and compares it with what is in force of the others.
func judgeOne(all []judged, i int, n need) (*fabrics.Fabric, error) {
	candidate, err := fabrics.Parse(all[i].object)
	if err != nil {
		return nil, err
	}
	for k := range all {
		if other := all[k].force; k != i && other != nil {
			if err := fabrics.Overlap(candidate, other); err != nil {
				return nil, err
			}
		}
	}
	if err := candidate.CheckCapacity(n.inCluster, n.onNode); err != nil {
		return nil, fmt.Errorf("too few addresses: %w", err)
	}
	return candidate, nil
}

// unread are the fabrics in force that a newer version has accepted, and this one can't read.
func unread(all []judged) map[string]bool {
	out := map[string]bool{}
	for i := range all {
		if all[i].force == nil && all[i].object.Status.InForce != nil {
			out[all[i].object.Name] = true
		}
	}
	return out
}

// inForce are the fabrics in force, in the order in which a device looks for its own.
func inForce(all []judged) (out []fabrics.Fabric) {
	for i := range all {
		if all[i].force != nil {
			out = append(out, *all[i].force)
		}
	}
	fabrics.Sort(out)
	return out
}
