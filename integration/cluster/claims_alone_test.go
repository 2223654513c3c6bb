package cluster

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/journal"
)

// twoByClaim is a template of a claim of two rails, with this name of interfaces; empty: the claim names none.
func twoByClaim(t *testing.T, name, interfaces string) {
	t.Helper()
	config := ""
	if interfaces != "" {
		config = `, config: [{opaque: {driver: fabric.dev, parameters: {apiVersion: fabric.dev/v1alpha1,
  kind: InterfaceConfig, interface: "` + interfaces + `"}}}]`
	}
	template(t, name, strings.TrimSuffix(rails(rigFabric, 2), "}")+config+"}")
}

// attachments of a pod: INTERFACE=RAIL -> nonce of its ADD.
func attachments(t *testing.T, pod string) map[string]string {
	t.Helper()
	list, err := journal.Store{Dir: journal.DefaultDir}.List()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		if e.Pod() == "default/"+pod && e.Attached {
			out[e.IfName+"="+strings.TrimPrefix(e.DeviceKey, "netdev/")] = e.Nonce
		}
	}
	return out
}

// hasOnly asserts what a pod has, and returns the nonces.
func hasOnly(t *testing.T, pod string, want ...string) map[string]string {
	t.Helper()
	got := attachments(t, pod)
	if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, want) {
		t.Errorf("pod %s has %v, want %v", pod, have, want)
	}
	return got
}

// allHome asserts that all rails are on the host, and that nothing is on file of any pod.
func (g *draRig) allHome(t *testing.T) {
	t.Helper()
	for _, r := range g.rails {
		home(t, r)
	}
	nothingLeft(t)
	for _, dir := range []string{"/prepared", "/netns"} {
		until(t, dir+" is empty", func() error {
			list, err := os.ReadDir(journal.DefaultDir + dir)
			if len(list) > 0 {
				return textError(list[0].Name())
			}
			if os.IsNotExist(err) {
				return nil
			}
			return err
		})
	}
}

// A node without Multus, and pods without an annotation.
func TestClaimsAlone(t *testing.T) {
	rigWithoutMultus(t)
	g := newDRARig(t, current.run+"/bin/held", 3)
	t.Run("all kinds of containers", func(t *testing.T) { kindsOfContainers(t, g) })
	t.Run("names of the claim", func(t *testing.T) { namesOfClaim(t, g) })
	t.Run("a name that is taken", func(t *testing.T) { nameTaken(t, g) })
	t.Run("two claims", func(t *testing.T) { twoClaimsAlone(t, g) })
	t.Run("on the host's network", func(t *testing.T) { onHostNetwork(t, g) })
}

// Init containers, sidecars and others, of which each start finds the devices; a container that ends and starts again.
// One ADD for each device of the sandbox.
func kindsOfContainers(t *testing.T, g *draRig) {
	twoByClaim(t, "two", "")
	const sees = `ls -d /sys/class/net/net* | xargs; ` +
		`cat /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/rails/rails/fabric.dev-metadata.json`
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: kinds}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: rails, resourceClaimTemplateName: two}]
  initContainers:
  - {name: init, image: "localhost/box:e2e", imagePullPolicy: Never, command: [sh, -c, "`+sees+`"],
     resources: {claims: [{name: rails}]}}
  - {name: sidecar, image: "localhost/box:e2e", imagePullPolicy: Never, restartPolicy: Always,
     command: [sh, -c, "`+sees+`; sleep 1000"], resources: {claims: [{name: rails}]}}
  containers:
  - {name: a, image: "localhost/box:e2e", imagePullPolicy: Never, command: [sh, -c, "`+sees+`; sleep 1000"],
     resources: {claims: [{name: rails}]}}
  - {name: b, image: "localhost/box:e2e", imagePullPolicy: Never, resources: {claims: [{name: rails}]}}
  - {name: without, image: "localhost/box:e2e", imagePullPolicy: Never}
