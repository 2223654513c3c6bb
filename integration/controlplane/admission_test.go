package controlplane_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// The policies are in force whatever a kustomization makes of names and namespaces.
func TestKustomizeNames(t *testing.T) {
	fresh(t, everything[0], server.Manifests()+"/*")
	for _, k := range []struct{ lines, namespace, agent, controller string }{
		{"namespace: other", "other", "fabric-agent", "fabric-controller"},
		{"namePrefix: x-\nnameSuffix: -y", "fabric-system", "x-fabric-agent-y", "x-fabric-controller-y"},
		{"namespace: both\nnamePrefix: z-", "both", "z-fabric-agent", "z-fabric-controller"},
	} {
		dir := t.TempDir()
		base, err := filepath.Abs(manifests + "base")
		if err == nil {
			base, err = filepath.Rel(dir, base)
		}
		if err != nil {
			t.Fatal(err)
		}
		text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + base + "]\n" +
			k.lines
		if err := os.WriteFile(dir+"/kustomization.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		apply(t, do(t, "kubectl", "kustomize", dir))
		untilRefused(t, agentAs(t, "node-"+k.namespace, k.namespace, k.agent), call{"POST",
			"/apis/fabric.dev/v1alpha1/fabricnodes", object("fabric.dev/v1alpha1", "FabricNode", "other", "")},
			"the agent of node node-"+k.namespace+" may write its own FabricNode only")
		untilRefused(t, controllerAs(t, k.namespace, k.controller), call{"POST", nads, nad("evil", `{"type":"evil"}`)},
			"fabric-controller may write configurations of type fabric only")
	}
}

// controllerAs is what a controller reaches the API server with.
func controllerAs(t *testing.T, namespace, account string) *rest.Config {
	t.Helper()
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, namespace, account)
	return rc
}

// nad is a NetworkAttachmentDefinition that looks like one of the controller's.
func nad(name, config string) string {
	b, err := json.Marshal(map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": metav1.ObjectMeta{
			Name: name, Labels: map[string]string{fabrics.ManagedBy: fabrics.Manager},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fabric", Name: name, UID: "x",
			}},
		},
		"spec": map[string]string{"config": config},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// With the controller's token nothing is written but what the controller makes: no network of another plugin, which
