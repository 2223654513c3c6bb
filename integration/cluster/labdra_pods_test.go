package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// A Fabric that allocates by ResourceClaims, and what pods make of it: rightly, and wrongly.
func draPods(t *testing.T, n *LabNode) {
	name := draFabric(t, n, "DRA", n.Rails...)
	var netdevs []string
	for _, r := range n.Rails {
		netdevs = append(netdevs, r.Netdev)
	}
	for i, d := range netdevsPublished(t, n, name, netdevs...) {
		root := d.Attributes["resource.kubernetes.io/pcieRoot"].StringValue
		if text(d, "rdmaDevice") != n.Rails[i].HCA || *d.Attributes["rail"].IntValue != int64(i) || root == nil ||
			(*root == "pci0000:40") != (i >= 2) {
			t.Errorf("rail %d: %+v", i, d)
		}
	}
	until(t, "its DeviceClass is there", func() error {
		_, err := output("kubectl", "get", "deviceclass", name+".fabric.dev")
		return err
	})
	stage(t, "devices are published")
	template(t, "rails-4", rails(name, 4))
	template(t, "one", rails(name, 1))
	template(t, "other", strings.TrimSuffix(rails(name, 1), "}")+`, config: [{opaque: {driver: fabric.dev,
  parameters: {apiVersion: fabric.dev/v1alpha1, kind: InterfaceConfig, mtu: 2000}}}]}`)
	fourByClaim(t, n, name)
	mistakes(t, n, name)
	unprepared(t, n)
}

// A pod with all rails by one claim, with the scheduler's word to one that is too late, and its pause process killed.
func fourByClaim(t *testing.T, n *LabNode, name string) {
	t.Helper()
	pod, late := "four-"+n.Name, "late-"+n.Name
	networks := strings.TrimSuffix(strings.Repeat(name+", ", 4), ", ")
	claimPod(t, pod, n.Name, networks, []string{"rails-4"})
	ready(t, pod)
	stage(t, "pod with four rails is Ready")
	claimPod(t, late, n.Name, name, []string{"one"})
	faces, files := facesOf(t, pod, "c0")
	if len(faces) != 4 {
		t.Fatalf("interfaces: %v", faces)
	}
	var hcas []string
	for i, f := range faces {
		if f.name != fmt.Sprint("net", i+1) || f.device != n.Rails[i].PCI || f.hca != n.Rails[i].HCA {
			t.Errorf("interface %d: %+v, want rail %+v", i, f, n.Rails[i])
		}
		hcas = append(hcas, f.hca)
	}
	if want := filesOn(t, n, hcas...); !slices.Equal(files, want) || len(want) != 5 {
		t.Errorf("device files %v, want %v", files, want)
	}
	networkData(t, pod, faces)
	event(t, late, "cannot allocate all claims")
	gone(t, late)
	stage(t, "claim has its network data")
	pauseKilled(t, n, pod, 4)
	restarted(t, pod)
	again, _ := facesOf(t, pod, "c0")
	for i := range again {
		again[i].address = faces[i].address // which another sandbox may get another of
	}
	if !slices.Equal(again, faces) {
		t.Errorf("after another sandbox: %v, before: %v", again, faces)
	}
	gone(t, pod)
	unprepared(t, n)
	stage(t, "pod is gone")
}

// restarted waits until the pod's first container runs again.
func restarted(t *testing.T, pod string) {
	t.Helper()
	eventually(t, pod+" runs again", func() error {
		out, err := output("kubectl", "get", "pod", pod, "-o",
			"jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}")
		if err == nil && (out == "0 true" || !strings.HasSuffix(out, " true")) {
			err = textError(out)
		}
		return err
	})
}

// networkData waits until the status of a pod's only claim says what the pod has.
func networkData(t *testing.T, pod string, faces []face) {
	t.Helper()
	claim := k(t, "get", "pod", pod, "-o", "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}")
	eventually(t, "claim "+claim+" has its network data", func() error {
		c, err := claimNow(claim)
		if err != nil {
			return err
		}
		var want, got []string
		for _, f := range faces {
			want = append(want, f.name+" "+f.address)
		}
		for _, d := range c.Status.Devices {
			if d.NetworkData == nil || len(d.NetworkData.IPs) != 1 || d.NetworkData.HardwareAddress == "" {
				return fmt.Errorf("network data of %s: %+v", d.Device, d.NetworkData)
			}
			address, _, _ := strings.Cut(d.NetworkData.IPs[0], "/")
			got = append(got, d.NetworkData.InterfaceName+" "+address)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("network data %v, want %v", got, want)
		}
		return nil
	})
}

