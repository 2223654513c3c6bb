package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

// A node without Multus, and pods without an annotation: a claim alone is enough, also when the agent, the sandbox's
// process or kubelet is killed.
func claimsAlone(t *testing.T, n *LabNode) {
	name := draFabric(t, n, "DRA", n.Rails...)
	var netdevs []string
	for _, r := range n.Rails {
		netdevs = append(netdevs, r.Netdev)
	}
	netdevsPublished(t, n, name, netdevs...)
	template(t, "alone-4", `{requests: [{name: rails, exactly: {deviceClassName: `+name+`.fabric.dev, count: 4}}],
  config: [{opaque: {driver: fabric.dev,
  parameters: {apiVersion: fabric.dev/v1alpha1, kind: InterfaceConfig, interface: ib%d}}}]}`)
	withoutMultus(t, n)
	pod := "alone-" + n.Name
	claimPod(t, pod, n.Name, "", []string{"alone-4"}, []string{"alone-4"})
	ready(t, pod)
	stage(t, "pod with four rails is Ready")
	faces := aloneFaces(t, n, pod)
	networkData(t, pod, faces)
	anotherAgent(t, n)
	stage(t, "there is another agent")
	sandboxKilled(t, n, pod)
	aloneFaces(t, n, pod)
	stage(t, "the pod has another sandbox")
	kubeletKilled(t, n, pod)
	unprepared(t, n)
	if out := on(t, n, "ls /run/fabric-cni/netns 2>/dev/null || true"); out != "" {
		t.Errorf("network namespaces that are held: %s", out)
	}
	withMultus(t, n)
}

// aloneFaces asserts that both containers of the pod see the node's rails as ib0 to ib3.
func aloneFaces(t *testing.T, n *LabNode, pod string) (faces []face) {
	t.Helper()
	for _, c := range []string{"c0", "c1"} {
		faces, _ = facesOf(t, pod, c)
		if len(faces) != len(n.Rails) {
			t.Fatalf("interfaces of %s: %v", c, faces)
		}
		for i, f := range faces {
			r := n.Rails[i]
			if f.name != fmt.Sprint("ib", i) || f.device != r.PCI || f.hca != r.HCA || f.address == "" {
				t.Errorf("interface %d of %s: %+v, want rail %+v", i, c, f, r)
			}
		}
		reads(t, pod, c, "resourceclaimtemplates/alone-4/rails", faces)
	}
	return faces
}

// reads asserts that the metadata that a container has of a request agrees with what is in the pod.
func reads(t *testing.T, pod, container, of string, faces []face) {
	t.Helper()
	m := decoded(t, k(t, "exec", pod, "-c", container, "--", "cat",
		metadata.ContainerDir+"/"+of+"/"+metadata.MetadataFileName("fabric.dev")))
	var got []face
	for _, d := range m.Requests[0].Devices {
		if d.NetworkData == nil || len(d.NetworkData.IPs) != 1 {
			t.Fatalf("container %s reads of %s: %+v", container, d.Name, d.NetworkData)
		}
		text := func(name resourceapi.QualifiedName) string {
			if s := d.Attributes[name].StringValue; s != nil {
				return *s
			}
			return ""
		}
		got = append(got, face{
			d.NetworkData.InterfaceName, text("resource.kubernetes.io/pciBusID"), text("rdmaDevice"),
			strings.SplitN(d.NetworkData.IPs[0], "/", 2)[0],
		})
	}
	slices.SortFunc(got, func(a, b face) int { return strings.Compare(a.name, b.name) })
	if !slices.Equal(got, faces) {
		t.Errorf("container %s reads %+v, and has %+v", container, got, faces)
	}
}

// decoded is the metadata of a request, by the library that containers would use.
func decoded(t *testing.T, text string) *metadata.DeviceMetadata {
	t.Helper()
	var m metadata.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(strings.NewReader(text)), &m); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return &m
}

// sandboxKilled kills the first process of the pod's sandbox, and waits until its devices are in another one.
func sandboxKilled(t *testing.T, n *LabNode, pod string) {
	t.Helper()
	const inodes = `grep -ho '"ino": *[0-9]*' ` + entries + `* | grep -o '[0-9]*' | sort -u`
	before := strings.Fields(on(t, n, inodes))
	if len(before) != 1 {
		t.Fatalf("network namespaces with devices: %v", before)
	}
	on(t, n, `for p in $(cd /proc; ls -d [0-9]* | sort -n); do
  if [ "$(readlink /proc/$p/ns/net)" = "net:[`+before[0]+`]" ]; then kill -9 $p; exit; fi
done; exit 1`)
	eventually(t, "the pod has another sandbox", func() error {
		out, err := n.Run(inodes + `; grep -l '"attached": *true' ` + entries + `* | wc -l`)
		f, all := strings.Fields(out), fmt.Sprint(len(n.Rails))
		if err == nil && (len(f) != 2 || f[0] == before[0] || f[1] != all) {
			err = textError("namespaces, and attachments: " + out)
		}
		return err
	})
	ready(t, pod)
}
