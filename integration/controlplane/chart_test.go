package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

func clientset(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// token is one of a service account.
func token(t *testing.T, namespace, account string) string {
	t.Helper()
	r, err := clientset(t).CoreV1().ServiceAccounts(namespace).CreateToken(
		t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// jobs does what a cluster does with the Jobs of a namespace until the returned function is called: it runs their
// program with the token of their service account. That function returns the names of those that were run. Errors with
// one of the given texts are meant.
func jobs(t *testing.T, namespace string, meant ...string) (stop func() []string) {
	t.Helper()
	binary := built(t, "fabric-agent")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []string)
	go func() {
		var ran []string
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			list, err := clientset(t).BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range list.Items {
				if j := &list.Items[i]; len(j.Status.Conditions) == 0 {
					ran = append(ran, j.Name)
					err := runJob(ctx, t, binary, j)
					has := func(text string) bool { return strings.Contains(err.Error(), text) }
					if err != nil && ctx.Err() == nil && !slices.ContainsFunc(meant, has) {
						t.Errorf("job %s: %v", j.Name, err)
					}
				}
			}
		}
		done <- ran
	}()
	return func() []string {
		cancel()
		return <-done
	}
}

// runJob runs the program of a Job, and says in the Job's status how it has ended.
func runJob(ctx context.Context, t *testing.T, binary string, j *batchv1.Job) error {
	t.Helper()
	pod := &j.Spec.Template.Spec
	r, err := clientset(t).CoreV1().ServiceAccounts(j.Namespace).CreateToken(
		ctx, pod.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	args := append(slices.Clone(pod.Containers[0].Args), "--kubeconfig="+kubeconfig(t, r.Status.Token))
	for i, m := range pod.Containers[0].VolumeMounts {
		dir, err := mounted(ctx, t, j, pod.Volumes[i].ConfigMap.Name)
		if err != nil {
			return err
		}
		for k := range args {
			args[k] = strings.ReplaceAll(args[k], m.MountPath, dir)
		}
	}
	for k := range args {
		args[k] = strings.ReplaceAll(args[k], "$(POD_NAMESPACE)", j.Namespace)
	}
	out, failed := exec.CommandContext(ctx, binary, args...).CombinedOutput()
	if failed != nil {
		failed = fmt.Errorf("fabric-agent %s: %w: %s", args[0], failed, out)
	}
	now := metav1.Now()
	kinds := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
	if j.Status.StartTime = &now; failed == nil {
		j.Status.CompletionTime, j.Status.Succeeded = &now, 1
	} else {
		kinds = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
	}
	for _, kind := range kinds {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now,
		})
	}
	_, err = clientset(t).BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, j, metav1.UpdateOptions{})
	return errors.Join(failed, err)
}

