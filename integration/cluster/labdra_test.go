package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// What the tests of ResourceClaims on nodes of the lab have in common. The scenarios are in labdra_pods_test.go and
// labdra_gpu_test.go.

// draFabric applies a Fabric of some of a node's rails for the test, which takes them from the Fabric of all.
func draFabric(t *testing.T, n *LabNode, allocation string, rails ...Rail) string {
	t.Helper()
	name := "dra-" + n.Name
	var netdevs []string
	for _, r := range rails {
		netdevs = append(netdevs, r.Netdev)
	}
	fabric(t, name, fmt.Sprintf(`{precedence: 1, allocation: %s, match: {devices: [%s]},
  network: {rdmaMode: Exclusive},
  addresses: {nodeRanges: {ranges: [{range: 10.20%d.0.0/16, perNodePrefixLength: 27}]}}}`,
		allocation, strings.Join(netdevs, ", "), n.Number))
	return name
}

// published waits until the node's ResourceSlices are as f wants them, and returns what they say of a fabric.
func published(t *testing.T, n *LabNode, fabric string, f func([]resourceapi.Device) error) []resourceapi.Device {
	t.Helper()
	var devices []resourceapi.Device
	eventually(t, "the devices of "+fabric+" are published", func() error {
		out, err := output("kubectl", "get", "resourceslices", "-o", "json",
			"--field-selector", "spec.driver=fabric.dev,spec.nodeName="+n.Name)
		if err != nil {
			return err
		}
		var list resourceapi.ResourceSliceList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		devices = nil
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				if text(d, "fabric") == fabric {
					devices = append(devices, d)
				}
			}
		}
		slices.SortFunc(devices, func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) })
		if err := f(devices); err != nil {
			b, _ := json.Marshal(devices)
			return fmt.Errorf("%w: %s", err, b)
		}
		return nil
	})
	return devices
}

// netdevsPublished waits until exactly the devices of these interfaces are published, and pods can have all of them: a
// device of a new Fabric is tainted until the controller has given the node a range, and the agent has looked again.
func netdevsPublished(t *testing.T, n *LabNode, fabric string, want ...string) []resourceapi.Device {
	t.Helper()
	slices.Sort(want)
	return published(t, n, fabric, func(devices []resourceapi.Device) error {
		var got []string
		for _, d := range devices {
			got = append(got, text(d, "netdev"))
			if len(d.Taints) > 0 {
				return fmt.Errorf("%s has taints %v", text(d, "netdev"), d.Taints)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("netdevs %v, want %v", got, want)
		}
		return nil
	})
}

// text is an attribute of the driver's own.
func text(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if v := d.Attributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}

// template makes a ResourceClaimTemplate for the test.
func template(t *testing.T, name, devices string) {
	t.Helper()
	apply(t, `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: `+name+`}
spec: {spec: {devices: `+devices+`}}
`)
	t.Cleanup(func() { removed(t, "resourceclaimtemplate", name) })
}

// rails is a claim's request of so many devices of a fabric.
func rails(fabric string, count int) string {
	return fmt.Sprintf("{requests: [{name: rails, exactly: {deviceClassName: %s.fabric.dev, count: %d}}]}",
		fabric, count)
}

// claimPod makes a pod with these networks, if any, and containers that have claims by these templates, or of a
// resource (with a slash), or ResourceClaims that are there ("claim:NAME").
func claimPod(t *testing.T, name, node, networks string, containers ...[]string) {
	t.Helper()
	var all, list []string
	for i, claims := range containers {
		var refs []string
		limits := ""
		for _, c := range claims {
			if strings.Contains(c, "/") {
				limits = ", limits: {" + c + ": 1}"
				continue
			}
			kind := "resourceClaimTemplateName"
			if own, ok := strings.CutPrefix(c, "claim:"); ok {
				c, kind = own, "resourceClaimName"
			}
			refs = append(refs, "{name: "+c+"}")
			if ref := "{name: " + c + ", " + kind + ": " + c + "}"; !slices.Contains(all, ref) {
				all = append(all, ref)
			}
		}
		list = append(list, fmt.Sprintf(`{name: c%d, image: "localhost/box:e2e", imagePullPolicy: Never,
  resources: {claims: [%s]%s}}`, i, strings.Join(refs, ", "), limits))
	}
	annotations := ""
	if networks != "" {
		annotations = fmt.Sprintf(", annotations: {k8s.v1.cni.cncf.io/networks: %q}", networks)
	}
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s%s}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  resourceClaims: [%s]
  containers: [%s]
`, name, annotations, node, strings.Join(all, ", "), strings.Join(list, ", ")))
	t.Cleanup(func() { gone(t, name) })
}

// face is an interface in a pod.
type face struct{ name, device, hca, address string }

// facesOf looks into a container: its interfaces of HCAs, and its device files.
func facesOf(t *testing.T, pod, container string) (faces []face, files []string) {
	t.Helper()
	out := k(t, "exec", pod, "-c", container, "--", "sh", "-c", `ls /dev/infiniband 2>/dev/null | xargs
cd /sys/class/net
for i in $(ls | grep -E '^(net|ib)[0-9]+$'); do
  echo $i $(basename $(readlink -f $i/device)) $(ls $i/device/infiniband) \
    $(ip -4 -o addr show dev $i | awk '{print $4}')
done`)
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("interface %q in pod %s:\n%s", line, pod, out)
		}
		faces = append(faces, face{f[0], f[1], f[2], strings.SplitN(f[3], "/", 2)[0]})
	}
	return faces, strings.Fields(lines[0])
}

// filesOn are the device files of these HCAs that verbs need on their node, and the connection manager's.
func filesOn(t *testing.T, n *LabNode, hcas ...string) []string {
	t.Helper()
	files := strings.Fields(on(t, n, "for hca in "+strings.Join(hcas, " ")+`; do
  for f in /sys/class/infiniband_verbs/uverbs*; do
    [ "$(cat $f/ibdev)" != $hca ] || basename $f
  done
done; echo rdma_cm`))
	slices.Sort(files)
	return slices.Compact(files)
}

// unprepared waits until kubelet has given everything back: no claim is prepared, and no CDI specification is left.
func unprepared(t *testing.T, n *LabNode) {
	t.Helper()
	eventually(t, "no claim is prepared on "+n.Name, func() error {
		out, err := n.Run("find /run/fabric-cni/prepared /var/run/cdi -type f 2>/dev/null || true")
		if err == nil && out != "" {
			err = textError(out)
		}
		return err
	})
}

// neverRan asserts that no container of a pod has ever been started. Where the hook has refused, kubelet calls the
// container terminated with StartError, and the pod's phase Running.
func neverRan(t *testing.T, pods ...string) {
	t.Helper()
	for _, p := range pods {
		out := k(t, "get", "pod", p, "-o", `jsonpath={range .status.containerStatuses[*]}{.started} `+
			`{.state.running.startedAt} {.state.terminated.reason} {.lastState.terminated.reason} {end}`)
		for _, word := range strings.Fields(out) {
			if word != "false" && word != "StartError" {
				t.Errorf("pod %s: %s", p, out)
			}
		}
	}
}
