package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/agent/settings"
	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func TestParse(t *testing.T) {
	got, err := settings.Parse([]byte(`
fabrics:
- name: ib-200g
  match: {linkLayer: InfiniBand, rateGb: 200}
  network:
    mtu: 4092
    ipam: {type: whereabouts, range: 192.168.10.0/24}
- name: storage
  match: {devices: ["ibs1*", "0000:3b:00.?"]}
  mode: shared
  namespace: team-a
  network:
    ipam: {type: host-local, ranges: [[{subnet: 192.168.11.0/24}]]}
`))
	want := &settings.Settings{Fabrics: []settings.Fabric{
		{
			Name:      "ib-200g",
			Mode:      settings.Exclusive,
			Namespace: "default",
			Match:     settings.Match{LinkLayer: "InfiniBand", RateGb: 200},
			Network: map[string]any{
				"mtu":  float64(4092),
				"ipam": map[string]any{"type": "whereabouts", "range": "192.168.10.0/24"},
			},
		},
		{
			Name:      "storage",
			Mode:      settings.Shared,
			Shares:    8,
			Namespace: "team-a",
			Match:     settings.Match{Devices: []string{"ibs1*", "0000:3b:00.?"}},
			Network: map[string]any{
				"ipam": map[string]any{
					"type":   "host-local",
					"ranges": []any{[]any{map[string]any{"subnet": "192.168.11.0/24"}}},
				},
			},
		},
	}}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v, %s", err, cmp.Diff(want, got))
	}
}

const match = "match: {rateGb: 100}"

var refusals = []struct{ yaml, want string }{
	{`fabrics: [{name: a, matches: {}}]`, `unknown field "matches"`},
	{`fabrics: 3`, "cannot unmarshal number"},
	{`fabrics: [{name: Ib, ` + match + `}]`, `fabric 0 ("Ib"): name: want`},
	{`fabrics: [{name: "", ` + match + `}]`, `name: want`},
	{`fabrics: [{name: a, ` + match + `}, {name: a, ` + match + `}]`, `name "a" is taken`},
	{`fabrics: [{name: a, mode: both, ` + match + `}]`, `mode "both": want exclusive or shared`},
	{`fabrics: [{name: a, shares: 3, ` + match + `}]`, `shares: allowed in mode shared only`},
	{`fabrics: [{name: a, mode: shared, shares: -1, ` + match + `}]`, `shares -1: want 1 to 1000`},
	{`fabrics: [{name: a, match: {linkLayer: IB}}]`, `match.linkLayer "IB": want InfiniBand or Ethernet`},
	{`fabrics: [{name: a, match: {devices: ["[a"]}}]`, `match.devices: pattern "[a"`},
	{`fabrics: [{name: a, ` + match + `, network: {ipam: {range: 10.0.0.1}}}]`,
		`subnet "10.0.0.1": want an address with a prefix length`},
	{`fabrics:
- {name: a, ` + match + `, network: {ipam: {type: whereabouts, range: 10.0.0.0/16}}}
- {name: b, ` + match + `, network: {ipam: {type: whereabouts, ipRanges: [{range: "fd00::/64"}, ` +
		`{range: 10.0.3.1-10.0.3.9/24}]}}}`,
		`fabric "b": network.ipam.ipRanges[1].range 10.0.3.0/24 overlaps 10.0.0.0/16 of fabric "a"`},
	{`fabrics:
- {name: a, ` + match + `, nodeRanges: {range: 10.0.0.0/16, perNode: /26}}
- {name: b, ` + match + `, network: {ipam: {type: whereabouts, range: 10.0.3.0/24}}}`,
		`network.ipam.range 10.0.3.0/24 overlaps 10.0.0.0/16 of fabric "a"`},
	{`fabrics: [{name: a, network: {ipam: {type: whereabouts, range: 10.0.0.0/24, exlude: [10.0.0.0/28]}}}]`,
		`fabric "a": network.ipam: "exlude" is unknown`},
	{`fabrics: [{name: a, nodeRanges: {range: 10.0.0.0, perNode: /26}}]`,
		`fabric "a": nodeRanges.range "10.0.0.0": want an address with a prefix length`},
	{`fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16, perNode: /8}}]`,
		`nodeRanges.perNode "/8": want a prefix length from /16`},
	{`fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16}}]`, `nodeRanges.perNode "": want`},
	{`fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16, perNode: /26, exclude: [gateway]}}]`,
		`nodeRanges.exclude "gateway": want`},
	{`fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16, perNode: /26, reclaim: -1h}}]`,
		`nodeRanges.reclaim -1h0m0s: want`},
	{`fabrics: [{name: a, nodeRanges: {range: 10.0.0.0/16, perNode: /26}, network: {ipam: {type: static}}}]`,
		`network.ipam: nodeRanges sets it`},
	{`fabrics:
- {name: a, ` + match + `, network: {ipam: {subnet: "fd00::/64"}}}
- {name: b, ` + match + `, network: {ipam: {ranges: [[{subnet: "fd00::/80"}]]}}}`,
		`overlaps fd00::/64 of fabric "a"`},
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range refusals {
		if _, err := settings.Parse([]byte(tt.yaml)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.yaml, err, tt.want)
		}
	}
}