// mounted is a directory with the files of a ConfigMap.
func mounted(ctx context.Context, t *testing.T, j *batchv1.Job, name string) (string, error) {
	t.Helper()
	m, err := clientset(t).CoreV1().ConfigMaps(j.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	dir := t.TempDir()
	for file, text := range m.Data {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// release installs the chart as RELEASE in RELEASE-system.
func release(t *testing.T, name string, args ...string) (helm func(verb string, args ...string) string) {
	t.Helper()
	create(t, whole(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-system"}})
	helm = func(verb string, args ...string) string {
		t.Helper()
		return do(t, "helm", append([]string{verb, name, "-n", name + "-system"}, args...)...)
	}
	helm("install", append([]string{chart}, args...)...)
	return helm
}

// With everything set the API server accepts what the chart makes; kinds that it does not have are judged by their
// types.
func TestChartValues(t *testing.T) {
	do(t, "helm", "lint", "--strict", chart, "--kube-version", "1.34")
	text := renderIn(t, "default", "--is-upgrade", "--set",
		"metrics.listen=pod,metrics.secure=true,metrics.certSecret=tls,port=9000,"+
			"metrics.monitors=true,metrics.rules=true,metrics.tokenSecret=prometheus,metrics.labels.release=p,"+
			"dashboard=true,criSocket=/run/x.sock,imagePullSecrets[0].name=s,image.digest=sha256:"+
			strings.Repeat("0", 64)+",controller.replicas=3,controller.port=9001",
		"--set-json",
		`fabrics=[{"name":"ib","spec":{"match":{"discovered":"ib"},"network":{"mtu":4092},"addresses":{"ipam":{"type":"x","some":1}}}}]`)
	var known []string
	for _, doc := range strings.Split(text, "\n---\n") {
		if !strings.Contains(doc, "apiVersion: monitoring.coreos.com/v1") {
			known = append(known, doc)
			continue
		}
		var into any = &monitoringv1.PodMonitor{}
		if strings.Contains(doc, "kind: PrometheusRule") {
			into = &monitoringv1.PrometheusRule{}
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
	}
	accepted(t, strings.Join(known, "\n---\n"))
	for _, want := range []string{"mtu: 4092", "containerPort: 9000",
		"--metrics-address=[$(POD_IP)]:9000,127.0.0.1:9000",
		"--metrics-address=:9001", "--metrics-cert-dir=", "secretName: tls", "name: fabric-metrics-reader",
		"localhost/fabric-agent@sha256:0000", "--cri-socket=/run/x.sock", "grafana_dashboard",
		"name: prometheus, key: token"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for bad, want := range map[string]string{
		"imagee=x":                       "additional properties 'imagee' not allowed",
		"port=0":                         "at '/port'",
		"cniBinDir=opt":                  "at '/cniBinDir'",
		"metrics.listen=all":             "at '/metrics/listen'",
		"fabrics[0].name=IB":             "at '/fabrics/0'",
		"fabrics[0].spec.match.rate=200": "at '/fabrics/0/spec/match': additional properties 'rate' not allowed",
		"metrics.monitors=true":          "metrics.monitors needs metrics.listen: pod",
	} {
		_, err := try(t, "", "helm", "template", "fabric", chart, "--kube-version", "1.34", "--set", bad)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
	}
}

// The notes name what there is to do, and what this cluster lacks.
func TestChartNotes(t *testing.T) {
	freshWith(t, []string{oldest}, append(everything, server.Manifests()+"/*")...)
	notes := func(args ...string) string {
		t.Helper()
		out := do(t, "helm", append([]string{"install", "notes", chart, "--dry-run=server"}, args...)...)
		_, text, _ := strings.Cut(out, "\nNOTES:\n") // behind the manifests
		return text
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{
			"There is no Fabric yet", "k8s.v1.cni.cncf.io/networks: ib-200g", "0 Fabrics",
			"helm uninstall notes -n default", "kubectl fabric doctor cluster",
		}},
		{
			[]string{"--set-json", `fabrics=[{"name":"roce-a","spec":{"match":{"rail":0}}}]`,
				"--set", "label.enabled=true"},
			[]string{"READY is True", "fabric.dev/roce-a: 1", "label.enabled has no effect", "1 Fabrics"},
		},
	} {
		got := notes(c.args...)
		for _, no := range []string{"Multus", "no agent starts"} {
			if strings.Contains(got, no) {
				t.Errorf("there is nothing to say of %s:\n%s", no, got)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in\n%s", want, got)
			}
		}
	}
}

// A namespace that forbids what the agents need is named.
func TestChartNotesOfNamespace(t *testing.T) {
	create(t, whole(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}})
	got := do(t, "helm", "install", "notes", chart, "--dry-run=server", "-n", "strict")
	if !strings.Contains(got, "enforce=baseline, so no agent starts") {
		t.Errorf("nothing of the namespace in\n%s", got)
	}
}

// What the chart installs is the release's: it is changed and removed with it, and the CRDs follow before an upgrade.
func TestChartUpgrade(t *testing.T) {
	const fabrics = `fabrics=[{"name":"chart-a","spec":{"match":{"rail":0},"attachment":"IPoIBChild"}},` +
		`{"name":"chart-b","spec":{"match":{"rail":0}}}]`
	helm := release(t, "up", "--set-json", fabrics)
	if got := do(t, "kubectl", "get", "fabrics", "-o", "name"); !strings.Contains(got, "chart-a") ||
		!strings.Contains(got, "chart-b") {
		t.Error(got)
	}
	_, err := try(t, "", "helm", "upgrade", "up", chart, "-n", "up-system", "--no-hooks", "--set-json",
		`fabrics=[{"name":"chart-a","spec":{"match":{"rail":0},"addresses":{"nodeRanges":{"ranges":[{"range":"10.0.0.5/16","perNodePrefixLength":26}]}}}}]`)
	if err == nil || !strings.Contains(err.Error(), "write the first address of the range") {
		t.Errorf("a wrong Fabric: %v", err)
	}

	// An older CRD knew less.
	const crd = "customresourcedefinition/fabrics.fabric.dev"
	do(t, "kubectl", "patch", crd, "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/precedence"}]`)
	stop := jobs(t, "up-system")
	helm("upgrade", chart, "--set-json", `fabrics=[{"name":"chart-b","spec":{"match":{"rail":0},"precedence":7}}]`)
	if ran := stop(); len(ran) != 1 || ran[0] != "up-crds" {
		t.Errorf("jobs: %q", ran)
	}
	if got := do(t, "kubectl", "get", "fabric", "chart-b", "-o", "jsonpath={.spec.precedence}"); got != "7" {
		t.Errorf("precedence %q: the CRD was not upgraded", got)
	}
	if got := do(t, "kubectl", "get", "fabrics", "-o", "name"); strings.Contains(got, "chart-a") {
		t.Errorf("still there, although not in the values: %s", got)
	}
	left := do(t, "kubectl", "-n", "up-system", "get", "jobs,configmaps,serviceaccounts", "-o", "name")
	if strings.Contains(left, "up-crds") {
		t.Errorf("the Job has left %s", left)
	}
	helm("uninstall", "--no-hooks")
	if got := do(t, "kubectl", "get", "crds", "-o", "name"); !strings.Contains(got, "fabrics.fabric.dev") {
		t.Errorf("the CRDs are gone: %s", got)
	}
}

// A cluster that forbids privileged pods can have the controller and the Jobs; the agents are what needs a namespace of
// their kind.
func TestRestricted(t *testing.T) {
	c := whole(t)
	const namespace = "restricted"
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	text := renderIn(t, namespace, "--is-upgrade")
	seen := map[string]error{}
	for key, o := range objects(t, text) {
		kind, name, _ := strings.Cut(key, "/")
		if !slices.Contains([]string{"Deployment", "Job", "DaemonSet"}, kind) {
			continue
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var w appsv1.Deployment // its template is at the same place in all of them
		if err := json.Unmarshal(b, &w); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: w.Spec.Template.ObjectMeta, Spec: w.Spec.Template.Spec}
		pod.Name, pod.Namespace = name, namespace
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Name: pod.Spec.ServiceAccountName, Namespace: namespace,
		}}
		create(t, c, account)
		if seen[name] = c.Create(t.Context(), pod); seen[name] == nil {
			_ = c.Delete(t.Context(), pod)
		}
	}
	for _, name := range []string{"fabric-controller", "fabric-release", "fabric-crds"} {
		if err, ok := seen[name]; err != nil || !ok {
			t.Errorf("%s: %v, in the chart: %v", name, err, ok)
		}
	}
	if err := seen["fabric-agent"]; err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("agent: %v", err)
	}
}
