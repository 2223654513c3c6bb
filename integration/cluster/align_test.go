package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fabric-cni/fabric-cni/integration/cluster/dummygpu"
	"github.com/fabric-cni/fabric-cni/internal/agent/dra/offer"
	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// The real scheduler brings GPUs and rails together on machines as they were recorded: Node objects that no kubelet
// stands behind, with ResourceSlices as the agent and a GPU driver would publish them.
func TestAligned(t *testing.T) {
	gpuClass(t)
	apply(t, `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: ib-400g.fabric.dev}
spec:
  selectors:
  - cel: {expression: 'device.driver == "fabric.dev" && device.attributes["fabric.dev"].fabric == "ib-400g"'}
`)
	t.Cleanup(func() { removed(t, "deviceclass", "ib-400g.fabric.dev") })
	t.Run("H20", alignedH20)
	t.Run("GB200", alignedGB200)
}

// Two GPUs and a rail below each of four PCIe roots.
func alignedH20(t *testing.T) {
	roots := recorded(t, "h20")
	var pairs []string
	for i := range 4 {
		pairs = append(pairs, pair(i, 2))
	}
	alignedPod(t, "all", "h20", claimOf(pairs...))
	given := allocated(t, "all")
	together(t, given, roots, 4)
	if len(given) != 12 {
		t.Errorf("given: %v", given)
	}
	alignedPod(t, "late", "h20", claimOf(pair(0, 1)))
	event(t, "late", "cannot allocate all claims")
	alignedGone(t, "late") // first, or it is given what the other has left
	alignedGone(t, "all")

	// A rail is gone without its GPUs: these are left for pods without rails, as alignment is what the claim asks for.
	alignedPod(t, "rail-only", "h20", `{requests: [{name: rail, exactly: {deviceClassName: ib-400g.fabric.dev,
  selectors: [{cel: {expression: 'device.attributes["fabric.dev"].rail == 0'}}]}}]}`)
	allocated(t, "rail-only")
	for i := range 3 {
		name := fmt.Sprint("pair-", i)
		alignedPod(t, name, "h20", claimOf(pair(0, 1)))
		together(t, allocated(t, name), roots, 1)
	}
	alignedPod(t, "fourth", "h20", claimOf(pair(0, 1)))
	event(t, "fourth", "cannot allocate all claims")
}

// Every device has a PCI domain of its own: there is no PCIe root in common, and a claim that asks for one is told so.
// What GPU and rail have in common there is the CPU.
func alignedGB200(t *testing.T) {
	recorded(t, "gb200")
	alignedPod(t, "root", "gb200", claimOf(pair(0, 1)))
	event(t, "root", "cannot allocate all claims")
	var requests []string
	for numa := range 2 {
		for _, of := range []struct{ name, class, domain string }{
			{"gpu", dummygpu.Driver, dummygpu.Driver}, {"rail", "ib-400g.fabric.dev", "fabric.dev"},
		} {
			requests = append(requests, fmt.Sprintf(`{name: %s-%d, exactly: {deviceClassName: %s, count: 2,
  selectors: [{cel: {expression: 'device.attributes["%s"].numaNode == %d'}}]}}`,
				of.name, numa, of.class, of.domain, numa))
		}
	}
	alignedPod(t, "numa", "gb200", "{requests: ["+strings.Join(requests, ", ")+"]}")
	if given := allocated(t, "numa"); len(given) != 8 {
		t.Errorf("given: %v", given)
	}
}

