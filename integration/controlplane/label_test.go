package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/integration/controlplane"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/podlabel"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// labelled is a pod before and after: its labels and annotation, its containers, and what became of it. A text that
// begins with "label" or another word of the policy is what refuses it.
type labelled struct {
	name       string
	labels     string // as YAML
	networks   string // the annotation; empty: none
	containers string // as YAML; empty: one container a
	more       string // other fields of the spec, as YAML
	namespace  string // default
	want       string
}

const oneContainer = `[{name: a, image: i}]`

func (l *labelled) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	containers := l.containers
	if containers == "" {
		containers = oneContainer
	}
	text := "metadata: {labels: " + l.labels + "}\nspec:\n  containers: " + containers + "\n" + l.more
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	p.Name, p.Namespace = "p", "default"
	if l.namespace != "" {
		p.Namespace = l.namespace
	}
	if l.networks != "" {
		p.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": l.networks}
	}
	return p
}

// tell is what a pod asks for: its networks, and of each container the resources and the capabilities.
func tell(p *corev1.Pod) string {
	var out []string
	if n, ok := p.Annotations["k8s.v1.cni.cncf.io/networks"]; ok {
		out = append(out, n)
	}
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		var has []string
		for name, q := range c.Resources.Limits {
			r := c.Resources.Requests[name]
			has = append(has, fmt.Sprintf("%s=%s/%s", strings.TrimPrefix(string(name), "fabric.dev/"), q.String(),
				r.String()))
		}
		slices.Sort(has)
		if s := c.SecurityContext; s != nil && s.Capabilities != nil {
			for _, a := range s.Capabilities.Add {
				has = append(has, string(a))
			}
		}
		out = append(out, c.Name+"{"+strings.Join(has, " ")+"}")
	}
	return strings.Join(out, " ")
}

func tryPod(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) (*corev1.Pod, string) {
	created, err := c.CoreV1().Pods(p.Namespace).Create(ctx, p,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err.Error()
	}
	return created, tell(created)
}

// tryPods creates the pods, each in a dry run. The first and the last show whether both policies are in force.
func tryPods(t *testing.T, c kubernetes.Interface, table []labelled) {
	t.Helper()
	for _, l := range []labelled{table[0], table[len(table)-1]} {
		until(t, func() string {
			if _, got := tryPod(t.Context(), c, l.pod(t)); !strings.Contains(got, l.want) {
				return "the policy is not in force: " + got
			}
			return ""
		})
	}
	for _, l := range table {
		created, got := tryPod(t.Context(), c, l.pod(t))
		if created == nil && !strings.Contains(got, l.want) || created != nil && got != l.want {
			t.Errorf("%s:\n got %s\nwant %s", l.name, got, l.want)
		}
		if created == nil {
			continue
		}
		// Once more, as a user does with the output of kubectl get.
		created.ResourceVersion, created.UID = "", ""
		if _, again := tryPod(t.Context(), c, created); again != got {
			t.Errorf("%s, again:\n got %s\nwant %s", l.name, again, got)
		}
	}
}

