package migrate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/fabric-cni/fabric-cni/internal/node"
	"github.com/fabric-cni/fabric-cni/internal/testkit/golden"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
)

func open(t *testing.T, names ...string) []*node.Node {
	t.Helper()
	nodes, err := machines.Nodes(names...)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func read(t *testing.T, text string) []Object {
	t.Helper()
	list, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What the objects of both operators become, with and without nodes to try the selectors on.
func TestConvert(t *testing.T) {
	b, err := os.ReadFile("testdata/operators.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"fabric":       {To: ToFabric, Prefix: "nvidia.com"},
		"fabric-nodes": {To: ToFabric, Prefix: "nvidia.com", Nodes: open(t, "h20", "roce")},
		"nad":          {To: ToNAD, Prefix: "openshift.io"},
	} {
		out, err := Convert(read(t, string(b)), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := Text(out, []string{"first"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden.Check(t, "testdata/"+name+".yaml", text)
		for d := yamlv3.NewDecoder(strings.NewReader(text)); ; {
			var v any
			if err := d.Decode(&v); err != nil {
				if err.Error() != "EOF" {
					t.Errorf("%s: no YAML: %v", name, err)
				}
				break
			}
		}
	}
}

const policy = `{apiVersion: mellanox.com/v1alpha1, kind: NicClusterPolicy, metadata: {name: p}, spec: ` +
	`{sriovDevicePlugin: {config: '{"resourceList":[{"resourceName":"r","selectors":%s}]}'}}}
---
{apiVersion: mellanox.com/v1alpha1, kind: HostDeviceNetwork, metadata: {name: net}, spec: {resourceName: r}}
`

// The match of a Fabric takes the ports that the device plugin's selectors took on these nodes, and no others.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		selectors string
		nodes     []string
		devices   string
		doubt     string
	}{
		{`{"vendors":["15b3"],"devices":["1021"]}`, []string{"h20"},
			"0000:18:00.0 0000:4b:00.0 0000:7e:00.0 0000:b1:00.0", ""},
		{`{"vendors":["15b3"],"devices":["101b"]}`, []string{"a100", "a100-2"}, "0000:21:00.0 0000:61:00.0", ""},
		{`{"pfNames":["ib0"]}`, []string{"v100"}, "0000:3b:00.0", ""},
		{`{"pfNames":["ib0"]}`, nil, "ib0", ""},
		{`{"linkTypes":["infiniband"]}`, nil, "", ""},
		{`{"linkTypes":["infiniband"],"devices":["1021"]}`, nil, "", "selects by device ID too"},
		{`{"devices":["1021"]}`, nil, "", "match is a placeholder, because a Fabric does not select by device ID"},
		{`{"isRdma":true}`, nil, "", "match is a placeholder"},
		{`{"vendors":["8086"]}`, []string{"h20"}, "", "selects no port of these nodes"},
		{`{"pfNames":["ens1f0#0-3"]}`, nil, "", "virtual functions (ens1f0#0-3)"},
		{`{"ddpProfiles":["x"],"pfNames":["ib0"]}`, nil, "ib0", "selector ddpProfiles"},
		{`[{"pfNames":["ib0"]},{"pfNames":["ib1"]}]`, nil, "ib0", "a list of selectors"},
	} {
		list := read(t, fmt.Sprintf(policy, c.selectors))
		out, err := Convert(list, Options{To: ToFabric, Prefix: "nvidia.com", Nodes: open(t, c.nodes...)})
		if err != nil {
			t.Errorf("%s: %v", c.selectors, err)
			continue
		}
		i := slices.IndexFunc(out, func(o Output) bool { return o.From == "HostDeviceNetwork net" })
		f, ok := out[i].Object.(*fabric)
		if !ok {
			t.Errorf("%s: no Fabric", c.selectors)
			continue
		}
		if got := strings.Join(f.Spec.Match.Devices, " "); got != c.devices {
			t.Errorf("%s: devices %s, want %s", c.selectors, got, c.devices)
		}
		doubts := strings.Join(out[i].Doubts, "; ")
		if !strings.Contains(doubts, c.doubt) || c.doubt == "" && doubts != "" {
			t.Errorf("%s: doubts %q, want %q", c.selectors, doubts, c.doubt)
		}
	}
}

// A NicNodePolicy gives the Fabric its nodes. Of two networks with one resource the first one's Fabric has the devices.
func TestNodePolicies(t *testing.T) {
	const node = `{apiVersion: mellanox.com/v1alpha1, kind: NicNodePolicy, metadata: {name: %s}, spec: ` +
		`{nodeSelector: {pool: %[1]s}, sriovDevicePlugin: {config: ` +
		`'{"resourceList":[{"resourceName":"r","selectors":{"pfNames":["%s"]}}]}'}}}` + "\n---\n"
	const net = `{apiVersion: mellanox.com/v1alpha1, kind: HostDeviceNetwork, metadata: {name: %s}, spec: ` +
		`{resourceName: r, networkNamespace: %s}}` + "\n---\n"
	list := read(t, fmt.Sprintf(node, "gpu", "ib0")+fmt.Sprintf(node, "old", "ib1")+fmt.Sprintf(net, "a", "ml")+
		fmt.Sprintf(net, "b", "hpc"))
	out, err := Convert(list, Options{To: ToFabric, Prefix: "nvidia.com"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := Text(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/node-policies.yaml", text)
}

// What can't be converted is refused, with the object and the field.
func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`kind: X`: "want apiVersion and kind",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: A B}}`: `metadata.name "A B"`,
		`{apiVersion: v1, kind: Pod}`: "no object of the network operator",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}}`:                              "spec.master is missing",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}, spec: {master: 7}}`:           "spec.master: want a string",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}, spec: {master: ib0, mtu: 7}}`: "mtu",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}, spec: {master: ib0, mtu: 1.5}}`: "spec.mtu: " +
			"want a whole number",
		`{apiVersion: mellanox.com/v1alpha1, kind: HostDeviceNetwork, metadata: {name: a}}`:                            "spec.resourceName is missing",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}, spec: {master: ib0, ipam: "["}}`: "spec.ipam",
		`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}, spec: {master: ib0, ipam: '{"x":1}'}}`: "field " +
			`"type" is missing`,
		`{apiVersion: mellanox.com/v1alpha1, kind: NicClusterPolicy, metadata: {name: a}, spec: {sriovDevicePlugin: {config: ` +
			`'{"resourceList":[{}]}'}}}`: "resourceList[0]: want a resourceName",
	} {
		list, err := Read(strings.NewReader(text))
		if err == nil {
			_, err = Convert(list, Options{To: ToFabric, Prefix: "nvidia.com"})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// Whatever is in the objects: what comes out is YAML with these objects and no others, and comments stay comments.
func FuzzConvert(f *testing.F) {
	b, err := os.ReadFile("testdata/operators.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b))
	f.Add(`{apiVersion: mellanox.com/v1alpha1, kind: IPoIBNetwork, metadata: {name: a}, spec: {master: "x\n---\n` +
		`kind: Pod", "y\nkind: Pod": 1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, to := range []string{ToFabric, ToNAD} {
			out, err := Convert(list, Options{To: to, Prefix: "nvidia.com"})
			if err != nil {
				continue
			}
			text, err := Text(out, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, o := range out {
				if o.Object != nil {
					want++
				}
			}
			got := 0
			for d := yamlv3.NewDecoder(strings.NewReader(text)); ; {
				var v map[string]any
				if err := d.Decode(&v); err != nil {
					if err.Error() != "EOF" {
						t.Fatalf("%v in:\n%s", err, text)
					}
					break
				}
				if k := v["kind"]; k == "Fabric" || k == "NetworkAttachmentDefinition" {
					got++
				} else if v != nil {
					t.Fatalf("an object that nobody made:\n%s", text)
				}
			}
			if got != want {
				t.Fatalf("%d objects, want %d:\n%s", got, want, text)
			}
		}
	})
}
