package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// The controller tells each node which nodeSelectors select it, and keeps to the labels of the Node.
func TestNodeSelector(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer control(t)()
	for name, island := range map[string]string{"east-1": "east", "west-1": "west"} {
		labels := map[string]string{"island": island}
		create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		addNode(t, c, name)
	}
	defer removeNodes(t, c)
	const match = `match: {linkLayer: InfiniBand, rateGb: 200}`
	for _, island := range []string{"east", "west"} {
		apply(t, testfabrics.Object("ib-"+island, `{`+match+`, nodeSelector: {matchLabels: {island: `+island+`}}}`))
	}
	apply(t, testfabrics.Object("ib-all", `{`+match+`}`))
	becomes := func(node, want string) {
		t.Helper()
		until(t, func() string {
			n := &v1alpha1.FabricNode{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: node}, n); err != nil {
				return err.Error()
			}
			if got := strings.Join(n.Spec.Selected, " "); got != want {
				return fmt.Sprintf("%s is selected by %q, want %q", node, got, want)
			}
			return ""
		})
	}
	becomes("east-1", "ib-east")
	becomes("west-1", "ib-west")
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"island":"west"}}}`))
	if err := c.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "east-1"}}, label); err != nil {
		t.Fatal(err)
	}
	becomes("east-1", "ib-west")
	apply(t, testfabrics.Object("ib-west", `{`+match+`}`))
	becomes("east-1", "")
}

// Routing by source is on where a node has several devices of the Fabric, unless the Fabric sets it.
func TestSourceBasedRouting(t *testing.T) {
	c := whole(t)
	defer removeFabrics(t, c)
	defer control(t)()
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rails-1"}})
	addNode(t, c, "rails-1", "several", "unrouted")
	defer removeNodes(t, c)
	apply(t, testfabrics.Object("several", `{}`))
	apply(t, testfabrics.Object("unrouted", `{network: {sourceBasedRouting: false}}`))
	becomes := func(name, want string) {
		t.Helper()
		until(t, func() string {
			d := definition(name)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err.Error()
			}
			config, _, err := unstructured.NestedString(d.Object, "spec", "config")
			if err != nil {
				return err.Error()
			}
			got := strings.Join(strings.Fields(config), "")
			if strings.Contains(got, `"sourceBased":true`) != (want == "on") {
				return name + ": " + got
			}
			return ""
		})
	}
	becomes("several", "off") // the node has one
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "rails-1"}, n); err != nil {
		t.Fatal(err)
	}
	for i := range n.Status.Fabrics {
		f := &n.Status.Fabrics[i]
		f.Devices = append(f.Devices, v1alpha1.FabricDevice{ID: "0000:5e:00.0"})
	}
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	becomes("several", "on")
	becomes("unrouted", "off")
}