// All spellings of a subnet prefix are one.
func TestSubnetPrefix(t *testing.T) {
	for _, text := range []string{
		"fe80::", "fe80:0000:0000:0000", `"fe80::/64"`, "0xfe80000000000000", `"0xfe80000000000000"`, "FE80::",
	} {
		s, err := settings.Parse([]byte("fabrics: [{name: a, match: {linkLayer: InfiniBand, subnetPrefix: " + text +
			"}}]"))
		if err != nil || s.Fabrics[0].Match.SubnetPrefix != device.DefaultSubnetPrefix {
			t.Errorf("%s: %v, %+v", text, err, s)
		}
	}
	const bare = "fabrics:\n- name: a\n  match:\n    subnetPrefix: fe80::  # of discover\n    rateGb: 200\n"
	_, err := settings.Parse([]byte(bare))
	if err == nil || !strings.Contains(err.Error(),
		`quotes around a value that ends with a colon: subnetPrefix: "fe80::"`) {
		t.Errorf("without quotes: %v", err)
	}
	// as an older agent saved it
	s, err := settings.Parse([]byte(`fabrics: [{name: a, match: {subnetPrefix: "", rateGb: 56}}]`))
	if err != nil || s.Fabrics[0].Match.SubnetPrefix != 0 {
		t.Errorf("empty: %v, %+v", err, s)
	}
}

