package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// configOf is the configuration of the network in the namespace default; "file" stands for none, with which Multus
// takes the file of that name on the node.
func configOf(t *testing.T, c client.Client, name string) string {
	t.Helper()
	u := definition(name)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		return err.Error()
	}
	config, there, err := unstructured.NestedString(u.Object, "spec", "config")
	if _, spec := u.Object["spec"].(map[string]any); err != nil || !spec {
		t.Errorf("spec: %v, %v", u.Object["spec"], err)
	}
	if !there {
		return "file"
	}
	return strings.Join(strings.Fields(config), "")
}

// limited is a client with the controller's permissions.
func limited(t *testing.T, account string) client.Client {
	t.Helper()
	rc := rest.CopyConfig(server.Config)
	rc.BearerToken = token(t, "fabric-system", account)
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever changes in a Fabric under one name is in its definition with the next round: from a network that each node
// has alike to one of a file on each node, and back. Multus's own schema judges it.
func TestNetworkChanges(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	s := newStepper(t, limited(t, "fabric-controller"))
	const (
		whereabouts = `{addresses: {ipam: {type: whereabouts, range: 10.61.0.0/24}}}`
		nodeRanges  = `{addresses: {nodeRanges: {ranges: [{range: 10.61.1.0/24, perNodePrefixLength: 28}]}}}`
	)
	for i, step := range []struct{ spec, want string }{
		{whereabouts, `"type":"whereabouts"`},
		{nodeRanges, "file"},
		{whereabouts, `"type":"whereabouts"`},
		{`{attachment: IPoIBChild}`, "file"},
		{`{attachment: WholeDevice}`, `"type":"fabric"`},
		{`{attachment: IPoIBChild, ` + testfabrics.Ranged("10.61.2.0/24", 28)[1:], "file"},
		{`{network: {mtu: 2044}}`, `"mtu":2044`},
	} {
		apply(t, testfabrics.Object("changes", step.spec))
		s.round(0)
		got := conditionOf(t, c, "changes", v1alpha1.FabricAccepted) + ", " +
			conditionOf(t, c, "changes", v1alpha1.FabricPublished)
		if got != "True Accepted: , True Published: " {
			t.Errorf("step %d: %s", i, got)
		}
		if got := configOf(t, c, "changes"); !strings.Contains(got, step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// A namespace that does not exist is named, and the network is published in the others, in which it can be used.
func TestNamespaceMissing(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	s := newStepper(t, limited(t, "fabric-controller"))
	createNode(t, c, "one")
	addNode(t, c, "one", "lost")
	apply(t, testfabrics.Object("lost", `{namespaces: {names: [default, team-later]}}`))
	apply(t, testfabrics.Object("nowhere", `{match: {devices: ["x*"]}, namespaces: {names: [team-never]}}`))
	s.round(0)
	const missing = "False NamespaceMissing: namespaces.names: there is no namespace team-later: create it, or remove"
	for kind, want := range map[string]string{
		v1alpha1.FabricPublished: missing, v1alpha1.FabricReady: "True Ready",
	} {
		if got := conditionOf(t, c, "lost", kind); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if got := conditionOf(t, c, "nowhere", v1alpha1.FabricReady); !strings.HasPrefix(got, "False NamespaceMissing") {
		t.Errorf("nobody can use it: %s", got)
	}
	if !s.event("NamespaceMissing") {
		t.Error("no Event")
	}
	untilDefined(t, c, "lost", "default")
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-later"}})
	s.becomes("lost", v1alpha1.FabricPublished, "True Published")
	untilDefined(t, c, "lost", "default", "team-later")
}

// noNetworks refuses definitions in namespaces with a label, as a webhook or a quota would.
const noNetworks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-networks}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {networks: "none"}}
    resourceRules:
    - {apiGroups: [k8s.cni.cncf.io], apiVersions: ["*"], operations: [CREATE, UPDATE],
       resources: [network-attachment-definitions]}
  validations: [{expression: "false", message: "no networks\e[31m here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-networks}
spec: {policyName: no-networks, validationActions: [Deny]}
`

// What the API server refuses is a condition with its words. Other namespaces and other Fabrics are not affected, and
// when it is allowed the network is there.
func TestPublishFailed(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	apply(t, noNetworks)
	barred := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "barred", Labels: map[string]string{
		"networks": "none"}}}
	create(t, c, barred)
	until(t, func() string { // the policy works a moment after it was made
		u := definition("probe")
		u.SetNamespace("barred")
		err := c.Create(t.Context(), u, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "no networks") {
			return fmt.Sprint("the policy lets it through: ", err)
		}
		return ""
	})
	s := newStepper(t, limited(t, "fabric-controller"))
	apply(t, testfabrics.Object("a-barred", `{namespaces: {names: [barred, default]}}`))
	apply(t, testfabrics.Object("b-other", `{match: {devices: ["x*"]}}`))
	s.round(0)
	const want = "False PublishFailed: NetworkAttachmentDefinition a-barred can't be written in barred: the API " +
		"server says: network-attachment-definitions.k8s.cni.cncf.io \"a-barred\" is forbidden: "
	for _, kind := range []string{v1alpha1.FabricPublished, v1alpha1.FabricReady} {
		got := conditionOf(t, c, "a-barred", kind)
		if !strings.HasPrefix(got, want) || !strings.Contains(got, `no networks\x1b[31m here`) {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if !s.event("PublishFailed") {
		t.Error("no Event")
	}
	if got := conditionOf(t, c, "b-other", v1alpha1.FabricPublished); got != "True Published: " {
		t.Error(got)
	}
	untilDefined(t, c, "a-barred", "default")
	barred.Labels = nil
	if err := c.Update(t.Context(), barred); err != nil {
		t.Fatal(err)
	}
	s.becomes("a-barred", v1alpha1.FabricPublished, "True Published")
	untilDefined(t, c, "a-barred", "barred", "default")
}

// blind may do what the controller does, but read no definitions.
const blind = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: blind, namespace: fabric-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: blind}
rules:
- {apiGroups: [fabric.dev], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [nodes, namespaces], verbs: [get, list, watch]}
- {apiGroups: [resource.k8s.io], resources: [deviceclasses], verbs: [list]}
- {apiGroups: [whereabouts.cni.cncf.io, nv-ipam.nvidia.com], resources: [ippools, cidrpools], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: blind}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: blind}
subjects: [{kind: ServiceAccount, name: blind, namespace: fabric-system}]
`

// A controller that may not read definitions reports that in each Fabric, and does the rest of its work.
func TestUnreadableDefinitions(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer removeNodes(t, c)
	apply(t, blind)
	createNode(t, c, "one")
	addNode(t, c, "one", "unseen")
	s := newStepper(t, limited(t, "blind"))
	apply(t, testfabrics.Object("unseen", testfabrics.Ranged("10.62.0.0/24", 28)))
	s.round(0)
	got := conditionOf(t, c, "unseen", v1alpha1.FabricPublished)
	if !strings.HasPrefix(got, "False PublishFailed: list NetworkAttachmentDefinitions: ") ||
		!strings.Contains(got, "fabric-system:blind") {
		t.Error(got)
	}
	if got := ranges(t, c); got != "one 10.62.0.0/28" {
		t.Error(got)
	}
	s.Client, s.Ranges.Live = c, c
	s.becomes("unseen", v1alpha1.FabricPublished, "True Published")
}

// A definition that another client changes or deletes is put back, and a condition names the client. One that does so
// again and again is named in a condition that is False, and the definition is put back more and more rarely: two
// programs do not chase each other.
func TestNetworkPutBack(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	s := newStepper(t, limited(t, "fabric-controller"))
	apply(t, testfabrics.Object("edited", testfabrics.Ranged("10.63.0.0/24", 28)))
	s.round(0)
	edit := func() {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"team":"a"}},"spec":{"config":"{}"}}`))
		if err := c.Patch(t.Context(), definition("edited"), patch, client.FieldOwner("argo cd")); err != nil {
			t.Fatal(err)
		}
	}
	published := func(want ...string) {
		t.Helper()
		got := conditionOf(t, c, "edited", v1alpha1.FabricPublished)
		if !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(got, w) }) {
			t.Errorf("%s, want %q", got, want)
		}
	}
	const byArgo = `NetworkAttachmentDefinition edited in default was changed by "argo cd", and is put back: change the`
	for range 2 {
		edit()
		s.round(30 * time.Second)
		published("True NetworkPutBack: " + byArgo)
		if got := configOf(t, c, "edited"); got != "file" {
			t.Error(got)
		}
	}
	if !s.event("NetworkPutBack") {
		t.Error("no Event")
	}
	edit()
	s.round(30 * time.Second)
	const contested = `False NetworkContested: NetworkAttachmentDefinition edited in default is changed by "argo cd" ` +
		`again and again (3 times)`
	published(contested)
	edit()
	s.round(30 * time.Second)
	if got := configOf(t, c, "edited"); got != "{}" {
		t.Errorf("it is put back at once: %s", got)
	}
	published(contested)
	s.round(30 * time.Second)
	if got := configOf(t, c, "edited"); got != "file" {
		t.Errorf("it is not put back: %s", got)
	}
	u := definition("edited")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil || u.GetLabels()["team"] != "a" {
		t.Errorf("what others have added is gone: %v, %v", u.GetLabels(), err)
	}
	s.becomes("edited", v1alpha1.FabricPublished, "True NetworkPutBack")
	s.becomes("edited", v1alpha1.FabricPublished, "True Published: ")
	if err := c.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	s.round(30 * time.Second)
	published("True NetworkPutBack: NetworkAttachmentDefinition edited in default was deleted by an unknown client, ")
	if got := configOf(t, c, "edited"); got != "file" {
		t.Error(got)
	}
	// The next leader knows of nothing, and sees who has changed it all the same.
	edit()
	s = newStepper(t, limited(t, "fabric-controller"))
	s.round(0)
	published("True NetworkPutBack: " + byArgo)
	// A new generation of the Fabric is no edit by another client.
	apply(t, testfabrics.Object("edited", `{}`))
	s = newStepper(t, limited(t, "fabric-controller"))
	s.round(0)
	published("True Published: ")
}