// Pods that are wrong never run, and say what to do. Others beside them do: one with two claims, of which a second
// container shares one, and one that knows nothing of claims.
//
// One starts after the other: Multus waits for the API server for 2.5 s (multus-cni v4.2.4, shortPollTimeout), of which
// the emulated CPU needs most for one pod, and several that try again and again get nowhere.
func mistakes(t *testing.T, n *LabNode, name string) {
	t.Helper()
	two, today := "two-"+n.Name, "today-"+n.Name
	claimPod(t, two, n.Name, name+", "+name, []string{"one", "other"}, []string{"one"})
	ready(t, two)
	railPod(t, today, name, 1, n.Name)
	ready(t, today)
	stage(t, "pods with claims are Ready")
	twoClaims(t, n, two)
	faces, files := facesOf(t, today, "c")
	if len(faces) != 1 || !slices.Equal(files, filesOn(t, n, faces[0].hca)) {
		t.Errorf("pod by extended resource: %v, %v", faces, files)
	}

	noClaim := []string{"none of its ResourceClaims gives it a device of fabric " + name,
		"add a claim of DeviceClass " + name + ".fabric.dev to the pod"}
	wrong := "bare-" + n.Name
	claimPod(t, wrong, n.Name, name, nil)
	told(t, wrong, noClaim...)
	gone(t, wrong)
	told(t, staticPod(t, n, "static", name), noClaim...)
	stage(t, "wrong pods have been told")
	on(t, n, "rm /etc/kubernetes/manifests/*")
	gone(t, two, today)
}

// twoClaims looks at a pod with two claims, of which the second container has the first.
func twoClaims(t *testing.T, n *LabNode, pod string) {
	t.Helper()
	faces, files := facesOf(t, pod, "c0")
	_, sharedFiles := facesOf(t, pod, "c1")
	if len(faces) != 2 {
		t.Fatalf("interfaces: %v", faces)
	}
	if want := filesOn(t, n, faces[0].hca, faces[1].hca); !slices.Equal(files, want) {
		t.Errorf("device files %v, want %v", files, want)
	}
	if first := filesOn(t, n, faces[0].hca); !slices.Equal(sharedFiles, first) &&
		!slices.Equal(sharedFiles, filesOn(t, n, faces[1].hca)) {
		t.Errorf("device files of the container with one claim: %v", sharedFiles)
	}
	if out := in(t, pod, "cat /sys/class/net/net*/mtu | sort | xargs"); !strings.HasPrefix(out, "2000 ") &&
		!strings.HasSuffix(out, " 2000\n") {
		t.Errorf("MTUs: %s", out)
	}
}

// told waits until events of a pod have all these texts, and asserts that it has never run.
func told(t *testing.T, pod string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		event(t, pod, text)
	}
	neverRan(t, pod)
}

// staticPod has kubelet make a pod with a network, and returns its name at the API server. Such a pod can't have
// claims, and its UID is not from the API server.
func staticPod(t *testing.T, n *LabNode, name, network string) string {
	t.Helper()
	on(t, n, `cat >/etc/kubernetes/manifests/`+name+`.json <<'END'
{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "`+name+`", "namespace": "default",
  "annotations": {"k8s.v1.cni.cncf.io/networks": "`+network+`"}},
 "spec": {"terminationGracePeriodSeconds": 1,
  "containers": [{"name": "c", "image": "localhost/box:e2e", "imagePullPolicy": "Never"}]}}
END`)
	pod := name + "-" + n.Name
	t.Cleanup(func() { removed(t, "pod", pod, "--force", "--grace-period=0") })
	return pod
}

// One HCA that two claims have at once: the device of the slice has as many shares as the Fabric, and each pod gets a
// child of its interface.
func sharedByClaims(t *testing.T, n *LabNode) {
	k(t, "patch", "fabric", fabricShared, "--type=merge", "-p", `{"spec":{"allocation":"DRA"}}`)
	published(t, n, fabricShared, func(devices []resourceapi.Device) error {
		if len(devices) != 1 || devices[0].AllowMultipleAllocations == nil || !*devices[0].AllowMultipleAllocations {
			return textError("want one device with shares")
		}
		return nil
	})
	template(t, "share", rails(fabricShared, 1))
	pods := []string{"share-0-" + n.Name, "share-1-" + n.Name}
	for i, p := range pods {
		claimPod(t, p, n.Name, []string{fabricShared, ""}[i], []string{"share"}) // by Multus, and by the claim alone
		ready(t, p)
	}
	stage(t, "both pods have a share")
	for _, p := range pods {
		out := in(t, p, `ip -4 -o addr show dev net1 | awk '{print $4}'`)
		address, _, ok := strings.Cut(strings.TrimSpace(out), "/")
		if !ok {
			t.Fatalf("address of %s: %q", p, out)
		}
		networkData(t, p, []face{{name: "net1", address: address}})
	}
	// uverbs and, as the Fabric says, umad of one HCA, and rdma_cm
	if out := in(t, pods[0], "ls /dev/infiniband"); len(strings.Fields(out)) != 3 || !strings.Contains(out, "umad") {
		t.Errorf("device files: %s", out)
	}
	gone(t, pods...)
	unprepared(t, n)
}
