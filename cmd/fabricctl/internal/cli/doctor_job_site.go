package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fabric-cni/fabric-cni/cmd/fabricctl/internal/doctor"
)

// site is what is known of the place where the job will run: recordings, or the cluster.
func (j *jobCheck) site(ctx context.Context, p *doctor.Plan) (s *doctor.Site, missing []doctor.Finding, err error) {
	s = &doctor.Site{}
	switch {
	case j.from.cluster && (len(j.from.recordings) > 0 || j.from.root != "/"):
		return nil, nil, errSources
	case j.from.cluster:
		c := &siteOf{Site: s, plan: p, namespace: j.namespace}
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
	plan           *doctor.Plan
	namespace      string
	missing        []doctor.Finding
	asked, refused int
}

// ask asks for the objects of some kinds. What is not installed is no fault.
func ask[T any](ctx context.Context, s *siteOf, each func(o *T), args ...string) {
	s.asked++
	err := kubectlEach(ctx, func(o *T, bad error) {
		if bad == nil {
			each(o)
		}
	}, append(append([]string{"get"}, args...), "-o", "json")...)
	if err == nil {
		return
	}
	if s.refused++; !strings.Contains(err.Error(), "the server doesn't have a resource type") {
		s.missing = append(s.missing, doctor.Unasked(err.Error()))
	} else {
		s.refused--
	}
}

// nodeObject is what matters here of a Node.
type nodeObject struct {
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
	} `json:"status"`
}

func (s *siteOf) collect(ctx context.Context) {
	s.plan.NADs = &doctor.NADs{}
	ask(ctx, s, func(o *doctor.NAD) { s.plan.NADs.Items = append(s.plan.NADs.Items, *o) },
		"network-attachment-definitions.k8s.cni.cncf.io", "-A")
	if len(s.missing) > 0 && len(s.plan.NADs.Items) == 0 {
		s.plan.NADs = nil
	}
	s.rooms(ctx)
	if list, _, err := listFabrics(ctx); err == nil { // without fabric-agent there are none
		s.plan.Fabrics = list
	}
	nodes, _, err := fabricNodes(ctx, "") // without fabric-agent there are none
	for i := range nodes {
		if n := nodes[i].Node; err == nil && n != nil && nodes[i].Spec.Gone == nil {
			s.Nodes = append(s.Nodes, n)
		}
	}
	if s.plan.Runtimes() {
		ask(ctx, s, func(o *json.RawMessage) { _ = s.plan.Add(*o, s.namespace) }, // what it can't read is not there
			"clustertrainingruntimes.trainer.kubeflow.org,trainingruntimes.trainer.kubeflow.org", "-n", s.namespace)
	}
	if s.plan.Claimed() {
		s.plan.DRA = &doctor.DRA{}
		listDRA(ctx, s.plan.DRA, s.namespace)
	}
}

// rooms asks what the nodes have, and what their pods have of it.
func (s *siteOf) rooms(ctx context.Context) {
	at := map[string]int{}
	ask(ctx, s, func(o *nodeObject) {
		r := doctor.Room{Name: o.Metadata.Name, Labels: o.Metadata.Labels, Cordoned: o.Spec.Unschedulable,
			Allocatable: map[string]int{}}
		for name, q := range o.Status.Allocatable {
			if n, err := strconv.Atoi(q); err == nil && n >= 0 {
				r.Allocatable[name] = n
			}
		}
		at[r.Name] = len(s.Rooms)
		s.Rooms = append(s.Rooms, r)
	}, "nodes")
	ask(ctx, s, func(o *doctor.Manifest) {
		if i, ok := at[o.Spec.Node]; ok {
			s.Rooms[i].Take(o)
		}
	}, "pods", "-A", "--field-selector", "status.phase!=Succeeded,status.phase!=Failed")
}
