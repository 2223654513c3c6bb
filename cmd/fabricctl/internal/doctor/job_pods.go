package doctor

import (
	"slices"
	"strings"
)

// jobLabels are the labels that controllers give to the pods of a job, with the kinds of the objects that they name.
var jobLabels = []struct {
	label string
	kinds []string // in small letters, as people give them to kubectl
}{
	{"training.kubeflow.org/job-name", []string{"pytorchjob", "mpijob", "tfjob", "jaxjob", "paddlejob", "xgboostjob"}},
	{"pytorch-job-name", []string{"pytorchjob"}},
	{"mpi-job-name", []string{"mpijob"}}, // mpi-operator v1
	{"mpi_job_name", []string{"mpijob"}},
	{"volcano.sh/job-name", []string{"job.batch.volcano.sh", "vcjob", "vj"}},
	{"jobset.sigs.k8s.io/jobset-name", []string{"jobset", "trainjob"}},
	{"leaderworkerset.sigs.k8s.io/name", []string{"leaderworkerset", "lws"}},
	{"ray.io/cluster", []string{"raycluster"}},
	{"batch.kubernetes.io/job-name", []string{"job", "job.batch"}},
	{"job-name", []string{"job", "job.batch"}},
}

// ownerKinds are the kinds that own their pods themselves, and how people call them.
var ownerKinds = map[string][]string{
	"StatefulSet": {"statefulset", "sts"}, "DaemonSet": {"daemonset", "ds"}, "ReplicaSet": {"replicaset", "rs"},
	"Deployment": {"deployment", "deploy"}, "Pod": {"pod", "po"},
}

// roleLabels name the role of a pod in its job.
var roleLabels = []string{"training.kubeflow.org/replica-type", "volcano.sh/task-spec",
	"jobset.sigs.k8s.io/replicatedjob-name", "mpi-job-role", "leaderworkerset.sigs.k8s.io/worker-index",
	"ray.io/node-type"}

// owner is the controller of a pod.
func (m *Manifest) owner() (kind, name string) {
	for _, o := range m.Metadata.Owners {
		if o.Controller {
			return o.Kind, o.Name
		}
	}
	return "", ""
}

// PartOf reports whether a pod is one of the job with this name: by a label of its controller, by its owner or by its
// own name. kind may be empty: any.
func (m *Manifest) PartOf(kind, name string) bool {
	kind = strings.ToLower(kind)
	if group, _, ok := strings.Cut(kind, ".kubeflow.org"); ok {
		kind = group
	}
	called := func(names []string) bool {
		return kind == "" || slices.ContainsFunc(names, func(n string) bool {
			return kind == n || kind == n+"s" || strings.HasPrefix(kind, n+".") || strings.HasPrefix(kind, n+"s.")
		})
	}
	for _, l := range jobLabels {
		if name != "" && m.Metadata.Labels[l.label] == name && called(l.kinds) {
			return true
		}
	}
	owner, is := m.owner()
	hash := m.Metadata.Labels["pod-template-hash"]
	switch {
	case owner == "ReplicaSet" && hash != "" && is == name+"-"+hash && called(ownerKinds["Deployment"]):
		return true
	case is == name && ownerKinds[owner] != nil && called(ownerKinds[owner]):
		return true
	}
	return m.Metadata.Name == name && called(ownerKinds["Pod"])
}

// Role is the role of a pod in its job, as its controller says; it may be empty.
func (m *Manifest) Role() string {
	for _, l := range roleLabels {
		if r := m.Metadata.Labels[l]; r != "" {
			return r
		}
	}
	return ""
}

// Launches reports whether a pod starts the others of its job and does not compute.
func (m *Manifest) Launches() bool {
	return strings.EqualFold(m.Role(), "launcher") && m.gpus() == 0
}

// Main is the container that computes.
func (m *Manifest) Main() string {
	for _, c := range m.working() {
		return c.Name
	}
	return ""
}

// Logs gives each worker what the logs of all of them say of its host: with mpirun the launcher's log has the lines of
// all workers.
func Logs(list []Worker, logs [][]*RankLog) {
	by := map[string]int{}
	for i := range list {
		by[list[i].Pod.Metadata.Name] = i
	}
	for i, log := range logs {
		for _, l := range log {
			to := i
			if j, ok := by[l.Host]; ok {
				to = j
			} else if list[i].Launcher && l.Host != "" {
				continue // of a host that is no pod of this job
			}
			if list[to].Log == nil {
				list[to].Log = &RankLog{Host: l.Host, Env: map[string]string{}, Via: map[string]int{},
					virtual: map[int]string{}}
			}
			list[to].Log.merge(l)
		}
	}
}
