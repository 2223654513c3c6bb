package netconf

import (
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

var envADD = Env{
	Command:     "ADD",
	ContainerID: "c0ffee",
	Netns:       "/var/run/netns/pod",
	IfName:      "net1",
	Args:        "IgnoreUnknown=1;K8S_POD_NAME=p",
}

const prevResult = `{"cniVersion":"0.3.1","interfaces":[{"name":"net1","sandbox":"/var/run/netns/pod"}]}`

// delegate returns what a plugin of the file gets on stdin: the entry of its list, with name and version as libcni adds
// them, and the fields that the test adds as Multus does. An empty type keeps the peer's.
func delegate(t *testing.T, file string, plugin int, typ string, add map[string]string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(raw, &conf); err != nil {
		t.Fatal(err)
	}
	if list, ok := conf["plugins"]; ok {
		var plugins []map[string]json.RawMessage
		if err := json.Unmarshal(list, &plugins); err != nil {
			t.Fatal(err)
		}
		plugins[plugin]["name"], plugins[plugin]["cniVersion"] = conf["name"], conf["cniVersion"]
		conf = plugins[plugin]
	}
	if typ != "" {
		conf["type"] = json.RawMessage(`"` + typ + `"`)
	}
	for k, v := range add {
		conf[k] = json.RawMessage(v)
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	return stdin
}

func mustMAC(s string) net.HardwareAddr {
	hw, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return hw
}

func multus(id string) map[string]string {
	return map[string]string{"deviceID": `"` + id + `"`, "pciBusID": `"` + id + `"`}
}

func chained(id string) map[string]string {
	add := multus(id)
	add["prevResult"] = prevResult
	return add
}

func byAddress(field, id string) Selector {
	bus := "pci"
	if len(id) > 0 && id[0] == 'm' {
		bus = "auxiliary"
	}
	return Selector{Kind: ByAddress, Field: field, Value: id, Address: device.Address{Bus: bus, Name: id}}
}

// peerFiles lists what each file is to mean. The type is the peer's.
var peerFiles = []struct {
	file   string
	plugin int
	add    map[string]string // what Multus and libcni add
	want   Config
}{
	{"rdma-chained.json", 1, chained("0000:03:00.4"), Config{
		CNIVersion: "0.3.1", Name: "sriov-rdma-net", Type: "rdma", Mode: ModeRDMA, RDMA: RDMAAuto,
		Selector: byAddress("deviceID", "0000:03:00.4"), PrevResult: []byte(prevResult),
	}},
	{"rdma-chained.json", 0, multus("0000:03:00.4"), Config{
		CNIVersion: "0.3.1", Name: "sriov-rdma-net", Type: "sriov", Mode: ModeDevice, RDMA: RDMAAuto,
		Selector: byAddress("deviceID", "0000:03:00.4"), IPAM: IPAM{"host-local"},
	}},
	{"rdma-debug.json", 1, map[string]string{"prevResult": prevResult}, Config{
		CNIVersion: "0.4.0", Name: "rdma-debug", Type: "rdma", Mode: ModeRDMA, RDMA: RDMAAuto,
		Selector: byAddress("deviceID", "0000:03:00.4"), PrevResult: []byte(prevResult), LogLevel: "debug",
		Ignored: []string{"args.cni.rdmaDeviceName"},
	}},
	{
		"ib-sriov.json",
		0,
		map[string]string{
			"deviceID":      `"0000:3b:00.2"`,
			"pciBusID":      `"0000:3b:00.2"`,
			"runtimeConfig": `{"infinibandGUID":"02:00:00:00:00:00:00:01"}`,
			"args":          `{"cni":{"guid":"02:00:00:00:00:00:00:02"}}`,
		},
		Config{
			CNIVersion: "0.3.1",
			Name:       "sriov-network",
			Type:       "ib-sriov",
			Mode:       ModeDevice,
			RDMA:       RDMAExclusive,
			Selector: byAddress(
				"deviceID",
				"0000:3b:00.2",
			),
			VF:   VF{GUID: new(device.GUID(0x0200000000000001)), LinkState: "enable"},
			IPAM: IPAM{"host-local"},
			PKey: 0x8005,
		},
	},
	{
		"ib-sriov-kubernetes.json",
		0,
		multus("0000:3b:00.2"),
		Config{
			CNIVersion: "0.3.1",
			Name:       "ib-sriov-network",
			Type:       "ib-sriov",
			Mode:       ModeDevice,
			RDMA:       RDMANone,
			Selector:   byAddress("deviceID", "0000:3b:00.2"),
			VF: VF{
				GUID:              new(device.GUID(0x0200000000000001)),
				LinkState:         "auto",
				IBKubernetes:      true,
				IBKubernetesState: "configured",
				VFIO:              true,
			},
			PKey:    0xffff,
			Ignored: []string{"publishPfGuid"},
		},
	},
	{
		"ipoib.json",
		0,
		nil,
		Config{
			CNIVersion: "0.3.1",
			Name:       "ipoib-net",
			Type:       "ipoib",
			Mode:       ModeIPoIB,
			RDMA:       RDMANone,
			Master:     "ibs3f1",
			MTU:        2044,
			IPAM:       IPAM{"nv-ipam"},
		},
	},
	{
		"ipoib.json",
		0,
		multus("3"),
		Config{ // beside the RDMA shared device plugin
			CNIVersion: "0.3.1",
			Name:       "ipoib-net",
			Type:       "ipoib",
			Mode:       ModeIPoIB,
			RDMA:       RDMANone,
			Master:     "ibs3f1",
			MTU:        2044,
			IPAM:       IPAM{"nv-ipam"},
			Ignored:    []string{"deviceID", "pciBusID"},
		},
	},
	{"host-device.json", 0, map[string]string{"pciBusID": `"0000:03:02.0"`}, Config{
		CNIVersion: "0.3.1", Name: "hostdev-net", Type: "host-device", Mode: ModeDevice, RDMA: RDMAAuto,
		Selector: byAddress("pciBusID", "0000:03:02.0"), IPAM: IPAM{"whereabouts"},
	}},
	{"host-device-name.json", 0, multus("0000:03:02.0"), Config{
		CNIVersion: "1.0.0", Name: "hostdev-name", Type: "host-device", Mode: ModeDevice, RDMA: RDMAAuto,
		Selector: Selector{Kind: ByName, Field: "device", Value: "enp59s0f0np0"},
		DNS:      DNS{[]string{"10.1.0.1"}, "example.com", []string{"example.com"}, []string{"ndots:2"}},
		Ignored:  []string{"deviceID", "pciBusID"},
	}},
	{
		"host-device-hwaddr.json",
		0,
		nil,
		Config{
			CNIVersion: "1.0.0",
			Name:       "hostdev-mac",
			Type:       "host-device",
			Mode:       ModeDevice,
			RDMA:       RDMAAuto,
			Selector: Selector{
				Kind:   ByHWAddr,
				Field:  "hwaddr",
				Value:  "B8:59:9F:00:00:01",
				HWAddr: mustMAC("b8:59:9f:00:00:01"),
			},
		},
	},
	{"host-device-kernelpath.json", 0, nil, Config{
		CNIVersion: "1.0.0", Name: "hostdev-path", Type: "host-device", Mode: ModeDevice, RDMA: RDMAAuto,
		Selector: Selector{Kind: ByKernelPath, Field: "kernelpath", Value: "/sys/devices/pci0000:00/0000:00:1f.6"},
	}},
	{"host-device-auxiliary.json", 0, multus("mlx5_core.sf.4"), Config{
		CNIVersion: "1.0.0", Name: "hostdev-sf", Type: "host-device", Mode: ModeDevice, RDMA: RDMAAuto,
		Selector: byAddress("runtimeConfig.deviceID", "mlx5_core.sf.4"), IPAM: IPAM{"dhcp"},
	}},
	{
		"sriov.json",
		0,
		map[string]string{
			"deviceID":      `"0000:3b:00.2"`,
			"pciBusID":      `"0000:3b:00.2"`,
			"runtimeConfig": `{"mac":"CA:FE:C0:FF:EE:00"}`,
			"resourceName":  `"intel.com/x"`,
		},
		Config{
			CNIVersion: "0.3.1",
			Name:       "sriov-net",
			Type:       "sriov",
			Mode:       ModeDevice,
			RDMA:       RDMAAuto,
			Selector:   byAddress("deviceID", "0000:3b:00.2"),
			VF: VF{
				LinkState: "enable",
				MAC:       mustMAC("ca:fe:c0:ff:ee:00"),
				VLAN:      new(1000),
				VLANQoS:   new(4),
				VLANProto: "802.1ad",
				MinTxRate: new(100),
				MaxTxRate: new(200),
				SpoofChk:  new(false),
				Trust:     new(true),
			},
			IPAM:     IPAM{"whereabouts"},
			LogLevel: "debug",
			LogFile:  "/tmp/sriov.log",
		},
	},
	{
		"sriov-minimal.json",
		0,
		multus("0000:3b:00.2"),
		Config{ // any case of a key, as encoding/json took it in sriov
			CNIVersion: "0.3.1",
			Name:       "sriov-min",
			Type:       "sriov",
			Mode:       ModeDevice,
			RDMA:       RDMAAuto,
			Selector:   byAddress("deviceID", "0000:3b:00.2"),
			VF:         VF{MAC: mustMAC("ca:fe:c0:ff:ee:00"), VLAN: new(0), VLANQoS: new(0), VLANProto: "802.1q"},
			LogLevel:   "error",
		},
	},
}

// TestPeers parses the files of the peers' users twice: with only the type changed, and as they are (the plugin
// installed under the peer's name). Both have to mean the same.
func TestPeers(t *testing.T) {
	for _, c := range peerFiles {
		t.Run(c.file, func(t *testing.T) {
			for _, typ := range []string{"", "fabric"} {
				want, stdin := c.want, delegate(t, c.file, c.plugin, typ, c.add)
				if c.add["deviceID"] != "" && c.add["pciBusID"] != "" && want.Selector.Kind == ByAddress {
					want.Injected = want.Selector.Value
				}
				if want.Raw = stdin; typ != "" {
					want.Type, want.ModeDerived = typ, true
				}
				compare(t, stdin, envADD, &want)
			}
		})
	}
}

func compare(t *testing.T, stdin []byte, env Env, want *Config) {
	t.Helper()
	if want.Pod = (Pod{Name: "p"}); env.Command == "GC" { // which has no arguments
		want.Pod = Pod{}
	}
	got, err := Parse(stdin, env)
	if err != nil {
		t.Errorf("%s: %v", stdin, err)
		return
	}
	sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), sorted); diff != "" {
		t.Errorf("%s:\n%s", stdin, diff)
	}
}

