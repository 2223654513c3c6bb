package generate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

// VFs that are there give the resource its device id and the range its size.
func TestVFsThatAreThere(t *testing.T) {
	nodes := open(t, "v100")
	pf := nodes[0].HCA("mlx5_0")
	pf.VFs, pf.MaxVFs = 4, 8
	nodes[0].HCAs = append(
		nodes[0].HCAs,
		node.HCA{Name: "mlx5_2", Kind: "VF", Parent: pf.PCI, PCI: "0000:3b:00.2", ID: "15b3:9999"},
	)
	o := options()
	o.VFs, o.Nodes = true, 10
	text, err := Generate("nad", nodes, o)
	if err != nil || !strings.Contains(text, "40 are needed now") || !strings.Contains(text, "4 of 8 on a node") {
		t.Errorf("%v\n%s", err, text)
	}
	text, err = Generate("device-plugin", nodes, o)
	if err != nil || !strings.Contains(text, `"9999"`) ||
		strings.Contains(text, "0000:3b:00.0/sriov_numvfs") {
		t.Errorf("%v\n%s", err, text)
	}
	for i := range nodes[0].HCAs {
		nodes[0].HCAs[i].MaxVFs = 0
	}
	if _, err = Generate("nad", nodes, o); err == nil || !strings.Contains(err.Error(), "SR-IOV is off") {
		t.Errorf("%v", err)
	}
	o.Fabric = "ib-1g"
	if _, err = Generate("nad", nodes, o); err == nil || !strings.Contains(err.Error(), "no fabric") {
		t.Errorf("%v", err)
	}
}

// The plugin takes what is written, and the settings that the comments name.
func TestVFNetworksAreValid(t *testing.T) {
	for machine, more := range map[string]map[string]any{
		"v100": {"guid": "02:00:00:00:00:00:00:01", "linkState": "enable"},
		"roce": {"vlan": 100, "vlanQoS": 3, "spoofchk": "off", "trust": "on", "maxTxRate": 1000},
	} {
		o := options()
		o.VFs = true
		text, err := Generate("nad", open(t, machine), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, text) {
			spec, _ := d["spec"].(map[string]any)
			config, _ := spec["config"].(string)
			var conf map[string]any
			if err := json.Unmarshal([]byte(config), &conf); err != nil {
				t.Fatal(err)
			}
			conf["deviceID"] = "0000:3b:00.2"
			for k, v := range more {
				if !strings.Contains(text, `"`+k+`"`) {
					t.Errorf("%s: no word of %s", machine, k)
				}
				conf[k] = v
			}
			b, err := json.Marshal(conf)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := netconf.Parse(
				b,
				netconf.Env{Command: "ADD", ContainerID: "c", IfName: "net1", Netns: "/run/netns/x"},
			); err != nil {
				t.Errorf("%s: %v\n%s", machine, err, b)
			}
		}
	}
}
