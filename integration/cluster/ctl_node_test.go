package cluster

import (
	"path/filepath"
	"strings"
	"testing"
)

// inAgent runs fabricctl in the agent's container on a node of the lab. It says its status, as kubectl exec does not
// pass it on.
func inAgent(t *testing.T, n *LabNode, args ...string) string {
	t.Helper()
	pod := k(t, "-n", "fabric-system", "get", "pods", "-l", "app.kubernetes.io/name=fabric-agent", "--field-selector",
		"spec.nodeName="+n.Name, "-o", "jsonpath={.items[0].metadata.name}")
	out, err := outputWith(
		"",
		"kubectl",
		append([]string{"-n", "fabric-system", "exec", pod, "-c", "agent", "--", "fabricctl"}, args...)...)
	if err != nil && !strings.Contains(out, "command terminated with exit code 3") {
		t.Errorf("fabricctl %v: %v: %s", args, err, out)
	}
	return out
}

// fabricctl where HCAs are: what the node's own agent says, and the Fabrics of the cluster, give a pod that gets all
// rails, and every question about it has the right answer.
func ctlNode(t *testing.T, n *LabNode) {
	eventually(t, "the inventory of "+n.Name+" is there, and its network", func() error {
		out, err := output("kubectl", "get", "fabricnode", n.Name, "-o",
			"jsonpath={.status.inventory}{.status.fabrics}")
		if err == nil && strings.Count(out, `"`+n.Rails[3].HCA+`"`) < 2 {
			err = textError(out)
		}
		if err == nil {
			out, err = output("kubectl", "get", "fabric", fabric200, "-o", "jsonpath={.status.published}")
		}
		if err == nil && !strings.Contains(out, "default") {
			err = textError(out)
		}
		return err
	})
	fabrics, _ := ctl(t, 0, "generate", "fabric", "--cluster", "--range", "10.97.0.0/24")
	says(t, "generate fabric --cluster", fabrics, "name: "+fabric200+"\n", "attachment: WholeDevice",
		"rdmaMode: Exclusive", "which needs 4;", "# Not in any Fabric: "+n.Name+" mlx5_5:1: Down", "mlx5_6:1: Down")
	judged(t, "fabric --cluster", fabrics)
	table := inAgent(t, n, "discover")
	says(t, "discover", table, "node "+n.Name, "6 RDMA devices, RDMA mode exclusive", "fabric "+fabric200)
	for _, r := range n.Rails {
		says(t, "discover", table, r.HCA, r.Netdev, r.PCI)
	}
	says(t, "doctor host", inAgent(t, n, "doctor", "host", "--all"), "WARN  host-port-state  mlx5_5:1",
		"OK    host-stranded", "OK    host-guid")
	stage(t, "discovered")

	// The pod as it is generated, but for the image and the node.
	var workload string
	// What kubelet counts already the agent may have to report yet.
	until(t, "most nodes have four healthy devices", func() (err error) { // others work on the other node meanwhile
		workload, err = output(filepath.Join(current.run, "bin/fabricctl"), "generate", "pod", "--cluster",
			"--gpus", "0", "--image", "localhost/box:e2e")
		if err == nil && !strings.Contains(workload, "fabric.dev/"+fabric200+": 4") {
			err = textError(workload)
		}
		return err
	})
	apply(t,
		strings.Replace(workload, "\nspec:\n", "\nspec:\n  nodeSelector: {kubernetes.io/hostname: "+n.Name+"}\n", 1))
	t.Cleanup(func() { gone(t, "rdma-test") })
	ready(t, "rdma-test")
	stage(t, "the generated pod is Ready")
	hasRails(t, n, "rdma-test")
	out, _ := ctl(t, 0, "doctor", "pod", "rdma-test", "--all")
	says(t, "doctor pod", out, "OK    pod-annotation", "OK    pod-multus", "OK    pod-nad",
		"OK    pod-count  4 of fabric.dev/"+fabric200, ", 0 wrong")
	list := inAgent(t, n, "list")
	if got := strings.Count(list, "default/rdma-test"); got != 4 || strings.Count(list, "attached") != 4 {
		t.Errorf("list has %d attachments:\n%s", got, list)
	}
	table = inAgent(t, n, "discover")
	if got := strings.Count(table, "default/rdma-test"); got != 4 {
		t.Errorf("discover shows %d devices in the pod:\n%s", got, table)
	}
	says(t, "discover with the devices in a pod", table, "fabric "+fabric200, "6 RDMA devices")
	gone(t, "rdma-test")
}
