package network_test

import (
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/agent/network"
	"github.com/fabric-cni/fabric-cni/internal/agent/survey"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

// A fabric without devices says which device came nearest and why it is not the fabric's.
func TestUnmatched(t *testing.T) {
	match := func(m fabrics.Match) fabrics.Fabric { return fabrics.Fabric{Name: "f", Match: m} }
	for name, tt := range map[string]struct {
		fabric fabrics.Fabric
		want   string // in the message; empty: no message
	}{
		"has devices": {match(fabrics.Match{RateGb: 100}), ""},
		"rate": {match(fabrics.Match{LinkLayer: "InfiniBand", RateGb: 112}), "matches no device of this node: " +
			"the nearest one is mlx5_4 (0000:86:00.0), but its rate is 100 Gb/s, not 112"},
		"prefix": {match(fabrics.Match{SubnetPrefix: device.DefaultSubnetPrefix + 1}),
			"nearest one is mlx5_0 (0000:3b:00.0), but its subnet prefix is fe80::, not fe80:0:0:1::"},
		"name": {match(fabrics.Match{RateGb: 100, Devices: []string{"ibs11?"}}), ""},
		"no name": {match(fabrics.Match{RateGb: 100, Devices: []string{"ens*", "roce?"}}), "mlx5_4 (0000:86:00.0), " +
			"but none of its names 0000:86:00.0, pci/0000:86:00.0, mlx5_4, ibs112 fits ens*, roce?"},
		"layer": {match(fabrics.Match{LinkLayer: "Ethernet"}), "nearest one is mlx5_bond_0 (0000:af:00.0), " +
			"but the node policy keeps it on the host: carries the default route"},
		"layer and rate": {match(fabrics.Match{LinkLayer: "Ethernet", RateGb: 100}),
			"mlx5_4 (0000:86:00.0), but it is InfiniBand, not Ethernet"},
		"taken": {match(fabrics.Match{Devices: []string{"mlx5_0"}}),
			"mlx5_0 (0000:3b:00.0), but fabric other takes precedence"},
		"down": {match(fabrics.Match{RateGb: 400, Devices: []string{"mlx5_3"}}), "mlx5_3 (0000:5e:00.0), " +
			"but its rate is 10 Gb/s, not 400, and its port is Down (Polling), which hides its rate"},
		"not discovered": {match(fabrics.Match{Discovered: "ib-400g"}),
			"nearest one is mlx5_0 (0000:3b:00.0), but it is discovered in ib-200g, not in ib-400g"},
	} {
		t.Run(name, func(t *testing.T) {
			devices := node()
			devices[1].RateGb = 10 // what a port that is down reports
			network.Discover(devices, nil)
			fabrics := []fabrics.Fabric{
				{Name: "other", Match: fabrics.Match{Devices: []string{"mlx5_0"}}}, tt.fabric,
			}
			if name == "prefix" || name == "layer" {
				fabrics = fabrics[1:]
			}
			got := network.Unmatched(&tt.fabric, devices, network.Assign(fabrics, devices, nil))
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	f := fabrics.Fabric{Name: "f", Match: fabrics.Match{RateGb: 200}}
	if got := network.Unmatched(&f, nil, nil); got != "" {
		t.Errorf("a node without devices: %q", got)
	}
	f.Match = fabrics.Match{Discovered: "ib-400g"}
	got := network.Unmatched(&f, []survey.Device{{}}, nil)
	if !strings.Contains(got, "it is discovered in no fabric, not in ib-400g") {
		t.Errorf("nothing discovered: %q", got)
	}
}