// would run as root on every node, and nothing of others.
func TestControllerToken(t *testing.T) {
	fresh(t, append(everything, server.Manifests()+"/*")...)
	c := whole(t)
	apply(t, testfabrics.Object("mine", `{}`))
	theirs := definition("theirs")
	create(t, c, theirs)
	apply(t, foreignClass)
	create(t, c, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "theirs", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "other"},
	})
	rc := controllerAs(t, "fabric-system", "fabric-controller")
	untilRefused(t, rc, call{"POST", nads, nad("evil", `{"type":"evil"}`)}, "type fabric only")
	const (
		onlyFabric = "fabric-controller may write configurations of type fabric only"
		onlyOwn    = "that belong to a Fabric and have the label app.kubernetes.io/managed-by=fabric-agent only"
		finalizer  = "fabric-controller may change the finalizer fabric.dev/in-use of a Fabric and its status only"
		fabric     = "/apis/fabric.dev/v1alpha1/fabrics/mine"
		classes    = "/apis/resource.k8s.io/v1/deviceclasses"
	)
	for i, config := range []string{
		`{"type":"fabric"}`, ` { "cniVersion": "1.0.0", "type" : "fabric", "ipam": {"type": "host-local",
		"ranges": [[{"subnet": "10.0.0.0/8", "routes": [{"dst": "0.0.0.0/0"}]}]]}, "x": "{#}\"\\" }`, ``,
	} {
		if err := (call{"POST", nads, nad(fmt.Sprint("good-", i), config)}).do(t, rc); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
	for _, config := range []string{
		`{"type":"fabric","type":"evil"}`, `{"type":"fabric","Type":"evil"}`, `{"type":"fabric","\u0074ype":"evil"}`,
		`{"x":"\"type\":\"fabric\"","TYPE":"evil"}`, `{"plugins":[{"type":"evil"}],"type":"fabric"}`,
		`{"ipam":{"type":"fabric"},"type":"evil"}`, `{"a":"{","type":"fabric","b":"}","type":"evil"}`,
		`{"ipam":{"x":"}","type":"fabric"}, "type" : "evil"}`, `{"name":"#:\"fabric\"","type":"evil"}`,
		`{"type":"fabric"}{"type":"evil"}`, `[{"type":"fabric"}]`, `evil`, `{}`,
	} {
		err := (call{"POST", nads, nad("evil", config)}).do(t, rc)
		if err == nil || !strings.Contains(err.Error(), onlyFabric) {
			t.Errorf("%s: %v", config, err)
		}
	}
	for _, f := range []struct {
		call

		want string
	}{
		{call{"POST", nads, object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "x", `,"spec":{}`)}, onlyOwn},
		{call{"PUT", nads + "/theirs", strings.Replace(nad("theirs", `{"type":"fabric"}`), `"metadata":{`,
			`"metadata":{"resourceVersion":"`+theirs.GetResourceVersion()+`",`, 1)}, onlyOwn},
		{call{"DELETE", nads + "/theirs", ""}, onlyOwn},
		{call{"DELETE", classes + "/mine.fabric.dev", ""}, onlyOwn},
		{call{"POST", classes, strings.NewReplacer("NetworkAttachmentDefinition", "DeviceClass", "k8s.cni.cncf.io/v1",
			"resource.k8s.io/v1", `"config":""`, "").Replace(nad("gpu.example.com", ""))},
			"DeviceClasses NAME.fabric.dev"},
		{call{"PATCH", fabric, `{"spec":{"attachment":"IPoIBChild"}}`}, finalizer},
		{call{"PATCH", fabric, `{"metadata":{"labels":{"a":"b"}}}`}, finalizer},
		{call{"PATCH", fabric, `{"metadata":{"finalizers":["x/y"]}}`}, finalizer},
		{call{"PATCH", "/api/v1/namespaces/default/events/theirs", `{"involvedObject":{"kind":"Fabric"}}`},
			"fabric-controller may make Events on Fabrics only"},
	} {
		err := f.do(t, rc)
		if err == nil || !strings.Contains(err.Error(), f.want) {
			t.Errorf("%s %s: %v, want %q", f.verb, f.path, err, f.want)
		}
	}
	patch := call{"PATCH", fabric, `{"metadata":{"finalizers":["fabric.dev/in-use"]}}`}
	if err := patch.do(t, rc); err != nil {
		t.Error(err)
	}
	removeFabrics(t, c)
}

const nads = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions"

// untilRefused waits until a policy, which is in force a moment after it was made, refuses a call.
func untilRefused(t *testing.T, config *rest.Config, c call, want string) {
	t.Helper()
	until(t, func() string {
		switch err := c.do(t, config); {
		case err == nil:
			return c.verb + " " + c.path + " " + c.body + " is admitted"
		case !strings.Contains(err.Error(), want):
			return err.Error()
		}
		return ""
	})
}

// An agent proves that it may not write about other nodes: where the policy is missing, its FabricNode and an Event say
// so, and fabricctl doctor has the cure.
func TestAgentWithoutPolicy(t *testing.T) {
	fresh(t, append(everything, manifests+"base/rbac.yaml")...)
	c, err := client.New(server.Config, client.Options{}) // with all kinds of client-go
	if err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "fabric-agent"}, binding); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	const node = "unguarded"
	config := agentOf(t, node)
	until(t, func() string { // it is out of force a moment after it was deleted
		return errorOf((call{"POST", "/apis/fabric.dev/v1alpha1/fabricnodes",
			object("fabric.dev/v1alpha1", "FabricNode", "other", "")}).do(t, config))
	})
	runAgent(t, t.TempDir(), node, kubeconfig(t, config.BearerToken), &port{})
	untilNode(t, whole(t), node, `0/0 False WritesUnconfined ""`)
	until(t, func() string {
		list := &corev1.EventList{}
		if err := c.List(t.Context(), list, client.InNamespace("default")); err != nil {
			return err.Error()
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == node && e.Reason == "WritesUnconfined" {
				return ""
			}
		}
		return "no Event"
	})
	binding.ResourceVersion, binding.UID = "", ""
	create(t, c, binding)
	untilNode(t, whole(t), node, `0/0 True Ready ""`)
}
