package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/fabric-cni/fabric-cni/integration/cluster/dummygpu"
)

// A Fabric that changes from the device plugin to ResourceClaims and back, while pods have its devices, beside one that
// stays. In between the scheduler brings a rail and a GPU together, and avoids a rail whose port is Down.
func draGPUs(t *testing.T, n *LabNode) {
	mine := n.Rails[2:8] // two below the second PCIe root, four on platform devices
	name := draFabric(t, n, "DevicePlugin", mine...)
	offersOf(t, n, name, "6")
	old := "old-" + n.Name
	railPod(t, old, name, 1, n.Name)
	ready(t, old)
	stage(t, "pod by the device plugin is Ready")
	kept, _ := facesOf(t, old, "c")
	if len(kept) != 1 {
		t.Fatalf("interfaces: %v", kept)
	}

	k(t, "patch", "fabric", name, "--type=merge", "-p", `{"spec":{"allocation":"DRA"}}`)
	free := slices.DeleteFunc(slices.Clone(mine), func(r Rail) bool { return r.HCA == kept[0].hca })
	var netdevs []string
	for _, r := range free {
		netdevs = append(netdevs, r.Netdev)
	}
	netdevsPublished(t, n, name, netdevs...)
	stage(t, "what no pod has is published")
	pods := aligned(t, n, name)
	badPort(t, n, name, pods, free)

	still, _ := facesOf(t, old, "c")
	if !slices.Equal(still, kept) {
		t.Errorf("the pod of before has %v, had %v", still, kept)
	}
	gone(t, old)
	for _, r := range mine {
		if r.HCA == kept[0].hca {
			netdevsPublished(t, n, name, append(netdevs, r.Netdev)...)
		}
	}
	stage(t, "the device of before is published")

	k(t, "patch", "fabric", name, "--type=merge", "-p", `{"spec":{"allocation":"DevicePlugin"}}`)
	offersOf(t, n, name, "3") // the pods have the others
	netdevsPublished(t, n, name)
	facesOf(t, pods[0], "c0")
	gone(t, pods...)
	offersOf(t, n, name, "6")
	unprepared(t, n)
	stage(t, "the device plugin has all again")
}

// offersOf waits until kubelet has so many devices of a fabric for pods.
func offersOf(t *testing.T, n *LabNode, fabric, want string) {
	t.Helper()
	eventually(t, n.Name+" offers "+want+" of "+fabric, prints(want,
		"get", "node", n.Name, "-o",
		`jsonpath={.status.allocatable.fabric\.dev/`+fabric+"}"))
}

