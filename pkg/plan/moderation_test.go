package plan

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// An RDMA device gets its adaptive moderation back when it is home, and only where both the snapshot and the kernel
// tell of it.
func TestModeration(t *testing.T) {
	hca := func(dim *bool) *device.HCA { return &device.HCA{Index: 3, Name: "mlx5_0", DIM: dim} }
	on, off := new(true), new(false)
	for _, tt := range []struct {
		was, now *bool
		want     []string
	}{
		{on, off, []string{"rdma dev set mlx5_0 adaptive-moderation on"}},
		{off, on, []string{"rdma dev set mlx5_0 adaptive-moderation off"}},
		{on, on, nil}, {nil, on, nil}, {on, nil, nil},
	} {
		w := Where{HCA: hca(tt.now), HCASide: Host, Done: StageMTU}
		var got []string
		for _, s := range Return(w, Home{HCA: hca(tt.was)}).Steps {
			got = append(got, s.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v -> %v: %q", tt.was, tt.now, got)
		}
		w.HCASide = Pod
		for _, s := range Return(w, Home{HCA: hca(tt.was), Side: Pod}).Steps {
			t.Errorf("in a pod that goes on: %s", s)
		}
	}
}
