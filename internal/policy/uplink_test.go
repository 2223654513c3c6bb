package policy

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func source(s string) func(*device.Uplink) {
	return func(u *device.Uplink) { u.Sources = append(u.Sources, netip.MustParseAddr(s)) }
}

func TestUplink(t *testing.T) {
	dev := func(edit ...func(*device.Uplink)) Device { return with(netdev(nil), edit...) }
	moves(t, map[string]moveTest{
		"half":            {`{}`, dev(route("0.0.0.0/1", 254)), "a part of the host's default route (0.0.0.0/1)"},
		"other half":      {`{}`, dev(route("128.0.0.0/1", 254)), "a part of the host's default route"},
		"IPv6 half":       {`{}`, dev(route("8000::/1", 254)), "a part of the host's default route"},
		"quarter":         {`{}`, dev(route("64.0.0.0/2", 254)), "a part of the host's default route"},
		"IPv6 unicast":    {`{}`, dev(route("2000::/3", 254)), "a part of the host's default route"},
		"seven bits":      {`{}`, dev(route("12.0.0.0/7", 254)), "a part of the host's default route"},
		"a network":       {`{}`, dev(route("10.0.0.0/8", 254)), ""},
		"IPv6 network":    {`{}`, dev(route("fd00::/8", 254)), ""},
		"multicast":       {`{}`, dev(route("224.0.0.0/4", 254)), ""},
		"IPv6 multicast":  {`{}`, dev(route("ff00::/8", 254)), ""},
		"bond's":          {`{}`, dev(routeOn(1, "0.0.0.0/0", 254)), "route (default) on bond0, which sits on it"},
		"bond's, allowed": {`{"allowDefaultRoute":["ens1f0"]}`, dev(routeOn(1, "0.0.0.0/0", 254)), ""},
		"bond's address": {
			`{"nodeAddresses":["10.1.0.5"]}`, dev(addressOn(1, "10.1.0.5/24")), "address 10.1.0.5 on bond0, which sits",
		},
		"address of packets": {
			`{}`, dev(address("10.1.0.5/32"), source("10.1.0.5")), "10.1.0.5, which the host's packets have by default",
		},
		"address of packets, allowed": {
			`{"allowNodeAddress":["ens1f0"]}`, dev(address("10.1.0.5/32"), source("10.1.0.5")), "",
		},
		"address of its default route, allowed": {
			`{"allowDefaultRoute":["ens1f0"]}`,
			dev(route("0.0.0.0/0", 254), address("10.1.0.5/32"), source("10.1.0.5")), "",
		},
		"address of other packets": {`{}`, dev(address("10.1.0.5/32"), source("10.2.0.5")), ""},
		"mapped address": {
			`{"nodeAddresses":["::ffff:10.1.0.5"]}`, dev(address("10.1.0.5/24")), "node's address 10.1.0.5",
		},
	})
}

// The list in docs/policy.md: which rules make a default route in another table the node's own.
func TestUplinkRules(t *testing.T) {
	prefix := netip.MustParsePrefix
	const own = `{"nodeAddresses":["10.1.0.5"]}`
	for name, tt := range map[string]struct {
		rule   device.Lookup
		policy string
		counts bool
	}{
		"no rule":                 {device.Lookup{Table: 201}, `{}`, false},
		"from all":                {device.Lookup{Table: 200}, `{}`, true},
		"from a rail":             {device.Lookup{Table: 200, Src: prefix("10.8.0.1/32")}, own, false},
		"from a network":          {device.Lookup{Table: 200, Src: prefix("10.0.0.0/8")}, `{}`, false},
		"from the node":           {device.Lookup{Table: 200, Src: prefix("10.1.0.5/32")}, own, true},
		"from the node's network": {device.Lookup{Table: 200, Src: prefix("10.0.0.0/8")}, own, true},
		"from half of all":        {device.Lookup{Table: 200, Src: prefix("0.0.0.0/1")}, `{}`, true},
		"to a network":            {device.Lookup{Table: 200, Dst: prefix("10.0.0.0/8")}, own, false},
		"to half of all":          {device.Lookup{Table: 200, Dst: prefix("128.0.0.0/1")}, own, true},
		"a mark":                  {device.Lookup{Table: 200, Mark: 7}, own, false},
		"all but a mark":          {device.Lookup{Table: 200, Mark: 7, Not: true}, `{}`, true},
		"all but a source":        {device.Lookup{Table: 200, Src: prefix("10.8.0.1/32"), Not: true}, `{}`, true},
		"incoming":                {device.Lookup{Table: 200, IIF: "eth0"}, own, false},
		"made by the host":        {device.Lookup{Table: 200, IIF: "lo"}, `{}`, true},
		"bound sockets":           {device.Lookup{Table: 200, OIF: "ibs108"}, own, false},
		"users":                   {device.Lookup{Table: 200, NotRoot: true}, own, false},
		"a tunnel":                {device.Lookup{Table: 200, Tunnel: true}, own, false},
		"from its own address": {
			device.Lookup{Table: 200, Src: prefix("10.8.0.1/32")},
			`{"nodeAddresses":["10.8.0.1"],"allowNodeAddress":["ens1f0"]}`, false,
		},
	} {
		p, err := parse("policy.json", []byte(tt.policy))
		if err != nil {
			t.Fatal(err)
		}
		d := with(netdev(nil), route("0.0.0.0/0", 200), address("10.8.0.1/24"))
		d.Uplink.Lookups = []device.Lookup{{Table: 254}, tt.rule}
		if err := p.Move(d); (err != nil) != tt.counts {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the agent has found counts like what the owner has written. A damaged file allows nothing.
func TestLoadAddresses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, NodeAddressesFile)
	own := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(own, []byte(`{"nodeAddresses":["10.1.0.5"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][]string{
		`{"addresses":["192.0.2.1","2001:db8::1"],"newer":1}`: {"10.1.0.5", "192.0.2.1", "2001:db8::1"},
		`{"addresses":["::ffff:192.0.2.1"]}`:                  {"10.1.0.5", "192.0.2.1"},
		`{"addresses":[]}`:                                    {"10.1.0.5"},
		``:                                                    nil, `null`: nil, `{}`: nil, `[]`: nil,
		`{"addresses":["x"]}`:      nil,
		`{"addresses":[]} x`:       nil,
		`{"addresses":["10.0.0.1"`: nil,
		`{"addresses":[]}` + strings.Repeat(" ", maxAddressesFile): nil,
	} {
		if err := os.WriteFile(file, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := Load(own, dir)
		if want == nil {
			if err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%.40s: %+v, %v", in, p, err)
			}
			continue
		}
		var got []string
		for _, a := range p.NodeAddresses {
			got = append(got, a.String())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
}