// What no port could have is refused, with the nearest thing that one could.
func TestMatchesNothing(t *testing.T) {
	for match, want := range map[string]string{
		"{subnetPrefix: fe80::1}": `subnet prefix "fe80::1": that is a GID: its subnet prefix is fe80::`,
		"{subnetPrefix: fe80}":    `subnet prefix "fe80": want the upper 8 bytes of GID 0, such as fe80:: by default`,
		`{subnetPrefix: "::"}`:    "no subnet has it; fe80:: is the default of subnet managers",
		"{linkLayer: Ethernet, subnetPrefix: fe80::}": "match.subnetPrefix fe80::: Ethernet ports " +
			"have none; remove it, or write linkLayer: InfiniBand",
		"{rateGb: 201}":           "match.rateGb 201: no link has this rate; the nearest one is 200",
		"{rateGb: 1}":             "the nearest one is 2.5",
		"{rateGb: -200}":          "the nearest one is 2.5",
		"{rateGb: 99.9}":          "the nearest one is 100",
		"{rateGb: 9000}":          "the nearest one is 2400",
		"{linkLayer: infiniband}": `"infiniband": want InfiniBand or Ethernet; the nearest one is InfiniBand`,
		"{linkLayer: IB}":         "the nearest one is InfiniBand",
		"{linkLayer: RoCE}":       "the nearest one is Ethernet",
		"{linkLayer: ethernet}":   "the nearest one is Ethernet",
		"{linkLayer: omnipath}":   `match.linkLayer "omnipath": want InfiniBand or Ethernet`,
		`{devices: [""]}`:         `match.devices: pattern "": no device has such a name; the nearest pattern is "*"`,
		`{devices: ["mlx5_0 "]}`:  `the nearest pattern is "mlx5_0"`,
		`{devices: ["0000:3B:00.0"]}`: `pattern "0000:3B:00.0": no device has such an address; the nearest one is ` +
			`"0000:3b:00.0"`,
		`{devices: ["3b:00.0"]}`:     `the nearest one is "0000:3b:00.0"`,
		`{devices: ["pci/3b:00.0"]}`: `the nearest one is "0000:3b:00.0"`,
		`{devices: ["3b:00.?"]}`:     `the nearest pattern is "0000:3b:00.?"`,
		`{devices: ["0000:3B:*"]}`:   `the nearest pattern is "0000:3b:*"`,
	} {
		yaml := "fabrics: [{name: a, match: " + match + "}]"
		if _, err := settings.Parse([]byte(yaml)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", match, err, want)
		}
	}
	for _, match := range []string{
		"{rateGb: 2.5}", "{rateGb: 10}", "{rateGb: 40}", "{rateGb: 56}", "{rateGb: 100}", "{rateGb: 200}",
		"{rateGb: 400}",
		"{rateGb: 800}", "{rateGb: 1600}",
		`{devices: ["0000:3b:00.0", "pci/0000:3b:00.0", "0000:3b:*", "mlx5_*", "*"]}`,
		`{devices: ["ib?[0-3]", "auxiliary/mlx5_core.sf.4", "mlx5_core.sf.4", "platform/fakeib.0", "*:3b:00.0"]}`,
	} {
		if _, err := settings.Parse([]byte("fabrics: [{name: a, match: " + match + "}]")); err != nil {
			t.Errorf("%s: %v", match, err)
		}
	}
}

// Addresses that are left out of one range may be another fabric's.
func TestNoOverlap(t *testing.T) {
	for _, yaml := range []string{`fabrics:
- {name: a, network: {ipam: {type: whereabouts, range: 10.0.0.0/16, exclude: [10.0.3.0/24]}}}
- {name: b, network: {ipam: {type: whereabouts, range: 10.0.3.0/24}}}`, `fabrics:
- {name: a, nodeRanges: {range: 10.0.0.0/16, perNode: "26", exclude: [10.0.3.0/24]}}
- {name: b, nodeRanges: {range: 10.0.3.0/24, perNode: /28, reclaim: 1h}}`} {
		if _, err := settings.Parse([]byte(yaml)); err != nil {
			t.Errorf("%s: %v", yaml, err)
		}
	}
}

func TestCheckCapacity(t *testing.T) {
	s, err := settings.Parse([]byte(`fabrics:
- {name: a, network: {ipam: {type: whereabouts, range: 10.0.0.0/28}}}
- {name: b, nodeRanges: {range: 10.0.4.0/24, perNode: /30}}
- {name: c, network: {ipam: {type: static}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`fabric "a": network.ipam.range 10.0.0.0/28 has 14 addresses to give, and all nodes together need 16: ` +
			`choose a wider range`,
		`fabric "b": nodeRanges.perNode /30 has 2 addresses to give, and this node needs 4: choose a shorter prefix`,
		``} {
		err := s.Fabrics[i].CheckCapacity(16, 4)
		if want != "" && (err == nil || err.Error() != want) || want == "" && err != nil {
			t.Errorf("%v, want %s", err, want)
		}
		if err := s.Fabrics[i].CheckCapacity(14, 2); err != nil {
			t.Error(err)
		}
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if s, err := settings.Load(file); err != nil || len(s.Fabrics) != 0 {
		t.Errorf("no file: %v, %v", s, err)
	}
	if err := os.WriteFile(file, []byte("fabrics: [{name: A}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
