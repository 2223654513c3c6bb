package attach

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// The link of an Ethernet interface that is up is waited for. InfiniBand ports keep theirs when their interfaces move.
func TestPortAwaited(t *testing.T) {
	for _, tt := range []struct {
		layer   device.LinkLayer
		flags   uint32
		carrier bool
		want    bool
	}{
		{device.Ethernet, unix.IFF_UP, false, true},
		{device.Ethernet, unix.IFF_UP, true, false},
		{device.Ethernet, 0, false, false},
		{device.InfiniBand, unix.IFF_UP, false, false},
	} {
		h := &device.HCA{Name: "mlx5_0", Ports: []device.Port{
			{Number: 1, LinkLayer: tt.layer, State: device.PortDown},
		}}
		n := &device.Netdev{Name: "eth1", Flags: tt.flags, Carrier: tt.carrier}
		r := JudgePort(&netconf.Config{Mode: netconf.ModeDevice}, h, n)
		if tt.flags == 0 && r == nil { // not judged: ADD sets it up
			continue
		}
		if r == nil || r.Awaited != tt.want {
			t.Errorf("%+v: %+v", tt, r)
		}
	}
}