// recorded makes a node of a recorded machine, and returns the PCIe roots of its devices by driver and name.
func recorded(t *testing.T, name string) map[string]string {
	t.Helper()
	m := machines.Named(name)
	n, err := node.Read(m.FS, &m.Live)
	if err != nil {
		t.Fatal(err)
	}
	otherNode(t, name, "machine: "+name)
	k(t, "patch", "node", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"capacity":{"pods":"110"},"allocatable":{"pods":"110"}}}`)
	var items []offer.Item
	for i := range n.HCAs {
		if h := &n.HCAs[i]; h.Ports[0].LinkLayer == device.InfiniBand && h.Ports[0].RateGb == 400 {
			items = append(items, offer.Item{
				Fabric: "ib-400g", Resource: "fabric.dev/ib-400g", Location: h.Location(), LinkLayer: "InfiniBand",
				RateGb: 400, State: h.Ports[0].State, RDMADevice: h.Name, Netdev: h.Ports[0].Netdev, NUMA: h.NUMA,
				PCIeRoot: h.Path[0],
			})
		}
	}
	offer.Rails(items, nil)
	rails, refused := offer.Devices(items, offer.Form{})
	if len(refused) > 0 || len(rails) != 4 {
		t.Fatalf("rails %v, refused %v", rails, refused)
	}
	var list []dummygpu.GPU
	for _, g := range n.GPUs {
		list = append(list, dummygpu.GPU{Root: g.Path[0], NUMA: g.NUMA})
	}
	roots := map[string]string{}
	for driver, devices := range map[string][]resourceapi.Device{
		"fabric.dev": rails, dummygpu.Driver: dummygpu.Devices(list),
	} {
		slice(t, name, driver, devices)
		for _, d := range devices {
			roots[driver+"/"+d.Name] = *d.Attributes[offer.AttrPCIeRoot].StringValue
		}
	}
	return roots
}

// slice publishes devices of a node whose driver does not run.
func slice(t *testing.T, node, driver string, devices []resourceapi.Device) {
	t.Helper()
	name := node + "-" + driver
	b, err := json.Marshal(resourceapi.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, string(b))
	t.Cleanup(func() { removed(t, "resourceslice", name) })
}

// pair is a part of a claim: so many GPUs and a rail below one PCIe root.
func pair(i, gpus int) string {
	return fmt.Sprintf(`{name: gpu-%[1]d, exactly: {deviceClassName: %[2]s, count: %[3]d}},
  {name: rail-%[1]d, exactly: {deviceClassName: ib-400g.fabric.dev}}`, i, dummygpu.Driver, gpus)
}

// claimOf is the devices of a claim with these pairs.
func claimOf(pairs ...string) string {
	var constraints []string
	for i := range pairs {
		constraints = append(constraints, fmt.Sprintf("{requests: [gpu-%[1]d, rail-%[1]d], matchAttribute: %[2]s}",
			i, offer.AttrPCIeRoot))
	}
	return "{requests: [" + strings.Join(pairs, ", ") + "], constraints: [" + strings.Join(constraints, ", ") + "]}"
}

// alignedPod asks for devices on a node that no kubelet stands behind.
func alignedPod(t *testing.T, name, machine, devices string) {
	t.Helper()
	apply(t, `apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: `+name+`}
spec: {devices: `+devices+`}
---
apiVersion: v1
kind: Pod
metadata: {name: `+name+`}
spec:
  nodeSelector: {machine: `+machine+`}
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 0
  resourceClaims: [{name: devices, resourceClaimName: `+name+`}]
  containers: [{name: c, image: "localhost/box:e2e", imagePullPolicy: Never, resources: {claims: [{name: devices}]}}]
`)
	t.Cleanup(func() {
		removed(t, "pod", name, "--force", "--grace-period=0")
		removed(t, "resourceclaim", name)
	})
}

// alignedGone removes a pod with what it has claimed.
func alignedGone(t *testing.T, name string) {
	t.Helper()
	gone(t, name)
	removed(t, "resourceclaim", name)
}

// claimNow is a claim as the API server has it.
func claimNow(name string) (c resourceapi.ResourceClaim, err error) {
	out, err := output("kubectl", "get", "resourceclaim", name, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &c)
	}
	return c, err
}

// allocated waits until the scheduler has allocated a claim, and returns its devices: request, then driver/device.
func allocated(t *testing.T, claim string) (given [][2]string) {
	t.Helper()
	until(t, "claim "+claim+" is allocated", func() error {
		c, err := claimNow(claim)
		if err != nil {
			return err
		}
		if c.Status.Allocation == nil {
			events, _ := output("kubectl", "get", "events", "--field-selector", "involvedObject.name="+claim)
			return textError("not allocated\n" + events)
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			given = append(given, [2]string{r.Request, r.Driver + "/" + r.Device})
		}
		return nil
	})
	slices.SortFunc(given, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	return given
}

// together asserts that each pair is below one PCIe root, and all pairs below as many.
func together(t *testing.T, given [][2]string, roots map[string]string, pairs int) {
	t.Helper()
	of := map[string]string{} // pair -> root
	for _, g := range given {
		_, i, _ := strings.Cut(g[0], "-")
		root := roots[g[1]]
		if was, ok := of[i]; ok && was != root || root == "" {
			t.Errorf("pair %s: %s is below %q, another below %q", i, g[1], root, was)
		}
		of[i] = root
	}
	different := map[string]bool{}
	for _, root := range of {
		different[root] = true
	}
	if len(of) != pairs || len(different) != pairs {
		t.Errorf("%d pairs below %d roots, want %d: %v", len(of), len(different), pairs, given)
	}
}
