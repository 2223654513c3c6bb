package fabrics_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fabric-cni/fabric-cni/internal/fabrics"
	"github.com/fabric-cni/fabric-cni/internal/health"
	"github.com/fabric-cni/fabric-cni/internal/noderange"
	testfabrics "github.com/fabric-cni/fabric-cni/internal/testkit/fabrics"
	"github.com/fabric-cni/fabric-cni/pkg/api/v1alpha1"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func read(t *testing.T, text string) *v1alpha1.Fabric {
	t.Helper()
	o := &v1alpha1.Fabric{}
	if err := yaml.Unmarshal([]byte(text), o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func parse(t *testing.T, name, spec string) *fabrics.Fabric {
	t.Helper()
	f, err := fabrics.Parse(read(t, testfabrics.Object(name, spec)))
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return f
}

func TestParse(t *testing.T) {
	rail := 3
	defaults, err := health.ParseLimits(&v1alpha1.Health{}, false)
	if err != nil {
		t.Fatal(err)
	}
	inDefault := v1alpha1.Namespaces{Names: []string{"default"}}
	for spec, want := range map[string]fabrics.Fabric{
		`{}`: {Name: "a", Attachment: v1alpha1.WholeDevice, Namespaces: inDefault, Network: map[string]any{}},
		`{allocation: DRA}`: {
			Name: "a", Attachment: v1alpha1.WholeDevice, Allocation: v1alpha1.DRA, Namespaces: inDefault,
			Network: map[string]any{},
		},
		`{match: {linkLayer: InfiniBand, rateGb: 200, subnetPrefix: "fe80::", rail: 3}, precedence: 5,
		  network: {mtu: 4092, sourceBasedRouting: true}, namespaces: {names: [team-a]},
		  addresses: {ipam: {type: whereabouts, range: 192.168.10.0/24, network_name: a}}}`: {
			Name: "a", Attachment: v1alpha1.WholeDevice, Precedence: 5,
			Namespaces: v1alpha1.Namespaces{Names: []string{"team-a"}},
			Match: fabrics.Match{
				LinkLayer: device.InfiniBand, RateGb: 200, SubnetPrefix: device.DefaultSubnetPrefix, Rail: &rail,
			},
			Network: map[string]any{
				"mtu": float64(4092), "routing": map[string]any{"sourceBased": true},
				"ipam": map[string]any{"type": "whereabouts", "range": "192.168.10.0/24", "network_name": "a"},
			},
		},
		`{addresses: {host: {ignoreRADefaultRoute: true}}}`: {
			Name: "a", Attachment: v1alpha1.WholeDevice, Namespaces: inDefault,
			Network: map[string]any{"hostAddresses": true, "ignoreRADefaultRoute": true},
			Host:    &v1alpha1.HostAddresses{IgnoreRADefaultRoute: true},
		},
		`{attachment: IPoIBChild, network: {pkey: "0x8001"}, addresses: {nodeRanges: {ranges: [
		    {range: 10.0.0.0/16, perNodePrefixLength: 26, exclude: [10.0.0.1, 10.0.1.0/24]},
		    {range: "fd00::/64", perNodePrefixLength: 112}],
		  static: [{node: x, range: 10.0.4.0/26}], reclaim: 2h}}}`: {
			Name: "a", Attachment: v1alpha1.IPoIBChild, Shares: 8, Namespaces: inDefault,
			Network: map[string]any{"pkey": "0x8001"},
			NodeRanges: &noderange.Spec{
				Fabric: "a", Reclaim: 2 * time.Hour,
				Ranges: []noderange.Range{
					{
						Prefix: netip.MustParsePrefix("10.0.0.0/16"), Bits: 26,
						Without: []netip.Prefix{
							netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.1.0/24"),
						},
					},
					{Prefix: netip.MustParsePrefix("fd00::/64"), Bits: 112},
				},
				Static: map[string][]netip.Prefix{"x": {netip.MustParsePrefix("10.0.4.0/26")}},
			},
		},
	} {
		want.Health = *defaults
		if want.Match.IsZero() {
			want.Match.Discovered = "a"
		}
		if want.Allocation == "" {
			want.Allocation = v1alpha1.DevicePlugin
		}
		got := parse(t, "a", spec)
		options := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})}
		if diff := cmp.Diff(&want, got, options); diff != "" {
			t.Errorf("%s: %s", spec, diff)
		}
	}
}

