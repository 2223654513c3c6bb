package fabrics_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/clusternet"
	"github.com/fabric-cni/fabric-cni/internal/fabrics"
)

func uses() []clusternet.Use {
	p := netip.MustParsePrefix
	return []clusternet.Use{
		{Prefix: p("192.0.2.7/32"), What: "address of Node n1"},
		{Prefix: p("10.96.0.0/16"), What: "ServiceCIDR kubernetes", Sure: true},
		{Prefix: p("10.7.0.0/28"), What: "whereabouts IPPool 10.7.0.0-28",
			Pool: clusternet.Pool{Group: clusternet.Whereabouts, Kind: "IPPool", Name: "10.7.0.0-28"}},
		{Prefix: p("10.8.0.0/28"), What: "whereabouts IPPool 10.8.0.0-28", Idle: true,
			Pool: clusternet.Pool{Group: clusternet.Whereabouts, Kind: "IPPool", Name: "10.8.0.0-28"}},
		{Prefix: p("10.5.0.0/24"), What: "nv-ipam CIDRPool rail-0",
			Pool: clusternet.Pool{Group: "nv-ipam.nvidia.com", Kind: "CIDRPool", Name: "rail-0"}},
		{Prefix: p("10.5.0.0/26"), What: "podCIDRs of Node n1", Sure: true},
	}
}

// A fabric meets what has addresses of its subnets and routes, but not its own pools.
func TestMeets(t *testing.T) {
	for _, c := range []struct{ spec, want string }{
		{`{}`, "<nil>"},
		{`{addresses: {nodeRanges: {ranges: [{range: 198.18.0.0/16, perNodePrefixLength: 27}]}}}`, "<nil>"},
		{`{addresses: {nodeRanges: {ranges: [{range: 10.96.128.0/20, perNodePrefixLength: 27}]}}}`,
			"addresses.nodeRanges 10.96.128.0/20 meets ServiceCIDR kubernetes (10.96.0.0/16): pods would send to " +
				"these addresses through the rail; choose another range (docs/addresses.md)"},
		{`{addresses: {nodeRanges: {ranges: [{range: 192.0.2.0/24, perNodePrefixLength: 27, ` +
			`exclude: [192.0.2.0/28]}]}}}`,
			"addresses.nodeRanges 192.0.2.0/24 meets address of Node n1 (192.0.2.7/32): addresses that both have " +
				"can't be reached; choose another range (docs/addresses.md)"},
		{`{addresses: {ipam: {type: whereabouts, range: 10.7.0.0/28}}}`, "<nil>"},
		{`{addresses: {ipam: {type: whereabouts, range: 10.7.0.0/28, network_name: x}}}`,
			"addresses.ipam.range 10.7.0.0/28 meets whereabouts IPPool 10.7.0.0-28 (10.7.0.0/28): addresses that " +
				"both have can't be reached; choose another range (docs/addresses.md)"},
		{`{addresses: {nodeRanges: {ranges: [{range: 10.8.0.0/24, perNodePrefixLength: 27}]}}}`, "<nil>"},
		{`{addresses: {ipam: {type: nv-ipam, poolName: rail-0, poolType: cidrpool}}}`,
			"addresses.ipam: nv-ipam CIDRPool rail-0 10.5.0.0/24 meets podCIDRs of Node n1 (10.5.0.0/26): pods would " +
				"send to these addresses through the rail; choose another range (docs/addresses.md)"},
		{`{addresses: {ipam: {type: host-local, ranges: [[{subnet: 198.18.0.0/24}]], routes: [{dst: 0.0.0.0/0},
		  {dst: 10.96.4.0/24}]}}}`,
			"addresses.ipam.routes[1].dst 10.96.4.0/24 meets ServiceCIDR kubernetes (10.96.0.0/16): pods would send " +
				"to these addresses through the rail; choose another range (docs/addresses.md)"},
		{`{network: {sourceBasedRouting: true}, addresses: {ipam: {type: host-local,
		  ranges: [[{subnet: 198.18.0.0/24}]], routes: [{dst: 10.96.4.0/24}]}}}`, "<nil>"},
		{`{addresses: {nodeRanges: {ranges: [{range: 0.0.0.0/1, perNodePrefixLength: 27}]}}}`,
			"addresses.nodeRanges 0.0.0.0/1 meets ServiceCIDR kubernetes (10.96.0.0/16), podCIDRs of Node n1 " +
				"(10.5.0.0/26), nv-ipam CIDRPool rail-0 (10.5.0.0/24) and 1 more: pods would send to these addresses " +
				"through the rail; choose another range (docs/addresses.md)"},
	} {
		if got := fmt.Sprint(parse(t, "ib", c.spec).Meets(uses()).Err()); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.spec, got, c.want)
		}
	}
}

// Only what is new and cuts pods off is refused.
func TestBreaks(t *testing.T) {
	with := func(of string) *fabrics.Fabric {
		t.Helper()
		return parse(t, "ib", `{addresses: {nodeRanges: {ranges: [{range: `+of+`, perNodePrefixLength: 28}]}}}`)
	}
	service, node := with("10.96.1.0/24"), with("192.0.2.0/24")
	for _, c := range []struct {
		name         string
		f, force     *fabrics.Fabric
		want, breaks bool
	}{
		{"new", service, nil, true, true},
		{"in force", service, service, true, false},
		{"changed", service, node, true, true},
		{"an address of a Node", node, nil, true, false},
		{"free", with("198.18.0.0/24"), service, false, false},
	} {
		met := c.f.Meets(uses())
		if len(met) > 0 != c.want || len(met.Breaks(c.force)) > 0 != c.breaks {
			t.Errorf("%s: %v, breaks %v", c.name, met, met.Breaks(c.force))
		}
	}
}
