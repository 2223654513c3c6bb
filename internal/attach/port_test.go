package attach

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// The link of an Ethernet interface that is up is waited for. InfiniBand ports keep theirs when their interfaces move.
func TestPortAwaited(t *testing.T) {
	const judgedLater, waits, ends = "judged once it is up", "waits", "ends"
	for _, tt := range []struct {
		layer   device.LinkLayer
		flags   uint32
		carrier bool
		want    string
	}{
		{device.Ethernet, unix.IFF_UP, false, waits},
		{device.Ethernet, unix.IFF_UP, true, ends},
		{device.Ethernet, 0, false, judgedLater},
		{device.InfiniBand, unix.IFF_UP, false, ends},
	} {
		h := &device.HCA{Name: "mlx5_0", Ports: []device.Port{
			{Number: 1, LinkLayer: tt.layer, State: device.PortDown},
		}}
		n := &device.Netdev{Name: "eth1", Flags: tt.flags, Carrier: tt.carrier}
		got := judgedLater
		if r := JudgePort(&netconf.Config{Mode: netconf.ModeDevice}, h, n); r != nil && r.Awaited {
			got = waits
		} else if r != nil {
			got = ends
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