// What the API server can't see.
func TestParseRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		`{match: {}}`:                 "match: must have a field: discovered: NAME takes the devices",
		`{match: {discovered: "a*"}}`: `match.discovered "a*": must be`,
		`{nodeSelector: {matchExpressions: [{key: a, operator: Near}]}}`: `nodeSelector: "Near" is not a valid label ` +
			`selector operator`,
		`{attachment: IPoIBChild, addresses: {host: {}}}`:      `addresses.host: for attachment WholeDevice only`,
		`{match: {driver: ../x}}`:                              `match.driver "../x": must be the name of a driver`,
		`{network: {rdmaMode: exclusive}}`:                     `network: rdmaMode "exclusive": must be Any, Exclusive`,
		`{attachment: IPoIBChild, network: {ipoibMode: fast}}`: `network: ipoibMode "fast": must be Datagram or`,
		`{match: {subnetPrefix: "fe80::1"}}`:                   `match.subnetPrefix: subnet prefix "fe80::1": that is a GID`,
		`{match: {devices: ["mlx5_0 "]}}`:                      `match.devices: pattern "mlx5_0 "`,
		`{match: {devices: ["[a"]}}`:                           `match.devices: pattern "[a": syntax error in pattern`,
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/24, exlude: [10.0.0.0/28]}}}`: `addresses.ipam: ` +
			`"exlude" is unknown`,
		`{addresses: {ipam: {type: host-local, subnet: 10.0.0.0}}}`: `addresses.ipam: subnet "10.0.0.0": want`,
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}],
		  static: [{node: a, range: 10.0.0.0/26},
		  {node: b, range: 10.0.0.0/26}]}}}`: `static[1].range 10.0.0.0/26: is ` +
			`that of node a`,
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}], reclaim: -1h}}}`: `reclaim ` +
			`-1h0m0s: want`,
	} {
		_, err := fabrics.Parse(read(t, testfabrics.Object("a", spec)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{
			`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/16}}}`,
			`{addresses: {nodeRanges: {ranges: [{range: 10.0.3.0/24, perNodePrefixLength: 28}]}}}`,
			`addresses.nodeRanges 10.0.3.0/24 overlaps 10.0.0.0/16 of fabric "a"`,
		},
		{
			`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26, exclude: [10.0.3.0/24]}]}}}`,
			`{addresses: {ipam: {type: whereabouts, range: 10.0.3.0/24}}}`, ``,
		},
		{`{}`, `{addresses: {ipam: {type: whereabouts, range: 10.0.3.0/24}}}`, ``},
		{
			`{addresses: {ipam: {type: host-local, subnet: "fd00::/64"}}}`,
			`{addresses: {ipam: {type: host-local, ranges: [[{subnet: "fd00::/80"}]]}}}`, `overlaps fd00::/64 of fabric "a"`,
		},
	} {
		err := fabrics.Overlap(parse(t, "b", tt.b), parse(t, "a", tt.a))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s and %s: %v, want %q", tt.a, tt.b, err, tt.want)
		}
	}
}

func TestSort(t *testing.T) {
	list := []fabrics.Fabric{{Name: "b"}, {Name: "c", Precedence: 1}, {Name: "a"}, {Name: "d", Precedence: -1}}
	fabrics.Sort(list)
	var got []string
	for _, f := range list {
		got = append(got, f.Name)
	}
	if strings.Join(got, "") != "cabd" {
		t.Error(got)
	}
}

// With the host's addresses the configuration is a file of each node: the plugin believes it only there.
func TestConfigHostAddresses(t *testing.T) {
	f := parse(t, "a", `{addresses: {host: {keepLeases: true, ignoreRADefaultRoute: true}}}`)
	b, err := f.Config(fabrics.NodeParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"hostAddresses": true`, `"keepLeases": true`, `"ignoreRADefaultRoute": true`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("want %s in %s", want, b)
		}
	}
	u, err := f.Definition("team-a", metav1.OwnerReference{}, false)
	if err != nil || !f.OfNode() {
		t.Fatalf("of the node: %v, %v", f.OfNode(), err)
	}
	if spec, ok := u.Object["spec"].(map[string]any); !ok || len(spec) > 0 {
		t.Errorf("the definition has %v", u.Object)
	}
	if err := f.CheckCapacity(1000, 1000); err != nil {
		t.Error(err)
	}
}

// With allocation DRA the parent of an IPoIB child is the device that the pod was given: no node has to name one.
func TestConfigDRA(t *testing.T) {
	for spec, want := range map[string]string{
		`{allocation: DRA, attachment: IPoIBChild}`: `{"allocation":"DRA","cniVersion":"1.0.0","mode":"ipoib","name":"a",` +
			`"type":"fabric"}`,
		`{allocation: DRA}`: `{"allocation":"DRA","capabilities":{"CNIDeviceInfoFile":true,"deviceID":true},` +
			`"cniVersion":"1.0.0","name":"a","type":"fabric"}`,
		`{attachment: IPoIBChild}`: `{"cniVersion":"1.0.0","master":"","mode":"ipoib","name":"a","type":"fabric"}`,
	} {
		b, err := parse(t, "a", spec).Config(fabrics.NodeParams{})
		var got map[string]any
		err = errors.Join(err, json.Unmarshal(b, &got))
		if b, e := json.Marshal(got); err != nil || e != nil || string(b) != want { // with the keys in order
			t.Errorf("%s: %s, %v", spec, b, err)
		}
	}
}
