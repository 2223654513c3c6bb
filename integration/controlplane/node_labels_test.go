package controlplane_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fabric-cni/fabric-cni/internal/controller"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// labelsOf are the labels of a Node: "fabric.dev/ib.devices=1 ...".
func labelsOf(t *testing.T, c client.Client, name string) string {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		out = append(out, k+"="+n.Labels[k])
	}
	return strings.Join(out, " ")
}

// has is what the agent of a node says: its RDMA mode, and the rates of its devices of each fabric.
func has(t *testing.T, c client.Client, node, mode string, rates map[string][]int32) {
	t.Helper()
	n := &v1alpha1.FabricNode{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, n); err != nil {
		t.Fatal(err)
	}
	n.Status = v1alpha1.FabricNodeStatus{Agent: "v1", RDMAMode: mode}
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		f := v1alpha1.NodeFabric{Name: name}
		for i, r := range rates[name] {
			f.Devices = append(f.Devices, v1alpha1.FabricDevice{ID: fmt.Sprintf("0000:3b:%02x.0", i), RateGb: r})
		}
		n.Status.Fabrics = append(n.Status.Fabrics, f)
	}
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// What a node has is in labels of its Node if that is asked for: they follow devices, and not their health, and no
// label of another owner is changed. release removes them.
func TestNodeLabels(t *testing.T) {
	if err := server.Apply(t.Context(), manifests+"components/node-labels/rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	c := whole(t)
	defer removeNodes(t, c)
	defer removeFabrics(t, c)
	long := strings.Repeat("n", 50)
	apply(t, testfabrics.Object("ib", `{match: {linkLayer: InfiniBand}}`))
	apply(t, testfabrics.Object(long, `{match: {linkLayer: Ethernet}}`))
	create(t, c, &corev1.Node{ObjectMeta: newNode("l1").ObjectMeta})
	theirs := newNode("l2")
	theirs.Labels = map[string]string{
		"fabric.dev/old.devices": "3", "fabric.dev/mine": "yes", "other/ib.devices": "1", "fabric.dev/ib.devices": "9",
	}
	create(t, c, theirs)
	createNode(t, c, "silent")
	for _, n := range []string{"l1", "l2", "silent", "no-node"} {
		addNode(t, c, n)
	}
	has(t, c, "l1", "exclusive", map[string][]int32{"ib": {200, 100}, long: {25}, "unknown": {400}})
	has(t, c, "l2", "", nil)
	s := newStepper(t, limited(t, "fabric-controller"))
	s.round(0)
	if got := labelsOf(t, c, "l1"); got != "" {
		t.Errorf("it is off: %s", got)
	}
	s.Labels = true
	becomes := func(node, want string) {
		t.Helper()
		s.round(0)
		if got := labelsOf(t, c, node); got != want {
			t.Errorf("%s: %s\nwant %s", node, got, want)
		}
	}
	rest := " fabric.dev/" + long + ".devices=1 fabric.dev/" + long + ".rate=25 fabric.dev/rdma-mode=exclusive"
	becomes("l1", "fabric.dev/ib.devices=2 fabric.dev/ib.rate=100"+rest)
	becomes("l2", "fabric.dev/mine=yes other/ib.devices=1")
	becomes("silent", "")

	// A port that is down has no rate, and a problem.
	has(t, c, "l1", "", map[string][]int32{"ib": {200, 0}, long: {0}})
	problem(t, c, "l1", "PortDown")
	becomes("l1", "fabric.dev/ib.devices=2 fabric.dev/ib.rate=100"+rest)
	// A user changes one: it follows the node again.
	n := newNode("l1")
	if err := c.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"fabric.dev/ib.devices":"8","fabric.dev/mine":"1"}}}`))); err != nil {
		t.Fatal(err)
	}
	becomes("l1", "fabric.dev/ib.devices=2 fabric.dev/ib.rate=100 fabric.dev/mine=1"+rest)
	version := versionOf(t, c, "l1")
	for range 3 {
		s.round(time.Minute)
	}
	if now := versionOf(t, c, "l1"); now != version {
		t.Errorf("the Node is written although nothing has changed: %s, %s", version, now)
	}
	// A Fabric that is gone has no labels, whatever the agent still says.
	if err := c.Delete(t.Context(), &v1alpha1.Fabric{ObjectMeta: newNode(long).ObjectMeta}); err != nil {
		t.Fatal(err)
	}
	becomes("l1", "fabric.dev/ib.devices=2 fabric.dev/ib.rate=100 fabric.dev/mine=1 fabric.dev/rdma-mode=exclusive")

	var log bytes.Buffer
	o := &controller.ReleaseOptions{Namespace: "fabric-system", Deployment: "fabric-controller", Timeout: time.Second}
	err := controller.ReleaseAt(t.Context(), server.Config, o, slog.New(slog.NewTextHandler(&log, nil)))
	if got := labelsOf(t, c, "l1"); err != nil || got != "fabric.dev/mine=1" {
		t.Errorf("after release: %s, %v\n%s", got, err, log.String())
	}
}

func versionOf(t *testing.T, c client.Client, node string) string {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: node}, n); err != nil {
		t.Fatal(err)
	}
	return n.ResourceVersion
}
