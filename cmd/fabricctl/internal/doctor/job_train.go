package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// runtime is the key of a runtime: those of the cluster have no namespace.
func (h *head) runtime() string {
	if h.Kind == "ClusterTrainingRuntime" {
		return h.Kind + "/" + h.Metadata.Name
	}
	return h.Kind + "/" + h.Metadata.Namespace + "/" + h.Metadata.Name
}

// trainJob is a TrainJob of trainer.kubeflow.org/v1alpha1: what it changes of its runtime, whose template is a JobSet.
type trainJob struct {
	head

	Spec struct {
		Runtime struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"runtimeRef"`
		Trainer struct {
			Nodes     *int     `json:"numNodes"`
			Command   []string `json:"command"`
			Args      []string `json:"args"`
			Env       []envVar `json:"env"`
			Resources *struct {
				Limits   map[string]any `json:"limits"`
				Requests map[string]any `json:"requests"`
			} `json:"resourcesPerNode"`
		} `json:"trainer"`
		Overrides []trainOverride `json:"podTemplateOverrides"`
	} `json:"spec"`
}

// trainOverride is what a TrainJob changes in the pods of some jobs of its runtime.
type trainOverride struct {
	Targets []struct {
		Name string `json:"name"`
	} `json:"targetJobs"`
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Volumes    []volume    `json:"volumes"`
		Containers []container `json:"containers"`
	} `json:"spec"`
}

// trainerJob is the job of a runtime whose pods train, and trainerContainer their container.
const (
	trainerJob       = "node"
	trainerContainer = "node"
)

// train makes the pods of a TrainJob from its runtime.
func (p *Plan) train(t *trainJob) (*Workload, error) {
	ref := head{Kind: cmp.Or(t.Spec.Runtime.Kind, "ClusterTrainingRuntime")}
	ref.Metadata.Name, ref.Metadata.Namespace = t.Spec.Runtime.Name, t.Metadata.Namespace
	name := &Workload{Kind: t.Kind, Namespace: t.Metadata.Namespace, Name: t.Metadata.Name, Together: true}
	raw, ok := p.runtimes[ref.runtime()]
	if !ok {
		name.Runtime = ref.Kind + " " + ref.Metadata.Name
		return name, nil
	}
	var runtime struct {
		Spec struct {
			Policy struct {
				Nodes *int `json:"numNodes"`
			} `json:"mlPolicy"`
			Template struct {
				Spec struct {
					Jobs []replicatedJob `json:"replicatedJobs"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &runtime); err != nil {
		return nil, fmt.Errorf("%s: %w", name.Runtime, err)
	}
	w, err := jobSet(runtime.Spec.Template.Spec.Jobs)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", ref.Kind, ref.Metadata.Name, err)
	}
	w.Kind, w.Namespace, w.Name = name.Kind, name.Namespace, name.Name
	for i := range w.Roles {
		r := &w.Roles[i]
		if r.Name == trainerJob {
			r.Count = *cmp.Or(t.Spec.Trainer.Nodes, runtime.Spec.Policy.Nodes, &r.Count)
			t.trainer(r.Pod)
		}
		for _, o := range t.Spec.Overrides {
			o.change(r)
		}
	}
	return w, nil
}

// trainer puts spec.trainer into the container that trains.
func (t *trainJob) trainer(m *Manifest) {
	for i := range m.Spec.Containers {
		c := &m.Spec.Containers[i]
		if c.Name != trainerContainer {
			continue
		}
		x := &t.Spec.Trainer
		if x.Resources != nil {
			c.Resources.Limits, c.Resources.Requests = x.Resources.Limits, x.Resources.Requests
		}
		if len(x.Command) > 0 {
			c.Command = x.Command
		}
		if len(x.Args) > 0 {
			c.Args = x.Args
		}
		c.Env = append(slices.Clone(c.Env), x.Env...)
	}
}

// change applies an override to a role that it names.
func (o *trainOverride) change(r *Role) {
	if !slices.ContainsFunc(o.Targets, func(t struct {
		Name string `json:"name"`
	}) bool {
		return t.Name == r.Name
	}) {
		return
	}
	r.Pod.Metadata.Labels = overlaid(r.Pod.Metadata.Labels, o.Metadata.Labels)
	r.Pod.Metadata.Annotations = overlaid(r.Pod.Metadata.Annotations, o.Metadata.Annotations)
	r.Pod.Spec.Volumes = append(slices.Clone(r.Pod.Spec.Volumes), o.Spec.Volumes...)
	for _, c := range o.Spec.Containers {
		for i := range r.Pod.Spec.Containers {
			if x := &r.Pod.Spec.Containers[i]; x.Name == c.Name {
				x.Env = append(slices.Clone(x.Env), c.Env...)
				x.Mounts = append(slices.Clone(x.Mounts), c.Mounts...)
			}
		}
	}
}

// overlaid is a with what b has instead or beside.
func overlaid[V any](a, b map[string]V) map[string]V {
	out := map[string]V{}
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
