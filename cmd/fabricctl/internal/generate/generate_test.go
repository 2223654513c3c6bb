package generate

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/netconf"
)

func open(t *testing.T, names ...string) []*node.Node {
	t.Helper()
	nodes, err := machines.Nodes(names...)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func options() Options {
	return Options{
		Namespace: "ml",
		Name:      "train",
		Image:     "example.com/train:1",
		Prefix:    "nvidia.com",
		Workers:   2,
		GPUs:      -1,
		Range: netip.MustParsePrefix(
			"192.168.128.0/22",
		),
		Exclude: []netip.Prefix{netip.MustParsePrefix("192.168.128.0/28")},
	}
}

// documents are the objects of a file, which has to be YAML.
func documents(t *testing.T, text string) (out []map[string]any) {
	t.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		var v map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &v); err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		if v["apiVersion"] == nil || v["kind"] == nil || v["metadata"] == nil {
			t.Errorf("no object: %s", doc)
		}
		out = append(out, v)
	}
	return out
}

func TestGolden(t *testing.T) {
	cluster := []string{"v100", "a100", "a100-2"}
	for _, kind := range Kinds {
		for name, nodes := range map[string][]string{"h20": {"h20"}, "roce": {"roce"}, "gb200": {"gb200"},
			"cluster": cluster} {
			if name == "gb200" && kind != "fabric" && kind != "device-plugin" && kind != "perftest-pods" &&
				kind != "claim" {
				continue
			}
			check(t, kind, name, nodes, options())
		}
	}
	shared := options()
	shared.Shared = true
	check(t, "device-plugin", "gb200-shared", []string{"gb200"}, shared)
	check(t, "device-plugin", "cluster-shared", cluster, shared)
	shared.Prefix = SharedPrefix
	for _, kind := range []string{"nad", "pod", "mpijob", "perftest-pods"} {
		check(t, kind, "gb200-shared", []string{"gb200"}, shared)
		check(t, kind, "roce-shared", []string{"roce"}, shared)
	}
	check(t, "device-plugin", "roce-shared", []string{"roce"}, shared)
	check(t, "pod", "h20-shared", []string{"h20"}, shared)
	shared.Rails = 2
	check(t, "pod", "roce-shared-rails", []string{"roce"}, shared)
	shared.Rails = 0
	racks := []string{"rack1", "rack2"}
	for _, kind := range []string{"pod", "nad", "fabric", "device-plugin"} {
		check(t, kind, "racks", racks, options())
	}
	moved := []string{"v100", "v100-7"}
	check(t, "nad", "moved", moved, options())
	part := options()
	part.Rails = 2
	check(t, "pod", "h20-rails", []string{"h20"}, part)
	check(t, "mpijob", "roce-rails", []string{"roce"}, part)
	part.First, part.GPU = 2, "nvidia.com/h100"
	check(t, "pod", "roce-rails", []string{"roce"}, part)
	own := options()
	own.Prefix = AgentPrefix
	check(t, "pod", "gb200-agent", []string{"gb200"}, own)
	vfs := options()
	vfs.VFs, vfs.Prefix = true, "nvidia.com"
	for _, kind := range []string{"nad", "device-plugin", "pod"} {
		check(t, kind, "v100-vfs", []string{"v100"}, vfs)
		check(t, kind, "roce-vfs", []string{"roce"}, vfs)
	}
}

func check(t *testing.T, kind, name string, nodes []string, o Options) {
	t.Helper()
	got, err := Generate(kind, open(t, nodes...), o)
	if err != nil {
		t.Errorf("%s %s: %v", kind, name, err)
		return
	}
	documents(t, got)
	for _, line := range strings.Split(got, "\n") {
		if strings.TrimRight(line, " ") != line || strings.Contains(line, "<no value>") {
			t.Errorf("%s %s: line %q", kind, name, line)
		}
	}
	file := filepath.Join("testdata", kind+"-"+name+".golden")
	golden.Check(t, file, got)
}

// The plugin takes every network that is generated, with the device that Multus adds.
func TestNetworksAreValid(t *testing.T) {
	for _, nodes := range [][]string{{"h20"}, {"roce"}, {"v100", "a100"}} {
		text, err := Generate("nad", open(t, nodes...), options())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range documents(t, text) {
			var conf map[string]any
			spec, _ := d["spec"].(map[string]any)
			text, _ := spec["config"].(string)
			if err := json.Unmarshal([]byte(text), &conf); err != nil {
				t.Fatal(err)
			}
			conf["deviceID"] = "0000:18:00.0"
			b, err := json.Marshal(conf)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := netconf.Parse(
				b,
				netconf.Env{Command: "ADD", ContainerID: "c", IfName: "net1", Netns: "/run/netns/x"},
			); err != nil {
				t.Errorf("%v: %v\n%s", nodes, err, b)
			}
		}
	}
}

