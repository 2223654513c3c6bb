package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/device"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

const newGUID device.GUID = 0x0011223344556677

func etherVF() *device.VF {
	return &device.VF{
		PF:      device.Address{Bus: "pci", Name: "0000:3b:00.0"},
		PFName:  "enp59s0f0",
		Index:   3,
		Driver:  "mlx5_core",
		VFAttrs: device.VFAttrs{MAC: []byte{2, 0, 0, 0, 0, 9}, MaxTxRate: 500, SpoofChk: new(true), Trust: new(false)},
	}
}

func ibVF() *device.VF {
	return &device.VF{
		PF:      device.Address{Bus: "pci", Name: "0000:3b:00.0"},
		PFName:  "ibp59s0",
		Index:   0,
		Driver:  "mlx5_core",
		IB:      true,
		VFAttrs: device.VFAttrs{NodeGUID: new(device.GUID(0)), PortGUID: new(device.GUID(0))},
	}
}

// allOfEthernet asks for everything that an Ethernet VF has.
var allOfEthernet = netconf.VF{
	LinkState: "enable",
	MAC:       []byte{2, 0, 0, 0, 0, 1},
	VLAN:      new(1000),
	VLANQoS:   new(4),
	VLANProto: "802.1ad",
	MinTxRate: new(100),
	MaxTxRate: new(200),
	SpoofChk:  new(false),
	Trust:     new(true),
}

func TestAttachVF(t *testing.T) {
	ib := ipoibPF()
	ib.Address = device.Address{Bus: "pci", Name: "0000:3b:00.2"}
	ibHCA := hca("mlx5_4", ib.Address)
	owner, ok := device.GUIDOf(ib.HWAddr)
	if !ok {
		t.Fatal("the netdev has no GUID")
	}
	ownHCA := *ibHCA
	ownHCA.NodeGUID = owner
	ether := roceVF()
	tests := map[string]struct {
		cfg    netconf.VF
		vf     *device.VF
		hca    *device.HCA
		netdev *device.Netdev
		want   []string
	}{
		"nothing asked": {vf: etherVF(), netdev: ether},
		"everything of Ethernet": {
			cfg:    allOfEthernet,
			vf:     etherVF(),
			netdev: ether,
			want: []string{
				"ip link set enp59s0f0 vf 3 state enable",
				"ip link set enp59s0f0 vf 3 vlan 1000 qos 4 proto 802.1ad",
				"ip link set enp59s0f0 vf 3 mac 00:00:00:00:00:00",
				"ip link set $DEV down",
				"ip link set $DEV address 02:00:00:00:00:01",
				"ip link set enp59s0f0 vf 3 mac 02:00:00:00:00:01",
				"ip link set enp59s0f0 vf 3 max_tx_rate 200 min_tx_rate 100",
				"ip link set enp59s0f0 vf 3 spoofchk off",
				"ip link set enp59s0f0 vf 3 trust on",
			},
		},
		"as it is": {
			cfg: netconf.VF{
				LinkState: "auto", MAC: []byte{2, 0, 0, 0, 0, 9}, VLAN: new(0), MaxTxRate: new(500),
				SpoofChk: new(true), Trust: new(false),
			},
			vf:     etherVF(),
			netdev: ether,
		},
		"one rate keeps the other": {
			cfg: netconf.VF{MinTxRate: new(100)}, vf: etherVF(), netdev: ether,
			want: []string{"ip link set enp59s0f0 vf 3 max_tx_rate 500 min_tx_rate 100"},
		},
		"GUID": {
			cfg: netconf.VF{GUID: new(newGUID), LinkState: "enable"}, vf: ibVF(), hca: ibHCA, netdev: ib,
			want: []string{
				"ip link set ibp59s0 vf 0 state enable",
				"ip link set ibp59s0 vf 0 node_guid 00:11:22:33:44:55:66:77",
				"ip link set ibp59s0 vf 0 port_guid 00:11:22:33:44:55:66:77",
				rebound("0000:3b:00.2"),
			},
		},
		"GUID that it has": {cfg: netconf.VF{GUID: &owner}, vf: ibVF(), hca: &ownHCA, netdev: ib},
		"GUID for userspace": {
			cfg: netconf.VF{GUID: new(newGUID)}, vf: ibVF(),
			want: []string{
				"ip link set ibp59s0 vf 0 node_guid 00:11:22:33:44:55:66:77",
				"ip link set ibp59s0 vf 0 port_guid 00:11:22:33:44:55:66:77",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := AttachVF(&tt.cfg, tt.vf, tt.hca, tt.netdev, false)
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), strings.TrimSpace(Print(c.Steps))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if want := strings.Contains(Print(c.Steps), "unbind"); c.Rebind != want {
				t.Errorf("Rebind is %t", c.Rebind)
			}
			givesBack(t, tt.vf, &tt.cfg, c.Set)
		})
	}
}

// rebound is how a plan shows that a VF's driver is bound again.
func rebound(pci string) string {
	const dir = " > /sys/bus/pci/drivers/mlx5_core/"
	return "echo " + pci + dir + "unbind; echo " + pci + dir + "bind"
}

// givesBack: what was set goes back, in the opposite order; what was not is left alone.
func givesBack(t *testing.T, vf *device.VF, cfg *netconf.VF, set []device.VFAttr) {
	t.Helper()
	now := vf.VFAttrs
	if got := RestoreVF(vf, set, &now); len(got) > 0 {
		t.Errorf("nothing has changed, and would be restored:\n%s", Print(got))
	}
	now, _ = wantedVF(cfg, &vf.VFAttrs)
	back := RestoreVF(vf, set, &now)
	if len(back) != len(set) {
		t.Fatalf("%d of %v would be restored:\n%s", len(back), set, Print(back))
	}
	for i, s := range back {
		if want := "set-vf-" + string(set[len(set)-1-i]); s.Kind() != want {
			t.Errorf("%s comes in place %d, want %s", s.Kind(), i, want)
		}
	}
}