// policyOf is the policies for Fabrics, given as name and spec.
func policyOf(t *testing.T, o podlabel.Options, specs ...[2]string) []byte {
	t.Helper()
	var list []*fabrics.Fabric
	for _, s := range specs {
		o := &v1alpha1.Fabric{}
		if err := yaml.UnmarshalStrict([]byte(testfabrics.Object(s[0], s[1])), o); err != nil {
			t.Fatal(err)
		}
		f, err := fabrics.Parse(o)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	text, err := podlabel.Policy(list, o)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

// gate is the flags with which kube-apiserver 1.34 has MutatingAdmissionPolicy.
var gate = []string{
	"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
}

// withGate starts an API server with these flags, where pods need no ServiceAccount.
func withGate(t *testing.T, flags ...string) (*controlplane.Server, *kubernetes.Clientset) {
	t.Helper()
	s, err := controlplane.Start(t.Context(), t.TempDir(),
		append(flags, "--disable-admission-plugins=ServiceAccount")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	for name, labels := range map[string]string{
		"ml": "team: ml", "other": "team: other", "guarded": "pod-security.kubernetes.io/enforce: baseline",
	} {
		text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + ", labels: {" + labels + "}}\n"
		if err := s.ApplyText(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	return s, clientOf(t, s.Config)
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A pod with the label gets everything that it needs of a fabric, beside what it has.
func TestLabel(t *testing.T) {
	s, c := withGate(t, gate...)
	beta := podlabel.Options{Version: "v1beta1", All: map[string]int{"ib-200g": 4}}
	for _, tt := range []struct {
		name   string
		policy []byte
		table  []labelled
	}{
		{"one", policyOf(t, beta, [2]string{"ib-200g", `{namespaces: {names: [default, ml]}}`}), oneFabric},
		{"two", policyOf(t, beta, [2]string{"ib-200g", `{}`},
			[2]string{"eth", `{namespaces: {selector: {matchLabels: ` +
				`{team: ml}, matchExpressions: [{key: team, operator: In, values: [ml, b]}, {key: team, operator: NotIn, ` +
				`values: [c]}, {key: team, operator: Exists}, {key: x, operator: DoesNotExist}]}}}`}), twoFabrics},
		{"rails", policyOf(t, podlabel.Options{Version: "v1beta1"}, [2]string{"b", `{match: {rail: 0}}`},
			[2]string{"a", `{match: {rail: 1}}`}, [2]string{"c", `{match: {rail: 2}}`},
			[2]string{"store", `{}`}), threeRails},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := s.ApplyText(t.Context(), tt.policy); err != nil {
				t.Fatal(err)
			}
			tryPods(t, c, tt.table)
		})
	}
	t.Run("later", func(t *testing.T) { afterwards(t, s, c) })
	t.Run("page", func(t *testing.T) {
		if err := s.ApplyText(t.Context(), policyOf(t, beta, [2]string{"ib-200g", `{}`})); err != nil {
			t.Fatal(err)
		}
		onPage(t, c)
	})
}

// onPage tries the pod of docs/label.md, which has below it what becomes of it.
func onPage(t *testing.T, c kubernetes.Interface) {
	b, err := os.ReadFile("../../docs/label.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	var pods [2]corev1.Pod
	for i := range pods {
		if err := yaml.UnmarshalStrict([]byte(blocks[i][1]), &pods[i]); err != nil {
			t.Fatal(err)
		}
		pods[i].Namespace = "default"
	}
	until(t, func() string {
		if _, got := tryPod(t.Context(), c, &pods[0]); got != tell(&pods[1]) {
			return got + ", want " + tell(&pods[1])
		}
		return ""
	})
}

var oneFabric = []labelled{
	{name: "four", labels: `{fabric.dev/rails: "4"}`,
		want: "ib-200g, ib-200g, ib-200g, ib-200g a{ib-200g=4/4 IPC_LOCK}"},
	{name: "no label", labels: `{a: b}`, want: "a{}"},
	{name: "no label, a network", labels: `{a: b}`, networks: "x", want: "x a{}"},
	{name: "all", labels: `{fabric.dev/rails: all}`,
		want: "ib-200g, ib-200g, ib-200g, ib-200g a{ib-200g=4/4 IPC_LOCK}"},
	{name: "by name", labels: `{rails.fabric.dev/ib-200g: "1"}`, want: "ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "its name takes precedence", labels: `{rails.fabric.dev/ib-200g: "1", fabric.dev/rails: all}`,
		want: "ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "where it is published", labels: `{fabric.dev/rails: "1"}`, namespace: "ml",
		want: "ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "where it is not", labels: `{fabric.dev/rails: "2"}`, namespace: "other",
		want: "default/ib-200g, default/ib-200g a{ib-200g=2/2 IPC_LOCK}"},
	{name: "names", labels: `{fabric.dev/rails: "2"}`, networks: "macvlan, x/y@eth5",
		want: "macvlan, x/y@eth5, ib-200g, ib-200g a{ib-200g=2/2 IPC_LOCK}"},
	{name: "empty", labels: `{fabric.dev/rails: "1"}`, networks: " ", want: "ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "JSON", labels: `{fabric.dev/rails: "2"}`, networks: ` [{"name": "x", "ips": ["10.0.0.1"]}] `,
		want: `[{"name": "x", "ips": ["10.0.0.1"]},{"name":"ib-200g"},{"name":"ib-200g"}] a{ib-200g=2/2 IPC_LOCK}`},
	{name: "JSON, elsewhere", labels: `{fabric.dev/rails: "1"}`, networks: `[ ]`, namespace: "other",
		want: `[ {"name":"ib-200g","namespace":"default"}] a{ib-200g=1/1 IPC_LOCK}`},
	{name: "its names of interfaces", labels: `{fabric.dev/rails: "3"}`, networks: "ib-200g@ib0, default/ib-200g@ib1",
		want: "ib-200g@ib0, default/ib-200g@ib1, ib-200g a{ib-200g=3/3 IPC_LOCK}"},
	{name: "its JSON", labels: `{fabric.dev/rails: "2"}`, networks: `[{"interface": "ib0", "name" : "ib-200g"}]`,
		want: `[{"interface": "ib0", "name" : "ib-200g"},{"name":"ib-200g"}] a{ib-200g=2/2 IPC_LOCK}`},
	{name: "another of a like name", labels: `{fabric.dev/rails: "1"}`, networks: "ib-200g-b, b-ib-200g",
		want: "ib-200g-b, b-ib-200g, ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "has the resource", labels: `{fabric.dev/rails: "4"}`, networks: "ib-200g",
		containers: `[{name: a, image: i, resources: {limits: {fabric.dev/ib-200g: 2}}}]`,
		want:       "ib-200g a{ib-200g=2/2}"},
	{name: "the second has the resource", labels: `{fabric.dev/rails: "4"}`,
		containers: `[{name: a, image: i}, {name: b, image: i, resources: {limits: {fabric.dev/ib-200g: 2}}}]`,
		want:       "a{} b{ib-200g=2/2}"},
	{name: "has other resources", labels: `{fabric.dev/rails: "1"}`, containers: `[{name: a, image: i, ` +
		`resources: {limits: {cpu: 2, nvidia.com/gpu: 8}, requests: {cpu: 1}}, securityContext: {runAsUser: 1}}]`,
		want: "ib-200g a{cpu=2/1 ib-200g=1/1 nvidia.com/gpu=8/8 IPC_LOCK}"},
	{name: "capabilities", labels: `{fabric.dev/rails: "1"}`,
		containers: `[{name: a, image: i, securityContext: {capabilities: {add: [SYS_PTRACE], drop: [ALL]}}}]`,
		want:       "ib-200g a{ib-200g=1/1 SYS_PTRACE IPC_LOCK}"},
	{name: "has IPC_LOCK", labels: `{fabric.dev/rails: "1"}`,
		containers: `[{name: a, image: i, securityContext: {capabilities: {add: [IPC_LOCK]}}}]`,
		want:       "ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "drops only", labels: `{fabric.dev/rails: "1"}`,
		containers: `[{name: a, image: i, securityContext: {capabilities: {drop: [NET_RAW]}}}]`,
		want:       "ib-200g a{ib-200g=1/1 IPC_LOCK}"},
	{name: "the first container", labels: `{fabric.dev/rails: "1"}`,
		containers: `[{name: a, image: i}, {name: b, image: i}]`, more: `  initContainers: [{name: init, image: i}]`,
		want: "ib-200g init{} a{ib-200g=1/1 IPC_LOCK} b{}"},
	{name: "the one with the name", labels: `{fabric.dev/rails: "1", fabric.dev/rails-container: b}`,
		containers: `[{name: a, image: i}, {name: b, image: i}]`, want: "ib-200g a{} b{ib-200g=1/1 IPC_LOCK}"},
	{name: "most", labels: `{fabric.dev/rails: "64"}`,
		want: strings.Repeat("ib-200g, ", 63) + "ib-200g a{ib-200g=64/64 IPC_LOCK}"},

	{name: "pod security", labels: `{fabric.dev/rails: "1"}`, namespace: "guarded",
		want: `violates PodSecurity "baseline:latest": non-default capabilities (container "a" must not include "IPC_LOCK"`},
	{name: "no such container", labels: `{fabric.dev/rails: "1", fabric.dev/rails-container: c}`,
		containers: `[{name: a, image: i}, {name: b, image: i}]`,
		want:       `label fabric.dev/rails-container: "c": want one of a, b`},
	{name: "0", labels: `{fabric.dev/rails: "0"}`, want: `label fabric.dev/rails: "0": want 1 to 64, or all`},
	{name: "x", labels: `{fabric.dev/rails: "x"}`, want: `label fabric.dev/rails: "x": want 1 to 64, or all`},
	{name: "empty", labels: `{fabric.dev/rails: ""}`, want: `label fabric.dev/rails: "": want 1 to 64, or`},
	{name: "65", labels: `{rails.fabric.dev/ib-200g: "65"}`,
		want: `label rails.fabric.dev/ib-200g: "65": want 1 to 64, or all`},
	{name: "04", labels: `{fabric.dev/rails: "04"}`, want: `label fabric.dev/rails: "04": want 1 to 64`},
	{name: "no fabric", labels: `{rails.fabric.dev/ib: "4"}`,
		want: `label rails.fabric.dev/ib: "4": no such fabric: want rails.fabric.dev/ib-200g; if the Fabric is new`},
	{name: "not JSON", labels: `{fabric.dev/rails: "1"}`, networks: `{"name": "x"}`,
		want: "annotation k8s.v1.cni.cncf.io/networks: want names with commas, or a JSON list"},
	{name: "x by name", labels: `{rails.fabric.dev/ib-200g: x}`,
		want: `label rails.fabric.dev/ib-200g: "x": want 1 to 64, or all`},
}

var twoFabrics = []labelled{
	{name: "both", labels: `{rails.fabric.dev/ib-200g: "2", rails.fabric.dev/eth: "1"}`, namespace: "ml",
		want: "eth, default/ib-200g, default/ib-200g a{eth=1/1 ib-200g=2/2 IPC_LOCK}"},
	{name: "one is there", labels: `{rails.fabric.dev/ib-200g: all, rails.fabric.dev/eth: "2"}`, networks: "eth",
		namespace: "ml", containers: `[{name: a, image: i, resources: {limits: {fabric.dev/eth: 1}}}]`,
		want: "eth, default/ib-200g, default/ib-200g, default/ib-200g, default/ib-200g " +
			"a{eth=1/1 ib-200g=4/4 IPC_LOCK}"},
	{name: "all of how many", labels: `{rails.fabric.dev/eth: all}`, namespace: "ml",
		want: `label rails.fabric.dev/eth: "all": want a number: how many devices of eth a node has was not known`},
	{name: "not selected", labels: `{rails.fabric.dev/eth: "1"}`, namespace: "other",
		want: "fabric eth has no network in namespace other: label the namespace as spec.namespaces.selector"},
	{name: "of which", labels: `{fabric.dev/rails: "4"}`,
		want: `label fabric.dev/rails: "4": there are several fabrics: want rails.fabric.dev/eth or `},
}

var threeRails = []labelled{
	{name: "two", labels: `{fabric.dev/rails: "2"}`, want: "b, a a{a=1/1 b=1/1 IPC_LOCK}"},
	{name: "all", labels: `{fabric.dev/rails: all}`, want: "b, a, c a{a=1/1 b=1/1 c=1/1 IPC_LOCK}"},
	{name: "and another", labels: `{fabric.dev/rails: "1", rails.fabric.dev/store: "2"}`,
		want: "b, store, store a{b=1/1 store=2/2 IPC_LOCK}"},
	{name: "four", labels: `{fabric.dev/rails: "4"}`,
		want: `label fabric.dev/rails: "4": want 1 to 3, or all: there is one rail on each of b, a, c`},
}

// Pods of a controller are like pods of people, and what is done to a pod later changes nothing.
func afterwards(t *testing.T, s *controlplane.Server, c *kubernetes.Clientset) {
	config := rest.CopyConfig(s.Config)
	config.Impersonate.UserName = "system:serviceaccount:kube-system:replicaset-controller"
	l := labelled{labels: `{fabric.dev/rails: "1"}`, want: "b a{b=1/1 IPC_LOCK}"}
	pods := clientOf(t, config).CoreV1().Pods("default")
	p, err := pods.Create(t.Context(), l.pod(t), metav1.CreateOptions{})
	if err != nil || tell(p) != l.want {
		t.Fatalf("%v, %v; want %s", p, err, l.want)
	}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "i", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}}
	all := c.CoreV1().Pods("default")
	if p, err = all.UpdateEphemeralContainers(t.Context(), p.Name, p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Labels["fabric.dev/rails"] = "3"
	if p, err = all.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil || tell(p) != l.want {
		t.Errorf("%v, %v; want %s", p, err, l.want)
	}
}

// Without the gate there is no such policy to apply. What judges labels is there, and no pod starts without its rails.
func TestLabelWithoutGate(t *testing.T) {
	s, c := withGate(t, oldest)
	text := policyOf(t, podlabel.Options{Version: "v1beta1"}, [2]string{"ib-200g", `{}`})
	if err := s.ApplyText(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no matches for kind") {
		t.Errorf("%v, want that there is no such kind", err)
	}
	for _, document := range strings.SplitAfter(string(text), "\n---\n") {
		if strings.Contains(document, "MutatingAdmissionPolicy\n") || strings.Contains(document, "PolicyBinding") &&
			strings.Contains(document, "Mutating") {
			continue
		}
		if err := s.ApplyText(t.Context(), []byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	tryPods(t, c, []labelled{
		{name: "no label", labels: `{}`, want: "a{}"},
		{name: "asks itself", labels: `{fabric.dev/rails: "1"}`, networks: "ib-200g",
			containers: `[{name: a, image: i, resources: {limits: {fabric.dev/ib-200g: 1}}}]`,
			want:       "ib-200g a{ib-200g=1/1}"},
		{name: "label", labels: `{fabric.dev/rails: "1"}`, want: "nothing has added fabric.dev/ib-200g to " +
			"the pod, as its label wants: the MutatingAdmissionPolicy fabric-rails is not in force"},
	})
}
