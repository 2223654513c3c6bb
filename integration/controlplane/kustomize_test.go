package controlplane_test

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// What docs/install.md says for users of kustomize: into a cluster that knows nothing of it, and out of it again
// while pods use a Fabric.
func TestKustomize(t *testing.T) {
	fresh(t, everything[0])
	c := whole(t)
	if err := server.Apply(t.Context(), server.Manifests()+"/*"); err != nil {
		t.Fatal(err)
	}
	removeKind(t, c, "fabrics.fabric.dev")
	removeKind(t, c, "fabricnodes.fabric.dev")
	const overlay = manifests + "overlays/exclusive"
	do(t, "kubectl", "apply", "-k", manifests+"crds")
	do(t, "kubectl", "apply", "-k", overlay)
	stop := control(t)
	createNode(t, c, "one")
	addNode(t, c, "one", "ib-200g")
	use(t, c, "one", "team/a")
	untilHeld(t, c, "ib-200g")
	untilDefined(t, c, "ib-200g", "default")
	untouched(t, c)

	wait := scaledDown(t, "fabric-system", "fabric-controller", stop)
	left := leavingAgents(t, "fabric-system", "fabric-agent", 1)
	ran := jobs(t, "fabric-system")
	do(t, "kubectl", "apply", "-k", manifests+"release")
	left()
	wait()
	do(t, "kubectl", "-n", "fabric-system", "wait", "--for=condition=complete", "--timeout=10m", "job/fabric-release")
	if out, err := try(t, "", "kubectl", "get", "clusterrolebinding", "fabric-release"); err == nil {
		t.Errorf("the Job has ended, and has its rights: %s", out)
	}
	do(t, "kubectl", "delete", "-k", manifests+"release", "--ignore-not-found")
	// No controller here ends a namespace, and no kubelet its pods.
	do(t, "kubectl", "delete", "-k", overlay, "--ignore-not-found", "--wait=false")
	if names := ran(); !slices.Equal(names, []string{"fabric-release"}) {
		t.Errorf("jobs: %q", names)
	}
	until(t, func() string {
		_, err := try(t, "", "kubectl", "get", "fabrics")
		if err == nil {
			return "the kinds are still there"
		}
		return ""
	})
	if got := definitions(t, c, "ib-200g"); len(got) > 0 {
		t.Errorf("the network is still in %q", got)
	}
}

// untouched applies the base again, twice: no Fabric is changed, those that a user has made beside it are still there,
// and so are the networks.
func untouched(t *testing.T, c client.Client) {
	t.Helper()
	apply(t, testfabrics.Object("own", `{match: {linkLayer: Ethernet}, namespaces: {names: [default]}}`))
	untilDefined(t, c, "own", "default")
	state := func() (out []string) {
		list := &v1alpha1.FabricList{}
		if err := c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			f := &list.Items[i]
			out = append(out, fmt.Sprint(f.Name, f.UID, f.Generation, f.DeletionTimestamp, f.Status.InForce.Generation,
				definitions(t, c, f.Name)))
		}
		return out
	}
	was := state()
	for range 2 {
		do(t, "kubectl", "apply", "-k", manifests+"base")
		if now := state(); len(now) < 2 || !slices.Equal(now, was) {
			t.Errorf("%q, and before the base was applied again %q", now, was)
		}
	}
}
