package controlplane_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fabric-cni/fabric-cni/internal/agent/cluster"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// agentOf is what the agent of a node reaches the API server with: the token that kubelet asks for.
func agentOf(t *testing.T, node string) *rest.Config {
	t.Helper()
	return agentAs(t, node, "fabric-system", "fabric-agent")
}

// agentAs is agentOf with a service account.
func agentAs(t *testing.T, node, namespace, account string) *rest.Config {
	t.Helper()
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	c := whole(t)
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "c"}},
		},
	}
	create(t, c, pod)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(server.Config)
	config.BearerToken = token.Status.Token
	return config
}

// call is one request.
type call struct{ verb, path, body string }

func (c call) do(t *testing.T, config *rest.Config) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r := client.RESTClient().Verb(c.verb).AbsPath(c.path)
	if c.body != "" {
		kind := "application/json"
		if c.verb == "PATCH" {
			kind = "application/merge-patch+json"
		}
		r = r.SetHeader("Content-Type", kind).Body([]byte(c.body))
	}
	return r.Do(t.Context()).Error()
}

func object(apiVersion, kind, name, rest string) string {
	return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"` + name + `"}` + rest + `}`
}

// With a node's token an agent does what it needs for its own node, and nothing else.
func TestAgentToken(t *testing.T) {
	agentRules(t)
	c := whole(t)
	defer removeNodes(t, c)
	apply(t, testfabrics.Object("token", `{}`))
	mine, other := agentOf(t, "mine"), agentOf(t, "other")

	// What it does all the time.
	for name, config := range map[string]*rest.Config{"mine": mine, "other": other} {
		link, err := cluster.NewLink(config, name, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		go link.Run(t.Context())
		until(t, func() string {
			ok, err := link.Report(t.Context(), &v1alpha1.FabricNodeStatus{Agent: "v1"})
			switch {
			case err != nil:
				time.Sleep(time.Second)
				return err.Error()
			case !ok || len(link.Fabrics()) == 0:
				return "not reported yet"
			}
			return ""
		})
	}

	const v1alpha = "/apis/fabric.dev/v1alpha1/"
	event := func(node, name string) string {
		b, err := json.Marshal(&corev1.Event{
			TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
			ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "default"},
			InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node},
			Reason:         "Test", Message: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	allowed := []call{
		{"PATCH", v1alpha + "fabricnodes/mine/status", `{"status":{"agent":"v2"}}`},
		{"GET", v1alpha + "fabrics", ""},
		{"GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", ""},
		{"POST", "/api/v1/namespaces/default/events", event("mine", "e1")},
	}
	// The policy is in force a moment after it was made.
	until(t, func() string {
		other := call{"PATCH", v1alpha + "fabricnodes/other/status", `{"status":{"agent":"x"}}`}
		if err := other.do(t, mine); err != nil {
			return ""
		}
		time.Sleep(100 * time.Millisecond)
		return "the policy is not in force"
	})
	for _, a := range allowed {
		if err := a.do(t, mine); err != nil {
			t.Errorf("%s %s: %v", a.verb, a.path, err)
		}
	}
	create(t, c, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "theirs", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "other"},
	})
	unborn := agentOf(t, "unborn")
	for what, rest := range map[string]string{
		"finalizers":      `"finalizers":["x/y"]`,
		"ownerReferences": `"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]`,
	} {
		body := `{"apiVersion":"fabric.dev/v1alpha1","kind":"FabricNode","metadata":{"name":"unborn",` + rest + `}}`
		err := (call{"POST", v1alpha + "fabricnodes", body}).do(t, unborn)
		if err == nil || !strings.Contains(err.Error(), "an agent may set no "+what) {
			t.Errorf("a FabricNode with %s: %v", what, err)
		}
	}
	for _, f := range []struct {
		call

		want string // in the answer
	}{
		{call{"PATCH", v1alpha + "fabricnodes/other/status", `{"status":{"agent":"x"}}`},
			"the agent of node mine may write its own FabricNode only"},
		{call{"POST", v1alpha + "fabricnodes", object("fabric.dev/v1alpha1", "FabricNode", "third", "")},
			"the agent of node mine may write its own FabricNode only"},
		{call{"POST", "/api/v1/namespaces/default/events", event("other", "e2")},
			"the agent of node mine may make Events on its own Node only"},
		{call{"PATCH", "/api/v1/namespaces/default/events/theirs", `{"involvedObject":{"name":"mine"}}`},
			"the agent of node mine may make Events on its own Node only"},
		{call{"POST", "/api/v1/namespaces/kube-system/events", strings.NewReplacer(
			`"namespace":"default"`, `"namespace":"kube-system"`, `"kind":"Node"`,
			`"kind":"Node","namespace":"kube-system"`).Replace(event("mine", "e3"))},
			"the agent of node mine may make Events on its own Node only"},
		{call{"PATCH", v1alpha + "fabricnodes/mine", `{"spec":{"allocator":"me"}}`}, "forbidden"},
		{call{"PUT", v1alpha + "fabricnodes/mine", object("fabric.dev/v1alpha1", "FabricNode", "mine", "")},
			"forbidden"},
		{call{"DELETE", v1alpha + "fabricnodes/mine", ""}, "forbidden"},
		{call{"DELETE", v1alpha + "fabricnodes/other", ""}, "forbidden"},
		{call{"POST", v1alpha + "fabrics", object("fabric.dev/v1alpha1", "Fabric", "x", `,"spec":{}`)}, "forbidden"},
		{call{"PATCH", v1alpha + "fabrics/token", `{"spec":{"precedence":1}}`}, "forbidden"},
		{call{"PATCH", v1alpha + "fabrics/token/status", `{"status":{"nodes":1}}`}, "forbidden"},
		{call{"DELETE", v1alpha + "fabrics/token", ""}, "forbidden"},
		{call{"GET", nads, ""}, "forbidden"},
		{call{"POST", nads, object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "x", `,"spec":{}`)},
			"forbidden"},
		{call{"DELETE", nads + "/x", ""}, "forbidden"},
		{call{"GET", "/api/v1/pods", ""}, "forbidden"},
		{call{"GET", "/api/v1/nodes", ""}, "forbidden"},
		{call{"GET", "/api/v1/nodes/mine", ""}, "forbidden"},
		{call{"PATCH", "/api/v1/nodes/mine", `{"metadata":{"labels":{"a":"b"}}}`}, "forbidden"},
		{call{"GET", "/api/v1/namespaces", ""}, "forbidden"},
		{call{"GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", ""}, "forbidden"},
		{call{"GET", "/api/v1/namespaces/fabric-system/secrets", ""}, "forbidden"},
		{call{"GET", "/api/v1/namespaces/fabric-system/configmaps", ""}, "forbidden"},
		{call{"POST", "/api/v1/namespaces/fabric-system/configmaps", object("v1", "ConfigMap", "x", "")}, "forbidden"},
		{call{"GET", "/apis/coordination.k8s.io/v1/namespaces/fabric-system/leases", ""}, "forbidden"},
		{call{"POST", "/api/v1/namespaces/fabric-system/serviceaccounts/fabric-agent/token", `{"apiVersion":` +
			`"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`}, "forbidden"},
	} {
		err := f.do(t, mine)
		if err == nil || !strings.Contains(err.Error(), f.want) {
			t.Errorf("%s %s: %v, want %q", f.verb, f.path, err, f.want)
		}
	}
}
