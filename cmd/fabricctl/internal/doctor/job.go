package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// Workload is an object of Kubernetes that makes pods.
type Workload struct {
	Kind      string
	Namespace string
	Name      string
	Roles     []Role
	// Together: its pods are one job and talk to each other.
	Together bool
	// Runtime is what a TrainJob refers to and what is not known: its pods are described there.
	Runtime string
}

func (w *Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// Role is one kind of pods of a workload.
type Role struct {
	Name     string // Worker, Master, Launcher, ...; empty where the workload has one kind of pods only
	Count    int    // of pods; -1: one on each node
	Launcher bool   // it starts the others and does not compute
	Pod      *Manifest
}

// what names a role in a finding.
func (w *Workload) what(r *Role) string {
	if r.Name == "" {
		return w.String()
	}
	return w.String() + ", " + r.Name
}

// Plan is what there is before a job runs: its objects, and what is known of the cluster.
type Plan struct {
	Workloads []Workload
	NADs      *NADs // nil: not known
	AllNADs   bool  // NADs are all there are
	Fabrics   []v1alpha1.Fabric
	DRA       *DRA // nil: not known

	claims    []DRAObject                  // those of the files
	fromFiles bool                         // DRA has nothing but those
	runtimes  map[string]json.RawMessage   // training runtimes, by kind/namespace/name
	configs   map[string]map[string]string // ConfigMaps, by namespace/name
	trainers  []json.RawMessage            // TrainJobs, which need their runtime
}

// head is what every object begins with.
type head struct {
	Kind     string `json:"kind"`
	Version  string `json:"apiVersion"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

func (h *head) String() string {
	return strings.Trim(h.Kind+" "+cmp.Or(h.Metadata.Namespace, "default")+"/"+h.Metadata.Name, " ")
}

func (h *head) group() string {
	group, _, ok := strings.Cut(h.Version, "/")
	if !ok {
		return ""
	}
	return group
}

// Most of what a file may have: more is an error.
const (
	maxWorkloads = 1000
	maxRoles     = 200
	maxPods      = 100_000
)

// Add takes an object of a file, or of the cluster. One that makes no pods, and that no pod depends on, is passed over.
// namespace is that of objects that name none.
func (p *Plan) Add(raw json.RawMessage, namespace string) error {
	var h head
	if err := json.Unmarshal(raw, &h); err != nil {
		return fmt.Errorf("an object: %w", err)
	}
	if h.Kind == "" {
		return fmt.Errorf("an object has no kind: want manifests of Kubernetes")
	}
	h.Metadata.Namespace = cmp.Or(h.Metadata.Namespace, namespace)
	if err := p.add(raw, &h); err != nil {
		return fmt.Errorf("%s: %w", &h, err)
	}
	return nil
}

func (p *Plan) add(raw json.RawMessage, h *head) error {
	switch h.Kind {
	case "NetworkAttachmentDefinition":
		var n NAD
		if err := json.Unmarshal(raw, &n); err != nil {
			return err
		}
		n.Metadata.Namespace = h.Metadata.Namespace
		if p.NADs == nil {
			p.NADs = &NADs{}
		}
		p.NADs.Items = append(p.NADs.Items, n)
		return nil
	case "ResourceClaim", "ResourceClaimTemplate":
		var o DRAObject
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		o.Metadata.Namespace = h.Metadata.Namespace
		p.claims = append(p.claims, o)
		return nil
	case "ConfigMap":
		var c struct {
			Data map[string]string `json:"data"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		if p.configs == nil {
			p.configs = map[string]map[string]string{}
		}
		p.configs[h.Metadata.Namespace+"/"+h.Metadata.Name] = c.Data
		return nil
	case "TrainingRuntime", "ClusterTrainingRuntime":
		if p.runtimes == nil {
			p.runtimes = map[string]json.RawMessage{}
		}
		p.runtimes[h.runtime()] = raw
		return nil
	case "TrainJob": // when all runtimes are known
		p.trainers = append(p.trainers, raw)
	}
	w, err := workload(raw, h)
	if err != nil || w == nil {
		return err
	}
	return p.take(w)
}

