package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// template is a PodTemplateSpec: it has the fields of a pod that matter here.
type template = Manifest

// kinds are how the objects that make pods are read, by the group of their API and their kind.
var kinds = map[string]func(raw json.RawMessage) (*Workload, error){
	"/Pod":                        readPod,
	"/ReplicationController":      readReplicas,
	"apps/Deployment":             readReplicas,
	"apps/ReplicaSet":             readReplicas,
	"apps/StatefulSet":            readReplicas,
	"apps/DaemonSet":              readDaemonSet,
	"batch/Job":                   readJob,
	"batch/CronJob":               readCronJob,
	"batch.volcano.sh/Job":        readVolcano,
	"jobset.x-k8s.io/JobSet":      readJobSet,
	"kubeflow.org/MPIJob":         readMPIJob,
	"kubeflow.org/PyTorchJob":     readKubeflow,
	"kubeflow.org/TFJob":          readKubeflow,
	"kubeflow.org/JAXJob":         readKubeflow,
	"kubeflow.org/PaddleJob":      readKubeflow,
	"kubeflow.org/XGBoostJob":     readKubeflow,
	"ray.io/RayCluster":           readRay,
	"ray.io/RayJob":               readRayJob,
	leaderGroup + "/" + leaderSet: readLeaderSet,
}

const leaderGroup, leaderSet = "leaderworkerset.x-k8s.io", "LeaderWorkerSet"

// Kinds are the kinds of objects that Plan understands.
func Kinds() (out []string) {
	for k := range kinds {
		group, kind, _ := strings.Cut(k, "/")
		if group == "batch.volcano.sh" {
			kind = "Volcano's Job"
		}
		out = append(out, kind)
	}
	out = append(out, "TrainJob")
	slices.Sort(out)
	return out
}

// workload reads an object. It is nil for one that makes no pods, or that Plan reads later.
func workload(raw json.RawMessage, h *head) (*Workload, error) {
	read := kinds[h.group()+"/"+h.Kind]
	if read == nil {
		return nil, nil
	}
	w, err := read(raw)
	if err != nil {
		return nil, err
	}
	w.Kind, w.Namespace, w.Name = h.Kind, h.Metadata.Namespace, cmp.Or(h.Metadata.Name, "(no name)")
	return w, nil
}

// oneIfNil is the number of replicas that an object does not name.
func oneIfNil(n *int) int {
	if n == nil {
		return 1
	}
	return *n
}

func readPod(raw json.RawMessage) (*Workload, error) {
	m := &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, err
	}
	return &Workload{Roles: []Role{{Count: 1, Pod: m}}}, nil
}

// replicated is what Deployments and their like have.
type replicated struct {
	Spec struct {
		Replicas *int      `json:"replicas"`
		Template *template `json:"template"`
	} `json:"spec"`
}

func readReplicas(raw json.RawMessage) (*Workload, error) {
	var o replicated
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	if o.Spec.Template == nil {
		return nil, errNoTemplate
	}
	return &Workload{Roles: []Role{{Count: oneIfNil(o.Spec.Replicas), Pod: o.Spec.Template}}}, nil
}

var errNoTemplate = fmt.Errorf("it has no template of pods")

func readDaemonSet(raw json.RawMessage) (*Workload, error) {
	w, err := readReplicas(raw)
	if err == nil {
		w.Roles[0].Count = -1
	}
	return w, err
}

// jobSpec is the spec of a Job of Kubernetes.
type jobSpec struct {
	Parallelism *int      `json:"parallelism"`
	Mode        string    `json:"completionMode"`
	Template    *template `json:"template"`
}

func readJob(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec jobSpec `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return o.Spec.workload()
}

func (s *jobSpec) workload() (*Workload, error) {
	if s.Template == nil {
		return nil, errNoTemplate
	}
	n := oneIfNil(s.Parallelism)
	// Pods of an indexed Job know each other by number; others are pieces of work.
	return &Workload{Roles: []Role{{Count: n, Pod: s.Template}}, Together: n > 1 && s.Mode == "Indexed"}, nil
}

func readCronJob(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			Template struct {
				Spec jobSpec `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return o.Spec.Template.Spec.workload()
}

func readVolcano(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			Tasks []struct {
				Name     string    `json:"name"`
				Replicas *int      `json:"replicas"`
				Template *template `json:"template"`
			} `json:"tasks"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	w := &Workload{Together: true}
	for i, t := range o.Spec.Tasks {
		if t.Template == nil {
			return nil, fmt.Errorf("spec.tasks[%d]: %w", i, errNoTemplate)
		}
		w.Roles = append(w.Roles, Role{Name: cmp.Or(t.Name, fmt.Sprintf("task %d", i)), Count: oneIfNil(t.Replicas),
			Pod: t.Template})
	}
	return w.launchers()
}

// launchers marks the role that only starts mpirun beside others.
func (w *Workload) launchers() (*Workload, error) {
	if len(w.Roles) == 0 {
		return nil, errNoTemplate
	}
	for i := range w.Roles {
		r := &w.Roles[i]
		starts := slices.ContainsFunc(r.Pod.Spec.Containers, func(c container) bool { return c.mpirun() != nil })
		others := slices.ContainsFunc(w.Roles, func(o Role) bool { return o.Pod != r.Pod && o.Pod.gpus() > 0 })
		r.Launcher = r.Launcher || starts && others && r.Count == 1 && r.Pod.gpus() == 0
	}
	return w, nil
}

// replicatedJob is a part of a JobSet.
type replicatedJob struct {
	Name     string `json:"name"`
	Replicas *int   `json:"replicas"`
	Template struct {
		Spec jobSpec `json:"spec"`
	} `json:"template"`
}

func readJobSet(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			Jobs []replicatedJob `json:"replicatedJobs"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return jobSet(o.Spec.Jobs)
}

