package generate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// Each object is one of Kubernetes to the last field, and the rights are those that the flags need.
func TestVerifyJob(t *testing.T) {
	for _, c := range []struct {
		job      VerifyJob
		kind     any
		has, not []string
	}{
		{VerifyJob{Namespace: "ml", Name: "v", Image: "x:1", Args: []string{"verify", "--rate", "1: [*"}},
			&batchv1.Job{}, []string{"kind: Job"}, []string{"- nodes\n", "mpijobs", "CronJob"}},
		{VerifyJob{Namespace: "ml", Name: "v", Image: "x:1", Schedule: "*/5 * * * *", Labels: true, NCCL: true},
			&batchv1.CronJob{}, []string{"concurrencyPolicy: Forbid", "- nodes\n", "mpijobs"}, nil},
	} {
		text, err := Verify(c.job)
		if err != nil {
			t.Fatal(err)
		}
		kinds := []any{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{},
			&rbacv1.ClusterRoleBinding{}, c.kind}
		docs := bytes.Split([]byte(text), []byte("\n---\n"))
		if len(docs) != len(kinds) {
			t.Fatalf("%d documents: %s", len(docs), text)
		}
		for i, doc := range docs {
			if err := yaml.UnmarshalStrict(doc, kinds[i]); err != nil {
				t.Errorf("%T: %v\n%s", kinds[i], err, doc)
			}
		}
		job, ok := c.kind.(*batchv1.Job)
		if ok && fmt.Sprint(job.Spec.Template.Spec.Containers[0].Args) != "[verify --rate 1: [*]" {
			t.Errorf("arguments: %q", job.Spec.Template.Spec.Containers[0].Args)
		}
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%q in %s", not, text)
			}
		}
	}
}
