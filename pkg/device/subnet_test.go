package device

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

func TestSubnetPrefix(t *testing.T) {
	const site SubnetPrefix = 0xfec0_0000_0000_0001
	for text, want := range map[string]SubnetPrefix{
		"fe80::":                    DefaultSubnetPrefix,
		"fe80::/64":                 DefaultSubnetPrefix,
		"fe80:0000:0000:0000":       DefaultSubnetPrefix,
		"fe80:0:0:0":                DefaultSubnetPrefix,
		"FE80:0000:0000:0000::":     DefaultSubnetPrefix,
		"fe80:0000:0000:0000::/64":  DefaultSubnetPrefix,
		"fe80:0:0:0/64":             DefaultSubnetPrefix,
		"0xfe80000000000000":        DefaultSubnetPrefix,
		"0XFE80000000000000":        DefaultSubnetPrefix,
		"fe80000000000000":          DefaultSubnetPrefix,
		" fe80:: ":                  DefaultSubnetPrefix,
		"fec0:0:0:1::":              site,
		"fec0:0000:0000:0001":       site,
		"0xfec0000000000001":        site,
		"fec0:0:0:1:0:0:0:0":        site,
		"fec0:0000:0000:0001::0000": site,
	} {
		if got, err := ParseSubnetPrefix(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		var p SubnetPrefix
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want {
			t.Errorf("%s as text: %v, %v", text, p, err)
		}
	}
	for text, want := range map[string]string{
		"":                     "want the upper 8 bytes of GID 0, such as fe80:: by default",
		"fe80":                 "want the upper 8 bytes",
		"fe80:0000:0000":       "want the upper 8 bytes",
		"fe80::%ib0":           "want the upper 8 bytes",
		"10.0.0.0":             "want the upper 8 bytes",
		"0xfe8000000000000":    "want the upper 8 bytes",
		"0xfe8000000000000g":   "want the upper 8 bytes",
		"fe80::/10":            "has 10 bits: want 64",
		"fe80::2:c903:fa:10":   "that is a GID: its subnet prefix is fe80::",
		"fec0:0:0:1::1":        "that is a GID: its subnet prefix is fec0:0:0:1::",
		"::":                   "no subnet has it; fe80:: is the default of subnet managers",
		"0000:0000:0000:0000":  "no subnet has it",
		"fe80:0000:0000:0000:": "want the upper 8 bytes",
	} {
		if got, err := ParseSubnetPrefix(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
	if got := SubnetPrefixOf(netip.MustParseAddr("fec0::1:2:c903:fa:10")); got != site {
		t.Errorf("of a GID: %v", got)
	}
}

// One spelling comes out, whichever went in.
func TestSubnetPrefixJSON(t *testing.T) {
	type has struct {
		P SubnetPrefix `json:"p,omitzero"`
	}
	for in, want := range map[string]string{
		`{"p":"fe80:0000:0000:0000"}`:   `{"p":"fe80::"}`,
		`{"p":"0xfec0000000000001"}`:    `{"p":"fec0:0:0:1::"}`,
		`{"p":18338657682652659712}`:    `{"p":"fe80::"}`, // what YAML makes of 0xfe80000000000000
		`{"p":""}`:                      `{}`,
		`{"p":null}`:                    `{}`,
		`{}`:                            `{}`,
		`{"p":"fe80:0000:0000:0000::"}`: `{"p":"fe80::"}`,
	} {
		var v has
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{`{"p":"x"}`, `{"p":1.5}`, `{"p":true}`, `{"p":-1}`, `{"p":{}}`} {
		if err := json.Unmarshal([]byte(in), &has{}); err == nil || !strings.Contains(err.Error(), "subnet prefix") {
			t.Errorf("%s: %v", in, err)
		}
	}
}