func jobSet(jobs []replicatedJob) (*Workload, error) {
	w := &Workload{Together: true}
	for i, j := range jobs {
		if j.Template.Spec.Template == nil {
			return nil, fmt.Errorf("spec.replicatedJobs[%d]: %w", i, errNoTemplate)
		}
		n, each := oneIfNil(j.Replicas), oneIfNil(j.Template.Spec.Parallelism)
		if max(n, each) > maxPods {
			return nil, fmt.Errorf("spec.replicatedJobs[%d]: %d times %d pods: want %d at most", i, n, each, maxPods)
		}
		w.Roles = append(w.Roles, Role{Name: j.Name, Count: n * each, Pod: j.Template.Spec.Template})
	}
	return w.launchers()
}

// replicaSpecs are the roles of a kind of Kubeflow.
type replicaSpecs map[string]*struct {
	Replicas *int      `json:"replicas"`
	Template *template `json:"template"`
}

func (s replicaSpecs) workload() (*Workload, error) {
	w := &Workload{Together: true}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		r := s[name]
		if r == nil || r.Template == nil {
			return nil, fmt.Errorf("%s: %w", name, errNoTemplate)
		}
		w.Roles = append(w.Roles, Role{Name: name, Count: oneIfNil(r.Replicas), Pod: r.Template})
	}
	if len(w.Roles) == 0 {
		return nil, errNoTemplate
	}
	return w, nil
}

func readKubeflow(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			PyTorch replicaSpecs `json:"pytorchReplicaSpecs"`
			TF      replicaSpecs `json:"tfReplicaSpecs"`
			JAX     replicaSpecs `json:"jaxReplicaSpecs"`
			Paddle  replicaSpecs `json:"paddleReplicaSpecs"`
			XGBoost replicaSpecs `json:"xgbReplicaSpecs"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	all := replicaSpecs{}
	for _, s := range []replicaSpecs{o.Spec.PyTorch, o.Spec.TF, o.Spec.JAX, o.Spec.Paddle, o.Spec.XGBoost} {
		maps.Copy(all, s)
	}
	return all.workload()
}

func readMPIJob(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			Roles   replicaSpecs `json:"mpiReplicaSpecs"`
			Working bool         `json:"runLauncherAsWorker"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	w, err := o.Spec.Roles.workload()
	if err != nil {
		return nil, err
	}
	for i := range w.Roles {
		w.Roles[i].Launcher = w.Roles[i].Name == "Launcher" && len(w.Roles) > 1 && !o.Spec.Working
	}
	return w, nil
}

func readLeaderSet(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			Replicas *int `json:"replicas"`
			Group    struct {
				Size   *int      `json:"size"`
				Leader *template `json:"leaderTemplate"`
				Worker *template `json:"workerTemplate"`
			} `json:"leaderWorkerTemplate"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	groups, size := oneIfNil(o.Spec.Replicas), oneIfNil(o.Spec.Group.Size)
	switch {
	case o.Spec.Group.Worker == nil:
		return nil, errNoTemplate
	case size < 1 || max(groups, size) > maxPods:
		return nil, fmt.Errorf("%d groups of %d pods: want 0 to %d of at least 1", groups, size, maxPods)
	case o.Spec.Group.Leader == nil:
		return &Workload{Together: size > 1, Roles: []Role{{Count: groups * size, Pod: o.Spec.Group.Worker}}}, nil
	}
	return &Workload{Together: size > 1, Roles: []Role{
		{Name: "leader", Count: groups, Pod: o.Spec.Group.Leader},
		{Name: "worker", Count: groups * (size - 1), Pod: o.Spec.Group.Worker},
	}}, nil
}

// raySpec is a cluster of Ray.
type raySpec struct {
	Head struct {
		Template *template `json:"template"`
	} `json:"headGroupSpec"`
	Groups []struct {
		Name     string    `json:"groupName"`
		Replicas *int      `json:"replicas"`
		Template *template `json:"template"`
	} `json:"workerGroupSpecs"`
}

func readRay(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec raySpec `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return o.Spec.workload()
}

func readRayJob(raw json.RawMessage) (*Workload, error) {
	var o struct {
		Spec struct {
			Cluster raySpec `json:"rayClusterSpec"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return o.Spec.Cluster.workload()
}

func (s *raySpec) workload() (*Workload, error) {
	w := &Workload{Together: true}
	if s.Head.Template == nil {
		return nil, errNoTemplate
	}
	w.Roles = append(w.Roles, Role{Name: "head", Count: 1, Launcher: s.Head.Template.gpus() == 0, Pod: s.Head.Template})
	for i, g := range s.Groups {
		if g.Template == nil {
			return nil, fmt.Errorf("spec.workerGroupSpecs[%d]: %w", i, errNoTemplate)
		}
		w.Roles = append(w.Roles, Role{Name: cmp.Or(g.Name, fmt.Sprintf("group %d", i)), Count: oneIfNil(g.Replicas),
			Pod: g.Template})
	}
	return w, nil
}
