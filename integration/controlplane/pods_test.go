package controlplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
)

// warned collects what the API server warns of.
type warned struct {
	mu  sync.Mutex
	now []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = append(w.now, text)
}

func (w *warned) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.now, "\n")
	w.now = nil
	return out
}

// The words of the two warnings of the policy.
const (
	tooManyNetworks = "each network needs a device"
	tooFewNetworks  = "a device without network can not be used"
)

// asks is one container that asks for devices of Fabrics, as name=number.
func asks(devices ...string) string {
	var limits []string
	for _, d := range devices {
		name, n, _ := strings.Cut(d, "=")
		limits = append(limits, "fabric.dev/"+name+": "+n)
	}
	return "[{name: a, image: i, resources: {limits: {" + strings.Join(limits, ", ") + "}}}]"
}

// podPolicy is the policy, so that an expression that can't be evaluated refuses the pod: it is ignored else, which
// would look as if all were well.
func podPolicy(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../deployments/base/pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "failurePolicy: Ignore", "failurePolicy: Fail", 1)
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil || text == string(b) {
		t.Fatal(err)
	}
	return file
}

// A user who creates a pod whose networks and devices don't fit together is warned, with both numbers. Where it can't
// be judged there is no warning.
func TestPodPolicy(t *testing.T) {
	freshWith(t, []string{"--disable-admission-plugins=ServiceAccount"}, everything[0], podPolicy(t))
	for name, spec := range map[string]string{
		"pp": `{}`, "pq": `{}`, "pteam": `{namespaces: {names: [default, team]}}`, "pdra": `{allocation: DRA}`,
		"pshared": `{attachment: IPoIBChild}`, "pall": `{namespaces: {selector: {}}}`,
		"psel": `{namespaces: {selector: {matchLabels: {rails: "yes"}}}}`,
	} {
		apply(t, testfabrics.Object(name, spec))
	}
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")
	apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: picked, labels: {rails: \"yes\"}}\n")
	config := rest.CopyConfig(server.Config)
	w := &warned{}
	config.WarningHandler = w
	c := kube(t, config)
	const init = "  initContainers: [{name: i, image: i, resources: {limits: {fabric.dev/pp: %d}}%s}]"
	table := []labelled{
		{name: "fits", networks: "pp", containers: asks("pp=1")},
		{name: "two of each", networks: "pp, pq,pp@net7 ,default/pq", containers: asks("pp=2", "pq=2")},
		{name: "neither"},
		{name: "another network", networks: "macvlan, pp-other, other/pp"},
		{name: "a network too many", networks: "pp, pp", containers: asks("pp=1"), want: "network pp is 2 times " +
			"in the annotation k8s.v1.cni.cncf.io/networks, and the containers ask for 1 of fabric.dev/pp: each " +
			"network needs a device: want resources.limits fabric.dev/pp: 2"},
		{name: "no device", networks: "pp", want: "ask for 0 of fabric.dev/pp"},
		{name: "of the Fabric's namespace", networks: "default/pp@net1", namespace: "team", want: tooManyNetworks},
		{name: "a network of another name's end", networks: "xpp", containers: asks("pp=0")},
		{name: "a device too many", networks: "pp", containers: asks("pp=2"), want: "the containers ask for 2 of " +
			"fabric.dev/pp, and network pp is 1 times in the annotation"},
		{name: "no network", containers: asks("pp=4"), want: tooFewNetworks},
		{name: "the team's own network of that name", networks: "pp, pp", namespace: "team", containers: asks("pp=2")},
		{name: "a network of the same resource", networks: "pp, mine", containers: asks("pp=2")},
		{name: "and still too few", networks: "pp, mine", containers: asks("pp=3"), want: tooFewNetworks},
		{name: "one for the other", networks: "pp, pp, pq", containers: asks("pp=1", "pq=2"), want: tooManyNetworks},
		{name: "in a namespace of the list", networks: "pteam", namespace: "team", want: tooManyNetworks},
		{name: "every namespace", networks: "pall, pall", namespace: "team", containers: asks("pall=1"),
			want: tooManyNetworks},
		{name: "a namespace that is selected", networks: "psel", namespace: "picked", want: tooManyNetworks},
		{name: "one that is not", networks: "psel", namespace: "team"},
		{name: "two containers", networks: "pp, pp, pp", containers: "[{name: a, image: i, resources: {limits: " +
			"{fabric.dev/pp: 1}}}, {name: b, image: i, resources: {limits: {fabric.dev/pp: 2}}}]"},
		{name: "init container", networks: "pp, pp", containers: asks("pp=2"), more: fmt.Sprintf(init, 1, "")},
		{name: "init container that asks for more", networks: "pp, pp", containers: asks("pp=1"),
			more: fmt.Sprintf(init, 2, "")},
		{name: "sidecar", networks: "pp, pp", containers: asks("pp=1"),
			more: fmt.Sprintf(init, 1, ", restartPolicy: Always")},
		{name: "sidecar without a network", networks: "pp", containers: asks("pp=1"),
			more: fmt.Sprintf(init, 1, ", restartPolicy: Always"), want: tooFewNetworks},
		{name: "JSON", networks: `[{"name": "pp"}, {"name":"pp","interface":"net5","ips":["10.0.0.1/24"]}]`,
			containers: asks("pp=2")},
		{name: "JSON, wrong", networks: "[{\"namespace\": \"default\", \"name\":\n\"pp\"}, {\"name\":\"pp\"}]",
			containers: asks("pp=1"), want: tooManyNetworks},
		{name: "JSON of the team", networks: `[{"name":"pp"},{"name":"pp","namespace":"default"}]`, namespace: "team",
			containers: asks("pp=2")},
		{name: "JSON with objects in it", networks: `[{"name":"x","cni-args":{"name":"pp"}}]`},
		{name: "JSON with escapes", networks: `[{"name":"\u0070p"}]`, containers: asks("pp=1")},
		{name: "JSON with capitals", networks: `[{"Name":"pp"}]`, containers: asks("pp=1")},
		{name: "no JSON", networks: `[{"name":"pp"`, containers: asks("pp=3")},
		{name: "empty list", networks: `[]`, containers: asks("pp=1")},
		{name: "DRA", networks: "pdra"},
		{name: "shared", networks: "pshared", containers: asks("pshared=1")},
		{name: "shared, a network too many", networks: "pshared, pshared", containers: asks("pshared=1"),
			want: "and the containers ask for 1 of fabric.dev/pshared: " + tooManyNetworks},
		{name: "shared, no share", networks: "pshared", want: tooManyNetworks},
		{name: "shared, verbs only", containers: asks("pshared=1")},
		{name: "claims", networks: "pp, pp", containers: asks("pp=1"),
			more: "  resourceClaims: [{name: r, resourceClaimName: c}]"},
		{name: "the host's network", containers: asks("pp=1"), more: "  hostNetwork: true"},
		{name: "a label does it", labels: `{rails.fabric.dev/pp: "2"}`, containers: asks("pp=2")},
		{name: "the last", networks: "pq", want: tooManyNetworks},
	}
	try := func(l *labelled) string {
		if l.labels == "" {
			l.labels = "{}"
		}
		if p, err := tryPod(t.Context(), c, l.pod(t)); p == nil {
			t.Logf("%s: %s", l.name, err) // at first the policy does not know the Fabrics
			return err
		}
		return w.take()
	}
	for _, name := range []string{"pp", "pq", "pteam", "pall", "psel"} { // each Fabric is known to the policy
		ns := map[string]string{"psel": "picked"}[name]
		until(t, func() string {
			l := labelled{networks: name, namespace: ns, want: tooManyNetworks}
			if got := try(&l); !strings.Contains(got, l.want) {
				return "the policy is not in force: " + got
			}
			return ""
		})
	}
	for i := range table {
		l := &table[i]
		if got := try(l); !strings.Contains(got, l.want) || l.want == "" && got != "" {
			t.Errorf("%s:\n got %s\nwant %s", l.name, got, l.want)
		}
	}
	templates(t, c, w)
}

