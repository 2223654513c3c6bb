package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// Another tenant had the VF last.
func TestAttachVFAnew(t *testing.T) {
	ib, ether := ipoibPF(), roceVF()
	ibHCA := hca("mlx5_4", device.Address{Bus: "pci", Name: "0000:3b:00.2"})
	ownMAC := etherVF()
	ownMAC.MAC = make([]byte, 6)
	resets := ibVF()
	resets.FLR = true
	for name, tt := range map[string]struct {
		cfg    netconf.VF
		vf     *device.VF
		hca    *device.HCA
		netdev *device.Netdev
		want   []string
	}{
		"InfiniBand": {vf: ibVF(), hca: ibHCA, netdev: ib, want: []string{rebound("0000:3b:00.2")}},
		"GUID": { // once is enough
			cfg: netconf.VF{GUID: new(newGUID)}, vf: ibVF(), hca: ibHCA, netdev: ib,
			want: []string{
				"ip link set ibp59s0 vf 0 node_guid 00:11:22:33:44:55:66:77",
				"ip link set ibp59s0 vf 0 port_guid 00:11:22:33:44:55:66:77",
				rebound("0000:3b:00.2"),
			},
		},
		"that can reset itself": {
			vf: resets, hca: ibHCA, netdev: ib,
			want: []string{"echo 0000:3b:00.2 > /sys/bus/pci/drivers/mlx5_core/unbind; " +
				"echo 1 > /sys/bus/pci/devices/0000:3b:00.2/reset; " +
				"echo 0000:3b:00.2 > /sys/bus/pci/drivers/mlx5_core/bind"},
		},
		"that can reset itself, with a GUID": {
			cfg: netconf.VF{GUID: new(newGUID)}, vf: resets, hca: ibHCA, netdev: ib,
			want: []string{
				"ip link set ibp59s0 vf 0 node_guid 00:11:22:33:44:55:66:77",
				"ip link set ibp59s0 vf 0 port_guid 00:11:22:33:44:55:66:77",
				"echo 0000:3b:00.2 > /sys/bus/pci/drivers/mlx5_core/unbind; " +
					"echo 1 > /sys/bus/pci/devices/0000:3b:00.2/reset; " +
					"echo 0000:3b:00.2 > /sys/bus/pci/drivers/mlx5_core/bind",
			},
		},
		"for userspace": {vf: ibVF()},
		"with the address that it had": { // not with that of the PF, which the driver has given it
			cfg: netconf.VF{MAC: ether.HWAddr}, vf: etherVF(), netdev: ether,
			want: []string{
				rebound(ether.Address.Name),
				"ip link set enp59s0f0 vf 3 mac 00:00:00:00:00:00",
				"ip link set $DEV address " + ether.HWAddr.String(),
				"ip link set enp59s0f0 vf 3 mac " + ether.HWAddr.String(),
			},
		},
		"with an address of its own": { // the driver would choose one at random
			vf: ownMAC, netdev: ether,
			want: []string{rebound(ether.Address.Name), "ip link set $DEV address " + ether.HWAddr.String()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := AttachVF(&tt.cfg, tt.vf, tt.hca, tt.netdev, true)
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), strings.TrimSpace(Print(c.Steps))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if c.Rebind != (len(tt.want) > 0) || c.Anew != (c.Rebind && tt.cfg.GUID == nil) {
				t.Errorf("Rebind is %t, Anew %t", c.Rebind, c.Anew)
			}
			givesBack(t, tt.vf, &tt.cfg, c.Set)
		})
	}
}