// take adds a workload.
func (p *Plan) take(w *Workload) error {
	if len(p.Workloads) == maxWorkloads {
		return fmt.Errorf("more than %d workloads", maxWorkloads)
	}
	if len(w.Roles) > maxRoles {
		return fmt.Errorf("%d kinds of pods, %d at most", len(w.Roles), maxRoles)
	}
	for i := range w.Roles {
		r := &w.Roles[i]
		if r.Count < 0 && w.Kind != "DaemonSet" || r.Count > maxPods {
			return fmt.Errorf("%d pods: want 0 to %d", r.Count, maxPods)
		}
		r.Pod.Kind, r.Pod.planned = "Pod", w.Kind != "Pod" || r.Pod.Metadata.UID == "" && r.Pod.Status.Phase == ""
		r.Pod.Metadata.Namespace = w.Namespace
	}
	p.Workloads = append(p.Workloads, *w)
	return nil
}

// Claimed reports whether pods of it have to do with claims.
func (p *Plan) Claimed() bool {
	return slices.ContainsFunc(p.Workloads, func(w Workload) bool {
		return slices.ContainsFunc(w.Roles, func(r Role) bool { return r.Pod.Claimed() })
	})
}

// Runtimes reports whether it needs a training runtime that it does not have.
func (p *Plan) Runtimes() bool { return len(p.trainers) > 0 && len(p.runtimes) == 0 }

// String names the workloads.
func (p *Plan) String() string {
	var names []string
	for i := range p.Workloads {
		names = append(names, p.Workloads[i].String())
	}
	return few(names)
}

// Unasked is a finding about what the cluster could not be asked, or a pod not be looked at.
func Unasked(what string) Finding { return finding("job-access", Warn, what) }

// Ready is called when all objects have been added.
func (p *Plan) Ready(namespace string) error {
	for _, raw := range p.trainers {
		var t trainJob
		if err := json.Unmarshal(raw, &t); err != nil {
			return err
		}
		t.Metadata.Namespace = cmp.Or(t.Metadata.Namespace, namespace)
		w, err := p.train(&t)
		if err != nil {
			return fmt.Errorf("%s: %w", &t.head, err)
		}
		if err := p.take(w); err != nil {
			return fmt.Errorf("%s: %w", &t.head, err)
		}
	}
	p.trainers = nil
	for i := range p.claims {
		if p.DRA == nil {
			p.DRA, p.fromFiles = &DRA{Partial: true}, true
		}
		if err := p.DRA.Add(&p.claims[i]); err != nil {
			return err
		}
	}
	p.claims = nil
	if len(p.Workloads) == 0 {
		return fmt.Errorf("nothing in it makes pods: want %s", strings.Join(Kinds(), ", "))
	}
	for i := range p.Workloads {
		for j := range p.Workloads[i].Roles {
			p.configure(p.Workloads[i].Roles[j].Pod)
		}
	}
	return nil
}

// configure gives the containers the variables that come from ConfigMaps of the same file.
func (p *Plan) configure(m *Manifest) {
	for i := range m.Spec.Containers {
		c := &m.Spec.Containers[i]
		var all []envVar
		for _, f := range c.From {
			if f.ConfigMap == nil {
				continue
			}
			data := p.configs[m.Metadata.Namespace+"/"+f.ConfigMap.Name]
			for _, k := range slices.Sorted(maps.Keys(data)) {
				all = append(all, envVar{Name: f.Prefix + k, Value: data[k]})
			}
		}
		for _, v := range c.Env {
			if v.From != nil && v.From.ConfigMap != nil {
				v.Value = p.configs[m.Metadata.Namespace+"/"+v.From.ConfigMap.Name][v.From.ConfigMap.Key]
			}
			all = append(all, v)
		}
		c.Env = all
	}
}