// templates are those of Deployments and the like: a user who applies one sees the warning, and not only what makes the
// pods of it.
func templates(t *testing.T, c kubernetes.Interface, w *warned) {
	t.Helper()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	l := labelled{labels: "{app: a}", networks: "pp, pp", containers: asks("pp=1"), more: "  restartPolicy: Always"}
	p := l.pod(t)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations},
		Spec: p.Spec}
	selector := &metav1.LabelSelector{MatchLabels: p.Labels}
	name := metav1.ObjectMeta{Name: "d", Namespace: "default"}
	_, err := c.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: name,
		Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, dry)
	if got := w.take(); err != nil || !strings.Contains(got, tooManyNetworks) {
		t.Errorf("Deployment: %s, %v", got, err)
	}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := batchv1.JobSpec{Template: template}
	_, err = c.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{ObjectMeta: name, Spec: job}, dry)
	if got := w.take(); err != nil || !strings.Contains(got, tooManyNetworks) {
		t.Errorf("Job: %s, %v", got, err)
	}
	_, err = c.BatchV1().CronJobs("default").Create(t.Context(), &batchv1.CronJob{ObjectMeta: name,
		Spec: batchv1.CronJobSpec{Schedule: "0 0 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}, dry)
	if got := w.take(); err != nil || !strings.Contains(got, tooManyNetworks) {
		t.Errorf("CronJob: %s, %v", got, err)
	}
}
