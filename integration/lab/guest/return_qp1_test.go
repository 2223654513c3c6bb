//go:build labguest

package guest

import (
	"os"
	"strings"
	"testing"
)

// loseQP1 makes the next registration of an RDMA device fail as a kill within the move does: without queue pair 1.
func loseQP1(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/sys/module/fakeib/parameters/mad_fail", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

func hasQP1(t *testing.T, hca string) bool {
	t.Helper()
	out, err := InHost().Command("rdma", "resource", "show", "qp", "link", hca+"/1")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(out, "type GSI")
}

// A DEL was killed within the move of the RDMA device, which is home without queue pair 1: the next one, and that DEL
// itself, moves it once more.
func TestReturnLostQP1(t *testing.T) {
	S1(t)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108"}))
	a.add(t)
	loseQP1(t)
	a.del(t)
	if !hasQP1(t, "mlx5_0") {
		t.Error("home without queue pair 1")
	}
	a.add(t)
	loseQP1(t)
	if err := a.pod.Do(func() error { return MoveRDMA("mlx5_0", "/proc/1/ns/net") }); err != nil {
		t.Fatal(err)
	}
	if hasQP1(t, "mlx5_0") {
		t.Fatal("it has queue pair 1")
	}
	a.del(t)
	if !hasQP1(t, "mlx5_0") {
		t.Error("home without queue pair 1")
	}
}