`)
	t.Cleanup(func() { gone(t, "kinds") })
	ready(t, "kinds")
	before := hasOnly(t, "kinds", "net1=rail0", "net2=rail1")
	for _, c := range []string{"init", "sidecar", "a"} {
		out, read, _ := strings.Cut(k(t, "logs", "kinds", "-c", c), "\n")
		if out != "/sys/class/net/net1 /sys/class/net/net2" {
			t.Errorf("container %s began with %q", c, out)
		}
		if err := readRight(decoded(t, read), 2); err != nil {
			t.Errorf("container %s: %v\n%s", c, err, read)
		}
	}
	_, _ = output("kubectl", "exec", "kinds", "-c", "b", "--", "sh", "-c", "kill -TERM 1")
	until(t, "container b has been started again", func() error {
		return prints("1 true", "get", "pod", "kinds", "-o",
			`jsonpath={.status.containerStatuses[?(@.name=="b")].restartCount} `+
				`{.status.containerStatuses[?(@.name=="b")].ready}`)()
	})
	if after := attachments(t, "kinds"); !maps.Equal(before, after) {
		t.Errorf("attached again: %v, before %v", after, before)
	}
	gone(t, "kinds")
	g.allHome(t)
}

func namesOfClaim(t *testing.T, g *draRig) {
	twoByClaim(t, "named", "ib%d")
	claimPod(t, "named", "rig", "", []string{"named"})
	ready(t, "named")
	hasOnly(t, "named", "ib0=rail0", "ib1=rail1")
	gone(t, "named")
	g.allHome(t)
}

// A claim that can't be attached: no container runs, and the reason is told.
func nameTaken(t *testing.T, g *draRig) {
	template(t, "taken", strings.TrimSuffix(rails(rigFabric, 1), "}")+`, config: [{opaque: {driver: fabric.dev,
  parameters: {apiVersion: fabric.dev/v1alpha1, kind: InterfaceConfig, interface: eth0}}}]}`)
	claimPod(t, "taken", "rig", "", []string{"taken"})
	told(t, "taken", "of fabric "+rigFabric+": could not attach eth0 to pod default/taken",
		"has an interface of this name")
	gone(t, "taken")
	g.allHome(t)
}

// Two claims of a pod, each in a container of its own: the first container has the devices of both attached.
func twoClaimsAlone(t *testing.T, g *draRig) {
	template(t, "one", rails(rigFabric, 1))
	template(t, "other", rails(rigFabric, 1))
	claimPod(t, "claims", "rig", "", []string{"one"}, []string{"other"})
	ready(t, "claims")
	hasOnly(t, "claims", "net1=rail0", "net2=rail1")
	gone(t, "claims")
	g.allHome(t)
}

// A pod on the host's network gets no interface: it starts only while no other has the device.
func onHostNetwork(t *testing.T, g *draRig) {
	apply(t, `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: hosts}
spec: {devices: `+rails(rigFabric, 1)+`}
`)
	t.Cleanup(func() { removed(t, "resourceclaim", "hosts") })
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: hosts}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: rails, resourceClaimName: hosts}]
  containers:
  - {name: c, image: "localhost/box:e2e", imagePullPolicy: Never, resources: {claims: [{name: rails}]}}
`)
	t.Cleanup(func() { gone(t, "hosts") })
	ready(t, "hosts")
	hasOnly(t, "hosts")
	m := decoded(t, k(t, "exec", "hosts", "--", "cat",
		"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/hosts/rails/fabric.dev-metadata.json"))
	if d := m.Requests[0].Devices; len(d) != 1 || d[0].NetworkData != nil {
		t.Errorf("it reads %+v", d)
	}
	gone(t, "hosts")
	g.allHome(t)
}

// Multus and an annotation for one of two devices: each is attached once, and each returns.
func TestClaimsBesideMultus(t *testing.T) {
	g := newDRARig(t, current.run+"/bin/held", 3)
	twoByClaim(t, "beside", "")
	claimPod(t, "beside", "rig", rigFabric, []string{"beside"})
	ready(t, "beside")
	hasOnly(t, "beside", "net1=rail0", "net2=rail1")
	if s := status(t, "beside"); len(s) != 2 || s[1].Interface != "net1" {
		t.Errorf("network-status: %+v", s)
	}
	gone(t, "beside")
	g.allHome(t)
}