// aligned is a pod with a GPU and a rail below one PCIe root, and two replicas of a job, each with a rail by the device
// plugin and one by a claim.
func aligned(t *testing.T, n *LabNode, name string) []string {
	t.Helper()
	gpuClass(t)
	// The first that the scheduler would take is below a root without a rail of this Fabric.
	on(t, n, `. /out/env
setsid "$RUN/bin/dummy-gpu" /out/kubelet.kubeconfig "$NAME" pci0000:00 pci0000:00 pci0000:40 \
  >/out/gpu.log 2>&1 </dev/null &
echo $! >/run/gpu.pid`)
	t.Cleanup(func() { on(t, n, "kill $(cat /run/gpu.pid)") })
	const root = "resource.kubernetes.io/pcieRoot"
	template(t, "pair", fmt.Sprintf(`{requests: [{name: gpu, exactly: {deviceClassName: %s}},
  {name: rail, exactly: {deviceClassName: %s.fabric.dev}}], constraints: [{matchAttribute: %s}]}`,
		dummygpu.Driver, name, root))
	template(t, "platform", fmt.Sprintf(`{requests: [{name: rails, exactly: {deviceClassName: %s.fabric.dev,
  selectors: [{cel: {expression: 'device.attributes["fabric.dev"].netdev.startsWith("ibs")'}}]}}]}`, name))
	pods := []string{"pair-" + n.Name, "job-0-" + n.Name, "job-1-" + n.Name}
	claimPod(t, pods[0], n.Name, name, []string{"pair"})
	ready(t, pods[0])
	for _, p := range pods[1:] {
		claimPod(t, p, n.Name, fabric200+", "+name, []string{"platform", "fabric.dev/" + fabric200})
		ready(t, p)
	}
	faces, _ := facesOf(t, pods[0], "c0")
	if len(faces) != 1 || !slices.ContainsFunc(n.Rails[2:4], func(r Rail) bool { return r.PCI == faces[0].device }) {
		t.Errorf("rail of the pair: %v", faces)
	}
	if out := k(t, "exec", pods[0], "--", "env"); !strings.Contains(out, dummygpu.Variable+"_2=pci0000:40\n") {
		t.Errorf("GPU of the pair:\n%s", out)
	}
	stage(t, "GPU and rail are together")
	for _, p := range pods[1:] {
		faces, _ = facesOf(t, p, "c0")
		if len(faces) != 2 || !slices.ContainsFunc(n.Rails[:2], func(r Rail) bool { return r.HCA == faces[0].hca }) ||
			!slices.ContainsFunc(n.Rails[4:8], func(r Rail) bool { return r.HCA == faces[1].hca }) {
			t.Fatalf("rails of pod %s: %v", p, faces)
		}
	}
	in(t, pods[1], "ping -c 1 -W 20 -I net2 "+faces[1].address)
	stage(t, "both replicas are Ready")
	return pods
}

// A device whose port goes Down has a taint, and the scheduler gives it to no pod. When it is up again a pod gets it.
func badPort(t *testing.T, n *LabNode, name string, pods []string, free []Rail) {
	t.Helper()
	var taken []face
	for _, p := range pods {
		faces, _ := facesOf(t, p, "c0")
		taken = append(taken, faces...)
	}
	i := slices.IndexFunc(free, func(r Rail) bool {
		return r.PCI == "" && !slices.ContainsFunc(taken, func(f face) bool { return f.hca == r.HCA })
	})
	if i < 0 {
		t.Fatalf("none of %v is free, %v is taken", free, taken)
	}
	hca := free[i].HCA
	tainted := func(want int) {
		t.Helper()
		published(t, n, name, func(devices []resourceapi.Device) error {
			for _, d := range devices {
				if text(d, "rdmaDevice") == hca && len(d.Taints) == want {
					return nil
				}
			}
			return fmt.Errorf("want %d taints of %s", want, hca)
		})
	}
	states(t, n, hca)
	tainted(1)
	stage(t, "the device is tainted")
	picky := "picky-" + n.Name
	apply(t, fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: rails, exactly: {deviceClassName: %s.fabric.dev,
  selectors: [{cel: {expression: 'device.attributes["fabric.dev"].rdmaDevice == %q'}}]}}]}}
`, picky, name, hca))
	t.Cleanup(func() { removed(t, "resourceclaim", picky) })
	// Not by a template: kubelet 1.34 would look for the health of a claim with the name that the pod has for it.
	claimPod(t, picky, n.Name, name, []string{"claim:" + picky})
	event(t, picky, "cannot allocate all claims")
	states(t, n, "")
	tainted(0)
	ready(t, picky)
	healthOf(t, picky, "Healthy")
	states(t, n, hca)
	healthOf(t, picky, "Unhealthy")
	states(t, n, "")
	healthOf(t, picky, "Healthy")
	gone(t, picky)
	stage(t, "the device is good again")
}

// healthOf waits until kubelet says of the only device of a pod's claim how it is.
func healthOf(t *testing.T, pod, want string) {
	t.Helper()
	eventually(t, "the device of pod "+pod+" is "+want, prints(want,
		"get", "pod", pod, "-o",
		"jsonpath={.status.containerStatuses[*].allocatedResourcesStatus[*].resources[*].health}"))
}
