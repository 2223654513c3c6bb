//go:build labguest

package guest

import (
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
