package plan

import (
	"slices"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// settle expects these steps for an RDMA device that is on the host, and none once they are done.
func settle(t *testing.T, was, now *device.HCA, want []string) {
	t.Helper()
	w := Where{HCA: now, HCASide: Host, Done: StageMTU}
	var got []string
	for _, s := range Return(w, Home{HCA: was}).Steps {
		got = append(got, s.String())
		w = After(w, []Step{s})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v -> %v: %q", was, now, got)
	}
	if again := Return(w, Home{HCA: was}).Steps; len(again) > 0 {
		t.Errorf("%v -> %v, then again: %q", was, now, again)
	}
}

// The ports of an RDMA device count as they did before, where both the snapshot and the kernel have the mode.
func TestAutoCounters(t *testing.T) {
	hca := func(masks ...*uint32) *device.HCA {
		h := &device.HCA{Index: 3, Name: "mlx5_0"}
		for i, m := range masks {
			h.Ports = append(h.Ports, device.Port{Number: uint32(i + 1), AutoCounters: m})
		}
		return h
	}
	off, byType, both := new(uint32(0)), new(uint32(1)), new(uint32(3))
	for _, tt := range []struct {
		was, now *device.HCA
		want     []string
	}{
		{hca(off), hca(byType), []string{"rdma statistic qp set link mlx5_0/1 auto off"}},
		{hca(off, both), hca(off, off), []string{"rdma statistic qp set link mlx5_0/2 auto type,pid on"}},
		{hca(byType), hca(byType), nil}, {hca(nil), hca(byType), nil}, {hca(off), hca(nil), nil},
		{hca(), hca(byType), nil},
	} {
		settle(t, tt.was, tt.now, tt.want)
	}
}

// A RoCE port gets back on the host what its connections had, unless that is what a move leaves; and the traffic class
// of its queue pairs, where the pod has changed it.
func TestRoCEReturns(t *testing.T) {
	port := func(cm *device.CM, class *int) *device.HCA {
		p := device.Port{Number: 1, LinkLayer: device.Ethernet, CM: cm, TrafficClass: class}
		return &device.HCA{Index: 3, Name: "mlx5_0", Ports: []device.Port{p}}
	}
	const dir = "/sys/kernel/config/rdma_cm/mlx5_0"
	tos := []string{"mkdir -p " + dir + "; echo 106 > " + dir + "/ports/1/default_roce_tos"}
	for _, tt := range []struct {
		was, now *device.HCA
		want     []string
	}{
		{port(&device.CM{TOS: 106}, nil), port(nil, nil), tos},
		{port(&device.CM{RoCE: device.RoCEv2}, nil), port(nil, nil), nil},
		{port(nil, nil), port(nil, nil), nil},
		{port(&device.CM{RoCE: device.RoCEv1}, nil), port(nil, nil), []string{"mkdir -p " + dir +
			"; echo 'IB/RoCE v1' > " + dir + "/ports/1/default_roce_mode; echo 0 > " + dir +
			"/ports/1/default_roce_tos"}},
		{port(nil, new(-1)), port(nil, new(106)), []string{
			"sh -c 'echo -1 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class'",
		}},
		{port(nil, new(106)), port(nil, new(106)), nil}, {port(nil, nil), port(nil, new(106)), nil},
		{port(nil, new(106)), port(nil, nil), nil},
	} {
		settle(t, tt.was, tt.now, tt.want)
	}
}

// An RDMA device gets its adaptive moderation back when it is back on the host, where both the snapshot and the kernel
// have it.
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