// So does it those for pods that share devices, which come without one.
func TestSharedNetworksAreValid(t *testing.T) {
	o := options()
	o.Shared = true
	text, err := Generate("nad", open(t, "gb200"), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents(t, text) {
		spec, _ := d["spec"].(map[string]any)
		config, _ := spec["config"].(string)
		if _, err := netconf.Parse(
			[]byte(config),
			netconf.Env{Command: "ADD", ContainerID: "c", IfName: "net1", Netns: "/run/netns/x"},
		); err != nil {
			t.Errorf("%v\n%s", err, config)
		}
	}
	differ := open(t, "roce", "rack1")
	differ[1].HCAs, differ[1].Name = differ[0].HCAs, "other"
	differ[1].Netdevs = nil
	for i := range differ[1].HCAs {
		h := differ[1].HCAs[i]
		h.Ports = slices.Clone(h.Ports)
		h.Ports[0].Netdev = "other" + h.Ports[0].Netdev
		differ[1].HCAs = append(slices.Clone(differ[1].HCAs[:i]), append([]node.HCA{h}, differ[1].HCAs[i+1:]...)...)
	}
	if _, err := Generate("nad", differ, o); err == nil || !strings.Contains(err.Error(), "names one interface, "+
		"and this one") {
		t.Errorf("interfaces with several names: %v", err)
	}
}

// One configuration does for all nodes where it selects on each what is right there, by ids or by addresses.
func TestOneConfiguration(t *testing.T) {
	for _, c := range []struct {
		nodes  []string
		want   int
		shared bool
	}{
		{[]string{"v100", "gb200"}, 1, false},          // other ids
		{[]string{"h20", "gb200"}, 1, false},           // the same ids, and no other port has them
		{[]string{"rack1", "rack2"}, 1, false},         // all the same
		{[]string{"a100", "a100-2"}, 2, false},         // an address is right on one, and Down on the other
		{[]string{"a100", "v100", "a100-2"}, 2, false}, // v100 with either
		{[]string{"a100", "a100-2"}, 2, true},
		{[]string{"v100", "gb200", "rack1"}, 1, true},
	} {
		o := options()
		o.Shared = c.shared
		text, err := Generate("device-plugin", open(t, c.nodes...), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(documents(t, text)); got != c.want {
			t.Errorf("%v: %d configurations, want %d:\n%s", c.nodes, got, c.want, text)
		}
	}
	o := options()
	o.Plugin = &DaemonSet{Namespace: "ops", Name: "dp", ConfigMap: "dp-conf"}
	text, err := Generate("device-plugin", open(t, "v100"), o)
	if err != nil || !strings.Contains(text, "\n  name: dp-conf\n") || !strings.Contains(text, "daemonset dp\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []string
		set   func(o *Options)
		want  string
	}{
		"no ports": {[]string{"plain"}, func(*Options) {}, "no usable RDMA port"},
		"no such fabric": {[]string{"h20"}, func(o *Options) { o.Fabric = "ib-1g" }, `no fabric "ib-1g": there are ` +
			`ib-400g`},
		"too small": {[]string{"h20"},
			func(o *Options) {
				o.Range, o.Nodes = netip.MustParsePrefix("10.0.0.0/27"),
					16
			}, "range 10.0.0.0/27 has 30 addresses to give, 64 are needed"},
		"can't be split": {[]string{"roce"}, func(o *Options) { o.Range = netip.MustParsePrefix("10.0.0.0/30") },
			"too small to be shared out to 4"},
		"all excluded": {[]string{"h20"},
			func(o *Options) { o.Exclude = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")} },
			"has 0 addresses"},
		"no range": {[]string{"h20"}, func(o *Options) { o.Range = netip.Prefix{} }, "range is missing"},
	} {
		o := options()
		c.set(&o)
		if _, err := Generate("nad", open(t, c.nodes...), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"10.0.0.0/24", 1, "10.0.0.0/24"}, {"10.0.0.0/22", 4, "10.0.0.0/24 10.0.1.0/24 10.0.2.0/24 10.0.3.0/24"},
		{"10.0.254.0/22", 3, "10.0.252.0/24 10.0.253.0/24 10.0.254.0/24"}, {"10.0.0.0/25", 3, "10.0.0.0/27 " +
			"10.0.0.32/27 10.0.0.64/27"},
		{"10.0.0.0/15", 2, "10.0.0.0/16 10.1.0.0/16"}, {"2001:db8::/62", 4, "2001:db8::/64 2001:db8:0:1::/64 " +
			"2001:db8:0:2::/64 2001:db8:0:3::/64"},
	} {
		got, err := split(netip.MustParsePrefix(c.in), c.n)
		var s []string
		for _, p := range got {
			s = append(s, p.String())
		}
		if err != nil || strings.Join(s, " ") != c.want {
			t.Errorf("%s in %d: %v, %v", c.in, c.n, s, err)
		}
	}
}
