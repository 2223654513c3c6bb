package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/cluster"
	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// site is what is known of the place where the job will run: recordings, or the cluster.
func (j *jobCheck) site(ctx context.Context, p *doctor.Plan) (s *doctor.Site, missing []doctor.Finding, err error) {
	s = &doctor.Site{}
	switch {
	case j.from.cluster && (len(j.from.recordings) > 0 || j.from.root != "/"):
		return nil, nil, errSources
	case j.from.cluster:
		c := &siteOf{Site: s, kube: j.from.kube, plan: p, namespace: j.namespace}
		c.collect(ctx)
		if c.refused == c.asked {
			return nil, nil, fmt.Errorf("--cluster: no cluster, or no rights: %s", c.missing[0].Evidence)
		}
		return s, c.missing, nil
	case len(j.from.recordings) > 0:
		s.Nodes, err = j.from.recorded()
	case j.from.root != "/":
		s.Nodes, err = j.from.nodes(ctx)
	}
	return s, nil, err
}

// siteOf asks the cluster.
type siteOf struct {
	*doctor.Site
	kube           *cluster.Cluster
	plan           *doctor.Plan
	namespace      string
	missing        []doctor.Finding
	asked, refused int
}

// ask asks for the objects of some kinds. What is not installed is no fault.
func ask[T any](ctx context.Context, s *siteOf, of cluster.List, each func(o *T)) {
	s.asked++
	err := cluster.Each(ctx, s.kube, of, func(o *T, bad error) {
		if bad == nil {
			each(o)
		}
	})
	if err != nil && !errors.Is(err, cluster.ErrNotServed) {
		s.refused++
		s.missing = append(s.missing, doctor.Unasked(err.Error()))
	}
}

func (s *siteOf) collect(ctx context.Context) {
	s.plan.NADs = &doctor.NADs{}
	ask(ctx, s, cluster.List{Of: cluster.Networks}, func(o *doctor.NAD) {
		s.plan.NADs.Items = append(s.plan.NADs.Items, *o)
	})
	if len(s.missing) > 0 && len(s.plan.NADs.Items) == 0 {
		s.plan.NADs = nil
	}
	s.rooms(ctx)
	if list, _, err := listFabrics(ctx, s.kube); err == nil { // without fabric-agent there are none
		s.plan.Fabrics = list
	}
	nodes, _, err := fabricNodes(ctx, s.kube, "") // without fabric-agent there are none
	for i := range nodes {
		if n := nodes[i].Node; err == nil && n != nil && nodes[i].Spec.Gone == nil {
			s.Nodes = append(s.Nodes, n)
		}
	}
	if s.plan.Runtimes() {
		add := func(o *json.RawMessage) { _ = s.plan.Add(*o, s.namespace) } // what it can't read is not there
		of := cluster.Resource{Group: "trainer.kubeflow.org", Resource: "clustertrainingruntimes"}
		ask(ctx, s, cluster.List{Of: of}, add)
		of.Resource = "trainingruntimes"
		ask(ctx, s, cluster.List{Of: of, Namespace: s.namespace}, add)
	}
	if s.plan.Claimed() {
		s.plan.DRA = &doctor.DRA{}
		listDRA(ctx, s.kube, s.plan.DRA, s.namespace)
	}
}

// rooms asks what the nodes have, and what their pods have of it.
func (s *siteOf) rooms(ctx context.Context) {
	at := map[string]int{}
	ask(ctx, s, cluster.List{Of: cluster.Nodes}, func(o *corev1.Node) {
		r := doctor.Room{Name: o.Name, Labels: o.Labels, Cordoned: o.Spec.Unschedulable, Allocatable: map[string]int{}}
		for name, q := range o.Status.Allocatable {
			if n, ok := q.AsInt64(); ok && n >= 0 {
				r.Allocatable[string(name)] = int(n)
			}
		}
		at[r.Name] = len(s.Rooms)
		s.Rooms = append(s.Rooms, r)
	})
	running := cluster.List{Of: cluster.Pods, Fields: "status.phase!=Succeeded,status.phase!=Failed"}
	ask(ctx, s, running, func(o *doctor.Manifest) {
		if i, ok := at[o.Spec.Node]; ok {
			s.Rooms[i].Take(o)
		}
	})
}
