package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/agent/settings"
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
		{Name: "ib-200g", Mode: settings.Exclusive, Namespace: "default", Match: settings.Match{LinkLayer: "InfiniBand", RateGb: 200},
			Network: map[string]any{"mtu": float64(4092), "ipam": map[string]any{"type": "whereabouts", "range": "192.168.10.0/24"}}},
		{Name: "storage", Mode: settings.Shared, Shares: 8, Namespace: "team-a", Match: settings.Match{Devices: []string{"ibs1*", "0000:3b:00.?"}},
			Network: map[string]any{"ipam": map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": "192.168.11.0/24"}}}}}},
	}}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v, %s", err, cmp.Diff(want, got))
	}
}

func TestParseRefuses(t *testing.T) {
	const match = "match: {rateGb: 1}"
	for yaml, want := range map[string]string{
		`fabrics: [{name: a, matches: {}}]`:                                       `unknown field "matches"`,
		`fabrics: 3`:                                                              "cannot unmarshal number",
		`fabrics: [{name: Ib, ` + match + `}]`:                                    `fabric 0 ("Ib"): name: want`,
		`fabrics: [{name: "", ` + match + `}]`:                                    `name: want`,
		`fabrics: [{name: a, ` + match + `}, {name: a, ` + match + `}]`:           `name "a" is taken`,
		`fabrics: [{name: a, mode: both, ` + match + `}]`:                         `mode "both": want exclusive or shared`,
		`fabrics: [{name: a, shares: 3, ` + match + `}]`:                          `shares: only mode shared`,
		`fabrics: [{name: a, mode: shared, shares: -1, ` + match + `}]`:           `shares -1: want 1 to 1000`,
		`fabrics: [{name: a, match: {linkLayer: IB}}]`:                            `match.linkLayer "IB": want InfiniBand or Ethernet`,
		`fabrics: [{name: a, match: {devices: ["[a"]}}]`:                          `match.devices: pattern "[a"`,
		`fabrics: [{name: a, ` + match + `, network: {ipam: {range: 10.0.0.1}}}]`: `range "10.0.0.1": want an address with a prefix length`,
		`fabrics:
- {name: a, ` + match + `, network: {ipam: {range: 10.0.0.0/16}}}
- {name: b, ` + match + `, network: {ipam: {ipRanges: [{range: 10.0.3.1-10.0.3.9/24}]}}}`: `fabric "b": network.ipam: range 10.0.3.0/24 overlaps 10.0.0.0/16 of fabric "a"`,
		`fabrics:
- {name: a, ` + match + `, network: {ipam: {subnet: "fd00::/64"}}}
- {name: b, ` + match + `, network: {ipam: {ranges: [[{subnet: "fd00::/80"}]]}}}`: `overlaps fd00::/64 of fabric "a"`,
	} {
		if _, err := settings.Parse([]byte(yaml)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
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
