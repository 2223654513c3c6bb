package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/node"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/testkit/machines"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
)

// said is what validate says of the documents of a file, a line for each finding.
func said(t *testing.T, w World, documents ...string) string {
	t.Helper()
	r := checked(t, w, documents...)
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s %s: %s (%s)", f.Status, f.Where(), f.Message, f.By))
	}
	return strings.Join(out, "\n")
}

func checked(t *testing.T, w World, documents ...string) *Report {
	t.Helper()
	in := &Input{}
	if err := in.Read("a.yaml", strings.NewReader(strings.Join(documents, "\n---\n"))); err != nil {
		t.Fatal(err)
	}
	r, err := Check(in, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every Fabric that the API server refuses is found, with its words. integration/controlplane compares with a real
// API server.
func TestWrongFabrics(t *testing.T) {
	for _, w := range testfabrics.AllWrong {
		got := said(t, World{}, w.Object())
		if !strings.Contains(got, "FAIL a.yaml: document 1: Fabric wrong: ") || !strings.Contains(got,
			"(API server)") {
			t.Errorf("%s: %q", w.Name, got)
		}
		for _, want := range w.Want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", w.Name, got, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	const nad = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: x}"
	object := testfabrics.Object
	in := func(name, spec string) v1alpha1.Fabric {
		o := v1alpha1.Fabric{}
		if err := yaml.Unmarshal([]byte(object(name, spec)), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	const ranged = `{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}]}}}`
	moved := in("b", `{}`)
	moved.Status.InForce = &v1alpha1.FabricInForce{Spec: in("b", ranged).Spec}
	for name, c := range map[string]struct {
		world     World
		documents []string
		want      []string // of the lines; none: nothing is wrong
	}{
		"right": {World{}, []string{nad, object("a", ranged)}, nil},
		"ipam that its plugin would ignore": {World{}, []string{
			object("a", `{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/24, exlude: []}}}`)},
			[]string{`FAIL a.yaml: document 1: Fabric a: addresses.ipam: "exlude" is unknown`, "(controller)"}},
		"a pattern that is none": {World{}, []string{object("a", `{match: {devices: ["[a"]}}`)},
			[]string{`match.devices: pattern "[a": syntax error in pattern (controller)`}},
		"ranges of two": {World{}, []string{object("a", ranged), nad, object("b", ranged)}, []string{
			`document 3: Fabric b: addresses.nodeRanges 10.0.0.0/16 overlaps 10.0.0.0/16 of fabric "a"`}},
		"ranges of one that is in the cluster": {World{Existing: []v1alpha1.Fabric{moved}},
			[]string{object("a", ranged)}, []string{`Fabric a: addresses.nodeRanges 10.0.0.0/16 overlaps`}},
		"ranges of one that is replaced": {World{Existing: []v1alpha1.Fabric{in("b", ranged)}},
			[]string{object("a", ranged), object("b", `{}`)}, nil},
		"a change that is refused": {World{Existing: []v1alpha1.Fabric{in("a", `{}`)}},
			[]string{object("a", `{match: {subnetPrefix: "fe80::1:0:0:0:1"}}`)}, []string{"(API server)"}},
		"the controller refuses a change": {World{Existing: []v1alpha1.Fabric{in("a", `{}`)}},
			[]string{object("a", `{match: {devices: ["[a"]}}`)}, []string{"what is in force of it stays in force"}},
		"twice": {World{}, []string{object("a", `{}`), object("a", `{attachment: IPoIBChild}`)},
			[]string{"document 2: Fabric a: document 1 of a.yaml is a Fabric of this name, too"}},
		"another version": {World{}, []string{strings.Replace(object("a", `{}`), "v1alpha1", "v1", 1)},
			[]string{`no matches for kind "Fabric" in version "fabric.dev/v1": want fabric.dev/v1alpha1`}},
		"no group": {World{}, []string{strings.Replace(object("a", `{}`), "fabric.dev/v1alpha1", "v1", 1)},
			[]string{`no matches for kind "Fabric" in version "v1"`}},
		"a key twice": {World{},
			[]string{"apiVersion: fabric.dev/v1alpha1\nkind: Fabric\nmetadata: {name: a}\nspec:\n  " +
				"attachment: IPoIBChild\n  attachment: WholeDevice"},
			[]string{`key "attachment" already set in map (kubectl)`}},
		"merged keys": {World{},
			[]string{"apiVersion: fabric.dev/v1alpha1\nkind: Fabric\nmetadata: {name: a}\nspec:\n  " +
				"match: {rail: 0}\n  <<: {attachment: IPoIBChild}\n  attachment: WholeDevice"}, nil},
		"no name": {World{}, []string{"apiVersion: fabric.dev/v1alpha1\nkind: Fabric\nspec: {}"},
			[]string{"metadata.name: Required value"}},
		"a name in capitals": {World{}, []string{object("A", `{}`)}, []string{"metadata.name: Invalid value"}},
		"an unknown field of metadata": {World{}, []string{object("a, label: {}", `{}`)},
			[]string{`unknown field "metadata.label"`}},
		"a bad label": {World{}, []string{object("a, labels: {a b: c}", `{}`)},
			[]string{"metadata.labels: Invalid value"}},
		"no text": {World{}, []string{object("no", `{}`)}, []string{"cannot unmarshal bool"}},
		"a list": {World{},
			[]string{"apiVersion: v1\nkind: List\nitems: [{apiVersion: fabric.dev/v1alpha1, kind: Fabric, " +
				"metadata: {name: a}, spec: {attachment: Both}}]"}, []string{"Fabric a: spec.attachment"}},
		"values of Helm": {World{},
			[]string{"image: {tag: v1}\nfabrics:\n- name: a\n  spec: {network: {mut: 1}}\n- name: a"},
			[]string{`Fabric a: unknown field "spec.network.mut"`, "spec: Invalid value: \"null\"",
				"is a Fabric of this name, too"}},
		"no DRA": {World{NoDRA: errors.New("no DRA here")}, []string{object("a", `{allocation: DRA}`)},
			[]string{"no DRA here (controller)"}},
	} {
		got := said(t, c.world, c.documents...)
		if c.want == nil && got != "" {
			t.Errorf("%s: %s", name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// What is no input, or too much.
func TestBounds(t *testing.T) {
	const nad = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: x}"
	in := &Input{}
	if _, err := Check(in, World{}); err == nil || in.Read("x", strings.NewReader(nad)) != nil {
		t.Error(err)
	}
	many := strings.Repeat(testfabrics.Object("a", "{}")+"---\n", maxFabrics+1)
	if err := in.Read("x", strings.NewReader(many)); err == nil || !strings.Contains(err.Error(),
		"more than 500") {
		t.Error(err)
	}
}

// Two Fabrics of one match, for nodes with different labels.
func TestNodeSelector(t *testing.T) {
	nodes, err := machines.Nodes("h20", "h20")
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].Name, nodes[1].Name = "east", "west"
	documents := []string{}
	for _, name := range []string{"east", "west", "north"} {
		documents = append(documents, testfabrics.Object(name, `{match: {linkLayer: InfiniBand, rateGb: 400}, `+
			`nodeSelector: {matchLabels: {island: `+name+`}}}`))
	}
	known := map[string]labels.Set{"east": {"island": "east"}, "west": {"island": "west"}}
	r := checked(t, World{Nodes: nodes, Labels: known}, documents...)
	for i, want := range []string{
		"[{east [mlx5_0 mlx5_3 mlx5_4 mlx5_7]}]", "[{west [mlx5_0 mlx5_3 mlx5_4 mlx5_7]}]", "[]",
	} {
		if got := fmt.Sprint(r.Fabrics[i].Nodes); got != want {
			t.Errorf("Fabric %s: %s, want %s", r.Fabrics[i].Name, got, want)
		}
	}
	const none = "FAIL a.yaml: document 3: Fabric north: selects none of the nodes (nodes)"
	if got := said(t, World{Nodes: nodes, Labels: known}, documents...); got != none {
		t.Error(got)
	}
	if got := said(t, World{Nodes: nodes}, documents[0]); !strings.Contains(got, "labels of Nodes are not known") {
		t.Error(got)
	}
}

// What nodes have for the Fabrics.
func TestDevices(t *testing.T) {
	nodes, err := machines.Nodes("h20", "roce")
	if err != nil {
		t.Fatal(err)
	}
	w := World{Nodes: nodes}
	object := testfabrics.Object
	ib := object("ib", `{match: {linkLayer: InfiniBand, rateGb: 400}}`)
	r := checked(t, w, ib)
	if got := fmt.Sprint(r.Fabrics[0].Nodes); got != "[{h20 [mlx5_0 mlx5_3 mlx5_4 mlx5_7]}]" || r.Failed() {
		t.Errorf("%s, %+v", got, r.Findings)
	}
	for _, n := range nodes { // as FabricNodes have them
		b, err := n.Compact(node.MaxCompact)
		if err != nil {
			t.Fatal(err)
		}
		*n = node.Node{}
		if err := json.Unmarshal(b, n); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(r, checked(t, w, ib)); diff != "" {
		t.Errorf("from FabricNodes (-recordings +FabricNodes):\n%s", diff)
	}
	for name, c := range map[string]struct {
		documents []string
		want      string
	}{
		"left over": {[]string{ib},
			"WARN : roce: no Fabric has mlx5_2, mlx5_3, mlx5_4, mlx5_5: no pod can ask for it"},
		"no device": {[]string{object("x", `{match: {rateGb: 300}}`)},
			"FAIL a.yaml: document 1: Fabric x: gets no device of 2 nodes, as on h20: matches no device of this " +
				"node: the nearest one is mlx5_0 (0000:18:00.0), but its rate is 400 Gb/s, not 300"},
		"discovered": {[]string{object("ib-400g", `{}`)}, "WARN : roce: no Fabric has"},
		"two for one": {[]string{ib, object("ic", `{match: {devices: ["mlx5_0"], linkLayer: InfiniBand}}`)},
			"WARN : h20: " +
				"Fabrics ib and ic both match mlx5_0: ib gets what both match"},
		"too few on a node": {[]string{object("x",
			`{match: {rateGb: 400}, addresses: {nodeRanges: {ranges: [{range: `+
				`10.0.0.0/16, perNodePrefixLength: 30}]}}}`)},
			"too few addresses: addresses.nodeRanges: perNodePrefixLength 30 has 2 addresses to " +
				"give, and a node needs 4"},
		"too few nodes": {[]string{object("x",
			`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/28, perNodePrefixLength: 28}]}},
			match: {devices: ["mlx5_[23]"]}}`)}, "Fabric x: "},
		"too small a pool": {[]string{object("x",
			`{match: {rateGb: 400}, addresses: {ipam: {type: whereabouts, range: `+
				`10.0.0.0/30}}}`)}, "too few addresses: addresses.ipam"},
		"shared on exclusive nodes": {[]string{object("x", `{match: {rateGb: 400}, attachment: IPoIBChild}`)},
			"FAIL a.yaml: " +
				"document 1: Fabric x: h20: the node's RDMA mode is exclusive"},
		"the other mode": {[]string{object("x", `{match: {rateGb: 400}, network: {rdmaMode: Shared}}`)},
			"h20: network.rdmaMode " +
				"needs shared, and the node's RDMA mode is exclusive"},
		"what the node needs": {[]string{object("x", `{match: {devices: ["mlx5_bond_0"]}}`)},
			"keeps it on the host: refused by node policy: ens31f0np0 carries"},
	} {
		if got := said(t, w, c.documents...); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	// A Fabric of the cluster has its devices, and precedence decides.
	other := v1alpha1.Fabric{}
	other.Name, other.Spec.Precedence = "z", 1
	other.Spec.Match.Devices = []string{"mlx5_0"}
	w.Existing = []v1alpha1.Fabric{other}
	r = checked(t, w, ib)
	if got := fmt.Sprint(r.Fabrics[0].Nodes, r.Fabrics[1].Nodes); r.Failed() ||
		got != "[{h20 [mlx5_3 mlx5_4 mlx5_7]}] [{h20 [mlx5_0]}]" {
		t.Errorf("%s, %+v", got, r.Findings)
	}
}