// TestOwn parses files that use our own fields.
func TestOwn(t *testing.T) {
	guid := device.GUID(0x0002c90300fa0011)
	gc := envADD
	gc.Command = "GC"
	for _, c := range []struct {
		file string
		env  Env
		want Config
	}{
		{"fabric-full.json", envADD, Config{
			CNIVersion: "1.1.0", Name: "ib-a100", Type: "fabric", Mode: ModeDevice, RDMA: RDMAExclusive,
			Selector: Selector{Kind: ByName, Field: "device", Value: "ibs108"}, MTU: 4092, RDMAName: "mlx5_rail0",
			TOS: new(uint8(106)), RoCEMode: "v2", Class: new(uint8(96)), AllowDown: true, SourceBased: true,
			VF: VF{GUID: &guid, LinkState: "enable", MAC: mustMAC("02:00:00:00:00:02"), MinTxRate: new(0),
				MaxTxRate: new(0)},
			IPAM: IPAM{"whereabouts"}, IPs: []netip.Prefix{netip.MustParsePrefix("192.168.10.7/24"),
				netip.MustParsePrefix("fd00::7/128")},
		}},
		{"fabric-ipoib.json", envADD, Config{
			CNIVersion: "1.1.0", Name: "storage", Type: "fabric", Mode: ModeIPoIB, RDMA: RDMANone, Master: "ibs108",
			PKey: 0x8001, IPoIBMode: "datagram", Umcast: new(true), MTU: 2044,
		}},
		{"fabric-gc.json", gc, Config{
			CNIVersion: "1.1.0", Name: "ib-a100", Type: "fabric", Mode: ModeDevice, ModeDerived: true, RDMA: RDMAAuto,
			ValidAttachments: []Attachment{{"c1", "net1"}, {"c3", "ib0"}},
		}},
	} {
		stdin, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		c.want.Raw = stdin
		compare(t, stdin, c.env, &c.want)
	}
}
