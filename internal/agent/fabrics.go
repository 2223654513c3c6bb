package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/fabric-cni/fabric-cni/internal/agent/condition"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// fabricsReconciler decides which fabrics are in force on this node: those that the controller has accepted, and while
// the API server is away the last ones that it told of. One with a nodeSelector is in force where the controller has
// written that it selects the node: an agent may not read its Node.
type fabricsReconciler struct {
	// told returns the Fabrics that there are, and whether the API server has listed them. Nil without an API server.
	told func() ([]*v1alpha1.Fabric, bool)
	// selected returns the Fabrics whose nodeSelector selects this node, and whether the API server has told of them.
	// Nil without an API server.
	selected func() ([]string, bool)
	saved    *savedState
	log      *slog.Logger
	now      func() time.Time

	began   time.Time        // the first look
	fabrics []fabrics.Fabric // in force, in the order in which a device looks for its own
}

// tellBy is how long the API server may take to say which Fabrics there are before that is a condition.
const tellBy = 10 * time.Second

// reconcile returns the fabrics in force. A Fabric that this version of the agent can't read, because it is of a newer
// one, stays as it was.
func (r *fabricsReconciler) reconcile(findings *condition.Set) []fabrics.Fabric {
	next, selected := r.saved.Fabrics, r.saved.Selected
	if r.selected != nil {
		if now, known := r.selected(); known {
			selected = now
		}
	}
	if r.told != nil {
		list, known := r.told()
		if !known {
			r.checkKnown(findings)
		} else {
			next = nil
			for _, o := range list {
				if o.Status.InForce != nil {
					next = append(next, savedFabric{o.Name, o.Status.InForce.Generation, o.Status.InForce.Spec})
				}
			}
		}
	}
	var kept []savedFabric
	var list []fabrics.Fabric
	for _, s := range next {
		f, err := s.parse()
		if err != nil {
			findings.Add(condition.FabricUnreadable, condition.Fabric(s.Name),
				"this agent can't read generation %d of Fabric %s: %v; is it older than the controller?",
				s.Generation, s.Name, err)
			if s, f = r.before(s.Name); f == nil {
				continue
			}
		}
		kept = append(kept, s)
		if f.Nodes == nil || slices.Contains(selected, s.Name) {
			list = append(list, *f)
		}
	}
	fabrics.Sort(list)
	r.fabrics = list
	if !reflect.DeepEqual(kept, r.saved.Fabrics) || !slices.Equal(selected, r.saved.Selected) {
		r.saved.Fabrics, r.saved.Selected = kept, selected
		if err := r.saved.save(); err != nil {
			r.log.Error(err.Error())
		}
	}
	return list
}

// checkKnown says that neither the API server nor an earlier agent has told of any Fabric: there is nothing to offer.
func (r *fabricsReconciler) checkKnown(findings *condition.Set) {
	now := r.now()
	if r.began.IsZero() {
		r.began = now
	}
	if len(r.saved.Fabrics) == 0 && now.Sub(r.began) >= tellBy {
		findings.Add(condition.FabricsUnknown, condition.Node, "the API server has not said which Fabrics there "+
			"are, and %s has none of an earlier agent: a reboot empties it; pods that run keep their devices, and "+
			"none is offered to new ones: can this node reach the API server, and may the agent list Fabrics?",
			r.saved.file)
	}
}

// before is a fabric as it was at the last look; nil: it was not there.
func (r *fabricsReconciler) before(name string) (savedFabric, *fabrics.Fabric) {
	for _, s := range r.saved.Fabrics {
		if s.Name == name {
			if f, err := s.parse(); err == nil {
				return s, f
			}
		}
	}
	return savedFabric{}, nil
}

// savedFabric is a spec that was in force.
type savedFabric struct {
	Name       string              `json:"name"`
	Generation int64               `json:"generation"`
	Spec       v1alpha1.FabricSpec `json:"spec"`
}

func (s *savedFabric) parse() (*fabrics.Fabric, error) {
	o := &v1alpha1.Fabric{Spec: s.Spec}
	o.Name, o.Generation = s.Name, s.Generation
	f, err := fabrics.Parse(o)
	if err != nil {
		return nil, fmt.Errorf("fabric %s: %w", s.Name, err)
	}
	return f, nil
}

// errNoRange means that the node has no range of a fabric yet.
var errNoRange = errors.New("the controller has given this node no range yet: is fabric-controller running? " +
	"The condition AddressesSufficient of the Fabric says whether it waits for other nodes, or has none left")
