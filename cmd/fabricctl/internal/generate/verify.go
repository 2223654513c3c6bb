package generate

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerifyJob is a Job or a CronJob that runs fabricctl verify.
type VerifyJob struct {
	Namespace string
	Name      string
	Image     string   // with fabricctl
	Schedule  string   // of a CronJob; empty: a Job
	Args      []string // of fabricctl
	Labels    bool     // it labels nodes
	NCCL      bool     // it runs an MPIJob
}

// Verify writes the Job, with an account that has the rights which it needs, and no others.
func Verify(v VerifyJob) (string, error) {
	meta := metav1.ObjectMeta{Name: v.Name, Namespace: v.Namespace}
	everywhere := metav1.ObjectMeta{Name: v.Namespace + "-" + v.Name}
	may := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	rules := []rbacv1.PolicyRule{
		may("", "pods", "get", "list", "create", "patch", "delete"), may("", "pods/exec", "get", "create"),
		may("resource.k8s.io", "resourceclaimtemplates", "get", "create", "patch", "delete"),
	}
	if v.NCCL {
		rules = append(rules, may("kubeflow.org", "mpijobs", "get", "create", "patch", "delete"),
			may("", "pods/log", "get"))
	}
	clusterRules := []rbacv1.PolicyRule{{
		APIGroups: []string{AgentPrefix}, Resources: []string{"fabrics", "fabricnodes"}, Verbs: []string{"get", "list"},
	}}
	if v.Labels {
		clusterRules = append(clusterRules, may("", "nodes", "get", "patch"))
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: v.Name, Namespace: v.Namespace}}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	const rbac = "rbac.authorization.k8s.io/v1"
	often := "once"
	job := object{kind("batch/v1", "Job"), meta, v.job(), nil}
	if v.Schedule != "" {
		often = "by a schedule"
		job = object{kind("batch/v1", "CronJob"), meta, batchv1.CronJobSpec{
			Schedule: v.Schedule, ConcurrencyPolicy: batchv1.ForbidConcurrent,
			SuccessfulJobsHistoryLimit: new(int32(3)), FailedJobsHistoryLimit: new(int32(7)),
			JobTemplate: batchv1.JobTemplateSpec{Spec: v.job()},
		}, nil}
	}
	return text([]doc{
		{object{TypeMeta: kind("v1", "ServiceAccount"), Metadata: meta}, []string{
			"fabricctl verify " + often + ": pods with the rails of the Fabrics, measured and deleted again. A " +
				"Job that has",
			"failed says by exit status 3 that something is slow, has failed, or was not measured:",
			"kubectl -n " + v.Namespace + " logs job/...",
			"The image needs fabricctl, as that of fabric-agent has it.",
		}, nil},
		{rbacv1.Role{TypeMeta: kind(rbac, "Role"), ObjectMeta: meta, Rules: rules}, nil, map[string]string{
			"resourceclaimtemplates": "Pods of Fabrics with allocation DRA have claims.",
		}},
		{rbacv1.RoleBinding{
			TypeMeta: kind(rbac, "RoleBinding"), ObjectMeta: meta, RoleRef: ref("Role", v.Name), Subjects: subjects,
		}, nil, nil},
		{rbacv1.ClusterRole{TypeMeta: kind(rbac, "ClusterRole"), ObjectMeta: everywhere, Rules: clusterRules}, nil,
			map[string]string{"nodes": "--label-nodes. Kubernetes has no right for a single label."}},
		{rbacv1.ClusterRoleBinding{
			TypeMeta: kind(rbac, "ClusterRoleBinding"), ObjectMeta: everywhere,
			RoleRef:  ref("ClusterRole", everywhere.Name),
			Subjects: subjects,
		}, nil, nil},
		{job, nil, map[string]string{
			"concurrencyPolicy":             "Two at once would measure each other.",
			"backoffLimit":                  "A fabric that is slow is no better the second time.",
			"terminationGracePeriodSeconds": "In which it deletes its pods.",
		}},
	})
}

func (v *VerifyJob) job() batchv1.JobSpec {
	return batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		ServiceAccountName: v.Name, RestartPolicy: corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(120)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "verify", Image: v.Image, Command: []string{"fabricctl"}, Args: v.Args,
			Env: []corev1.EnvVar{{Name: "HOME", Value: "/tmp"}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
		}},
		Volumes: []corev1.Volume{{
			Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}},
	}}}
}
