package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const fabricShared = "ib-shared"

// shareNode puts the node in shared RDMA mode. Its policy gives one device away, which the Fabric for shared nodes has.
func shareNode(t *testing.T, n *LabNode) {
	t.Helper()
	first := n.Rails[0]
	on(t, n, "rdma system set netns shared\n"+ // no pod with a network namespace is there
		"mkdir -p /etc/cni/fabric.d && echo '{\"devices\":[\""+first.PCI+"\"]}' >/etc/cni/fabric.d/policy.json")
	fabricsOf(t, "shared")
	k(t, "patch", "fabric", fabricShared, "--type=merge",
		"-p", `{"spec":{"precedence":1,"deviceFiles":["UMAD"],"match":{"devices":["`+first.Netdev+`"]}}}`)
	eventually(t, "shares are offered", prints("16",
		"get", "node", n.Name, "-o",
		`jsonpath={.status.allocatable.fabric\.dev/`+fabricShared+"}"))
	deployed(t)
	stage(t, "in shared mode")
}

// Eight pods on one HCA of a node in shared RDMA mode: each has an IPoIB child and the device files.
func shared(t *testing.T, n *LabNode) {
	const pods = 8
	names := make([]string, pods)
	for i := range names {
		names[i] = fmt.Sprintf("s%d-%s", i+1, n.Name)
	}
	for both := range slices.Chunk(names, 2) { // more at once take longer than one after the other, see mistakes
		for _, name := range both {
			railPod(t, name, fabricShared, 1, n.Name)
		}
		ready(t, both...)
	}
	var addresses []string
	for _, name := range names {
		s := status(t, name)
		if len(s) != 2 || s[1].Interface != "net1" || len(s[1].IPs) != 1 ||
			!strings.HasPrefix(s[1].IPs[0], "198.19.") {
			t.Fatalf("network-status of %s: %+v", name, s)
		}
		addresses = append(addresses, s[1].IPs[0])
	}
	stage(t, "all pods are Ready")
	slices.Sort(addresses)
	if len(slices.Compact(addresses)) != pods {
		t.Errorf("addresses: %v", addresses)
	}
	children := on(t, n, `for ns in $(ls /run/netns); do ip -n $ns -d -o link show dev net1; done`)
	if strings.Count(children, "link/infiniband") != pods || strings.Count(children, "ipoib pkey") != pods {
		t.Errorf("children:\n%s", children)
	}
	if out := k(t, "exec", names[0], "--", "ls", "/dev/infiniband"); len(strings.Fields(out)) != 3 ||
		!strings.Contains(out, "umad") {
		t.Errorf("device files: %s", out) // uverbs of one HCA, umad as the Fabric says, and rdma_cm
	}
	gone(t, names...)
	stage(t, "all pods are gone")
}
