package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// asking creates a pod with these annotations that asks for so many of a resource, for the test.
func asking(t *testing.T, name, annotations, resource string, count int) {
	t.Helper()
	resources := ""
	if count > 0 {
		n := fmt.Sprintf(`{%s: "%d"}`, resource, count)
		resources = ", resources: {limits: " + n + ", requests: " + n + "}"
	}
	apply(t, `apiVersion: v1
kind: Pod
metadata: {name: `+name+`, annotations: {`+annotations+`}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "localhost/box:e2e", imagePullPolicy: Never`+resources+`,
     securityContext: {capabilities: {add: [IPC_LOCK]}}}
`)
	t.Cleanup(func() { gone(t, name) })
}

func networksOf(list string) string { return `k8s.v1.cni.cncf.io/networks: "` + list + `"` }

// explains asserts that what kubectl describe says of a pod is explained, as people would ask.
func explains(t *testing.T, pod string, ids ...string) {
	t.Helper()
	out, _ := ctlWith(t, 3, k(t, "describe", "pod", pod), nil, "doctor", "explain")
	says(t, "the events of "+pod, out, ids...)
}

// A pod without its interfaces, seen from the host: which step is missing, on pods that kubelet, Multus and whereabouts
// have worked on.
func TestCtlDoctorPod(t *testing.T) {
	const resource = "fabric.dev/ib-400g"
	rail(t, "rail0")
	rail(t, "rail1")
	network(t, "ib0", fabricOn("rail0", "ib0"))
	offers(t, "rig", resource, "4")
	apply(t, `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: ib-400g, annotations: {k8s.v1.cni.cncf.io/resourceName: `+resource+`}}
spec:
  config: '{"cniVersion":"1.0.0","name":"ib-400g","type":"fabric",
   "ipam":{"type":"whereabouts","range":"198.51.100.0/28"}}'
`)
	t.Cleanup(func() { k(t, "delete", "network-attachment-definition", "ib-400g") })

	t.Run("all right", func(t *testing.T) {
		asking(t, "right", networksOf("ib0"), "", 0)
		ready(t, "right")
		out, _ := ctl(t, 0, "doctor", "pod", "right", "--all")
		says(t, "all right", out, "OK    pod-annotation  default/ib0", "OK    pod-multus", "OK    pod-nad",
			", 0 to look at, 0 wrong")
	})
	t.Run("no annotation", func(t *testing.T) {
		asking(t, "bare", "", resource, 1)
		ready(t, "bare")
		out, _ := ctl(t, 3, "doctor", "pod", "default/bare")
		says(t, "no annotation", out, "FAIL  pod-annotation  no annotation k8s.v1.cni.cncf.io/networks")
	})
	t.Run("no such network", func(t *testing.T) {
		asking(t, "lost", networksOf("ib-a100"), "", 0)
		event(t, "lost", "ib-a100")
		out, _ := ctl(t, 3, "doctor", "pod", "lost")
		says(t, "no such network", out, "FAIL  pod-nad  default/ib-a100 does not exist", "FAIL  pod-event",
			"log-nad-missing", "WARN  pod-multus")
		explains(t, "lost", "log-nad-missing")
	})
	t.Run("too few resources", func(t *testing.T) {
		asking(t, "few", networksOf("ib-400g, ib-400g, ib-400g, ib-400g"), resource, 1)
		event(t, "few", "deviceID")
		out, _ := ctl(t, 3, "doctor", "pod", "few")
		says(t, "too few", out, "FAIL  pod-count  4 networks take a device of "+resource+", the pod asks for 1")
		explains(t, "few", "log-no-deviceid")
	})
	t.Run("too many for any node", func(t *testing.T) {
		asking(t, "many", networksOf("ib-400g, ib-400g, ib-400g, ib-400g, ib-400g, ib-400g, ib-400g, ib-400g"),
			resource, 8)
		event(t, "many", "Insufficient "+resource)
		explains(t, "many", "log-insufficient")
	})
	t.Run("in use", func(t *testing.T) {
		asking(t, "first", networksOf("ib0"), "", 0)
		ready(t, "first")
		asking(t, "second", networksOf("ib0"), "", 0)
		event(t, "second", "is in use by pod")
		explains(t, "second", "log-in-use")
	})
	t.Run("range full", func(t *testing.T) {
		network(
			t,
			"narrow",
			`{"cniVersion":"1.0.0","name":"narrow","type":"fabric","device":"rail1","ipam":{"type":"whereabouts",`+
				`"range":"203.0.113.0/29","exclude":["203.0.113.0/30","203.0.113.4/30"]}}`,
		)
		asking(t, "full", networksOf("narrow"), "", 0)
		event(t, "full", "Could not allocate IP in range")
		explains(t, "full", "log-range-full")
	})
	t.Run("no such pod", func(t *testing.T) {
		_, diag := ctl(t, 1, "doctor", "pod", "nowhere")
		says(t, "no such pod", diag, `fabricctl: doctor pod: get pods default/nowhere: `, "not found")
	})
	t.Run("from the host", func(t *testing.T) {
		asking(t, "inside", networksOf("ib0"), "", 0)
		ready(t, "inside")
		out, _ := ctl(t, 0, "list")
		says(t, "list", out, "default/inside", "net1", "rail0", "attached")
		id := strings.TrimPrefix(
			strings.TrimSpace(
				k(t, "get", "pod", "inside", "-o", "jsonpath={.status.containerStatuses[0].containerID}"),
			),
			"containerd://",
		)
		tasks, err := output("ctr", "-n", "k8s.io", "tasks", "list")
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^` + id + `\s+(\d+)`).FindStringSubmatch(tasks)
		if m == nil {
			t.Fatalf("no task %s in:\n%s", id, tasks)
		}
		out, _ = ctl(t, 3, "doctor", "pod", "--pid", m[1], "--all")
		says(t, "from the host", out, "pod-interface", "pod-memlock", "pod-verbs")
	})
	nothingLeft(t)
}
