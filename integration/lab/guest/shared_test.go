//go:build labguest

package guest

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Fact 1: in shared mode no RDMA device can be moved, and every pod sees all of them.
func TestSharedRefusesMoves(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 2}.Load(t)
	pod := NewPod(t, "pod")
	wantErrno(t, MoveRDMA("mlx5_0", pod.Path), unix.EOPNOTSUPP)
	if got := pod.Sysfs(t, "/sys/class/infiniband"); len(got) != 2 {
		t.Errorf("the pod's sysfs has %v, want both HCAs", got)
	}
}

// In shared mode the netdev is all that moves, and it survives.
func TestSharedNetdevMoves(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	host := Host(t)
	pods := []*Pod{NewPod(t, "pod0"), NewPod(t, "pod1")}
	for i, pod := range pods {
		if err := MoveLink(mustLink(t, host, []string{"ib0", "ib1"}[i]).Index, pod.Path, "net1"); err != nil {
			t.Fatal(err)
		}
		up(t, pod.Handle(t), "net1", []string{"10.0.0.1/24", "10.0.0.2/24"}[i])
	}
	ping(t, pods[0], "10.0.0.2")
}

// An IPoIB child that the pod has made ends with the attachment: the RDMA device has not moved, which would have
// destroyed it, and with the pod's namespace it comes to the host.
func TestSharedChildOfThePod(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 2}.Load(t)
	before := Unchanged(t)
	for _, gone := range []bool{false, true} {
		pod := NewPod(t, fmt.Sprintf("pod-%t", gone))
		child := config{"mode": "ipoib", "master": "ib1", "ipam": static("10.0.1.1/24")}
		other := interfaceOf(pod, "net2", network(child))
		other.add(t)
		a := interfaceOf(pod, "net1", network(config{"device": "ib0", "ipam": static("10.0.0.1/24")}))
		a.add(t)
		pod.sh(t, "ip link add link net1 name c5 type ipoib pkey 0x8002; ip link set c5 up")
		if gone {
			pod.Delete(t)
		}
		a.del(t)
		if !gone {
			pod.link(t, "net2") // the other attachment's child is not this device's
			if out := pod.sh(t, "ip -o link"); strings.Contains(out, "c5") {
				t.Errorf("the child is left in the pod:\n%s", out)
			}
		}
		other.del(t)
		Same(t, before)
	}
}
