// Package fabrics has Fabrics for tests: wrong ones, with the words that the API server must answer with.
package fabrics

import (
	"fmt"
	"strings"
)

// Wrong is a Fabric that `kubectl apply` must refuse.
type Wrong struct {
	Name string   // of the case
	Spec string   // in YAML; or the whole object, if it has a kind
	Want []string // parts of the answer: the field and the cure
}

// Object is the whole Fabric.
func (w *Wrong) Object() string { return Object("wrong", w.Spec) }

// Object makes a Fabric from the spec in YAML's flow style, with Spec's match.
func Object(name, spec string) string {
	spec = Spec(name, spec)
	return "apiVersion: fabric.dev/v1alpha1\nkind: Fabric\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

// Ranged is the spec of a Fabric of which each node has a part of a range.
func Ranged(cidr string, perNode int) string {
	return fmt.Sprintf("{addresses: {nodeRanges: {ranges: [{range: %s, perNodePrefixLength: %d}]}}}", cidr, perNode)
}

// Spec adds a match to a spec that has none: that for the discovered fabric of the Fabric's name.
func Spec(name, spec string) string {
	if strings.Contains(spec, "match: {") {
		return spec
	}
	rest, sep := strings.TrimPrefix(strings.TrimSpace(spec), "{"), ", "
	if strings.TrimSpace(rest) == "}" {
		sep = ""
	}
	return "{match: {discovered: " + name + "}" + sep + rest
}

// AllWrong are mistakes that people make, from simple typos to fields that contradict each other.
var AllWrong = []Wrong{
	{
		"no match",
		`{match: {}}`,
		[]string{`spec.match`, `must have a field: discovered: NAME takes the devices`},
	},
	{
		"discovered fabric with a wildcard",
		`{match: {discovered: "ib-*"}}`,
		[]string{`spec.match.discovered`, `must be the name of a fabric`},
	},
	{
		"selector of nodes as a map",
		`{nodeSelector: {pool: h20}}`,
		[]string{`unknown field "spec.nodeSelector.pool"`},
	},
	{
		"attachment misspelt",
		`{attachment: Both}`,
		[]string{`spec.attachment`, `"Both": supported values: "WholeDevice", "IPoIBChild"`},
	},
	{
		"attachment in lower case",
		`{attachment: wholeDevice}`,
		[]string{`supported values: "WholeDevice", "IPoIBChild"`},
	},
	{
		"allocation of another operator",
		`{allocation: SRIOV}`,
		[]string{`spec.allocation`, `"SRIOV"`},
	},
	{
		"a device file that is no choice",
		`{deviceFiles: [uverbs]}`,
		[]string{`spec.deviceFiles[0]`, `"uverbs": supported values: `},
	},
	{
		"a device file twice",
		`{deviceFiles: [UMAD, UMAD]}`,
		[]string{`spec.deviceFiles[1]`, `Duplicate value: "UMAD"`},
	},
	{
		"shares of a whole device",
		`{shares: 4}`,
		[]string{`spec.shares`, `remove it, or write attachment: IPoIBChild`},
	},
	{
		"no share",
		`{attachment: IPoIBChild, shares: 0}`,
		[]string{`spec.shares`, `0: spec.shares in body should be greater than or equal to 1`},
	},
	{
		"too many shares",
		`{attachment: IPoIBChild, shares: 5000}`,
		[]string{`spec.shares in body should be less than or equal to 1000`},
	},
	{
		"shares in words",
		`{attachment: IPoIBChild, shares: many}`,
		[]string{`spec.shares`},
	},
	{
		"unknown field",
		`{matches: {}}`,
		[]string{`unknown field "spec.matches"`},
	},
	{
		"unknown field of match",
		`{match: {rate: 200, rail: 0}}`,
		[]string{`unknown field "spec.match.rate"`},
	},
	{
		"unknown field of network",
		`{network: {mut: 4092}}`,
		[]string{`unknown field "spec.network.mut"`},
	},
	{
		"link layer of a kernel module",
		`{match: {linkLayer: IB}}`,
		[]string{`spec.match.linkLayer`, `"IB": supported values: "InfiniBand", "Ethernet"`},
	},
	{
		"Ethernet with a subnet prefix",
		`{match: {linkLayer: Ethernet, subnetPrefix: "fe80::"}}`,
		[]string{`spec.match.subnetPrefix`, `Ethernet ports have no subnet prefix`},
	},
	{
		"subnet prefix of IP",
		`{match: {subnetPrefix: 10.0.0.0/16}}`,
		[]string{`spec.match.subnetPrefix`, `want the upper 64 bits of a GID`},
	},
	{
		"driver with a path",
		`{match: {driver: ../mlx5_core}}`,
		[]string{`spec.match.driver`, `must be the name of a driver, as in mlx5_core`},
	},
	{
		"rate that no link has",
		`{match: {rateGb: 201}}`,
		[]string{`spec.match.rateGb`, `no link has this rate: want one of`},
	},
	{
		"rate with a unit",
		`{match: {rateGb: 200G}}`,
		[]string{`spec.match.rateGb`},
	},
	{
		"negative rail",
		`{match: {rail: -1}}`,
		[]string{`spec.match.rail`},
	},
	{
		"rails as a list",
		`{match: {rail: [0, 1]}}`,
		[]string{`spec.match.rail`},
	},
	{
		"address without domain",
		`{match: {devices: ["3b:00.0"]}}`,
		[]string{`PCI addresses have their domain: write 0000:3b:00.0`},
	},
	{
		"address in capitals",
		`{match: {devices: ["0000:3B:00.0"]}}`,
		[]string{`PCI addresses are in lower case: write 0000:3b:00.0`},
	},
	{
		"pattern with a space",
		`{match: {devices: ["ibs1 *"]}}`,
		[]string{`spec.match.devices[0]`, `no name of a device has white space`},
	},
	{
		"empty pattern",
		`{match: {devices: [""]}}`,
		[]string{`spec.match.devices[0]`},
	},
	{
		"pattern twice",
		`{match: {devices: [ib0, ib0]}}`,
		[]string{`spec.match.devices[1]`, `"ib0"`},
	},
	{
		"MTU too large",
		`{network: {mtu: 99999}}`,
		[]string{`spec.network.mtu in body should be less than or equal to 65520`},
	},
	{
		"MTU too small",
		`{network: {mtu: 60}}`,
		[]string{`spec.network.mtu in body should be greater than or equal to 68`},
	},
	{
		"mode of a whole device",
		`{network: {ipoibMode: Datagram}}`,
		[]string{`spec.network`, `ipoibMode and umcast are for attachment IPoIBChild only`},
	},
	{
		"PKey 0",
		`{attachment: IPoIBChild, network: {pkey: "0x8000"}}`,
		[]string{`spec.network.pkey`, `want 0x0001 to 0x7fff`},
	},
	{
		"PKey as a number",
		`{attachment: IPoIBChild, network: {pkey: 32769}}`,
		[]string{`spec.network.pkey`},
	},
	{
		"IPoIB mode misspelt",
		`{attachment: IPoIBChild, network: {ipoibMode: conn}}`,
		[]string{`spec.network.ipoibMode`, `"conn": supported values: "Datagram", "Connected"`},
	},
	{
		"RDMA name of an IPoIB child",
		`{attachment: IPoIBChild, network: {rdmaName: auto}}`,
		[]string{`spec.network.rdmaName`, `rdmaName is for attachment WholeDevice only`},
	},
	{
		"all ports of an IPoIB child",
		`{attachment: IPoIBChild, network: {allPorts: true}}`,
		[]string{`spec.network.allPorts`, `allPorts is for attachment WholeDevice only`},
	},
	{
		"type of service of an IPoIB child",
		`{attachment: IPoIBChild, network: {tos: 106}}`,
		[]string{`spec.network`, `tos, roceMode and trafficClass are for attachment WholeDevice only`},
	},
	{
		"type of service of nine bits",
		`{network: {tos: 256}}`,
		[]string{`spec.network.tos`, `less than or equal to 255`},
	},
	{
		"RoCE mode as the plugin has it",
		`{network: {roceMode: v2}}`,
		[]string{`spec.network.roceMode`, `"v2": supported values: "V1", "V2"`},
	},
	{
		"RDMA mode in lower case",
		`{network: {rdmaMode: exclusive}}`,
		[]string{`spec.network.rdmaMode`, `"exclusive": supported values: "Any", "Exclusive", "Shared", "Ignore"`},
	},
	{
		"namespace with a wildcard",
		`{namespaces: {names: ["team-*"]}}`,
		[]string{`spec.namespaces.names[0]`, `want the name of a namespace`},
	},
	{
		"two sources of addresses",
		`{addresses: {ipam: {type: whereabouts, range: 10.0.0.0/16}, nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}]}}}`,
		[]string{`spec.addresses`, `want exactly one of nodeRanges, ipam and host`},
	},
	{
		"no source of addresses",
		`{addresses: {}}`,
		[]string{`spec.addresses`, `want exactly one of nodeRanges, ipam and host`},
	},
	{
		"two sources of addresses, one of them the host",
		`{addresses: {host: {}, ipam: {type: whereabouts, range: 10.0.0.0/16}}}`,
		[]string{`spec.addresses`, `want exactly one of nodeRanges, ipam and host`},
	},
	{
		"IPAM without a type",
		`{addresses: {ipam: {range: 10.0.0.0/16}}}`,
		[]string{`spec.addresses.ipam.type: Required value`},
	},
	{
		"IPAM type with a path",
		`{addresses: {ipam: {type: ../bash}}}`,
		[]string{`spec.addresses.ipam.type`, `want the file name of an IPAM plugin`},
	},
	{
		"nv-ipam without a pool",
		`{addresses: {ipam: {type: nv-ipam}}}`,
		[]string{`spec.addresses.ipam.poolName`, `nv-ipam needs the name of an IPPool or CIDRPool`},
	},
	{
		"nv-ipam with a pool of no kind",
		`{addresses: {ipam: {type: nv-ipam, poolName: a, poolType: pool}}}`,
		[]string{`spec.addresses.ipam.poolType`, `want ippool or cidrpool`},
	},
	{
		"range without a length",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0, perNodePrefixLength: 26}]}}}`,
		[]string{`ranges[0].range`, `want an address with a prefix length`},
	},
	{
		"range with host bits",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.5/16, perNodePrefixLength: 26}]}}}`,
		[]string{`ranges[0].range`, `has bits of an address behind its prefix length`},
	},
	{
		"part larger than the range",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 12}]}}}`,
		[]string{`ranges[0].perNodePrefixLength`, `want a prefix length from that of 10.0.0.0/16 to 30`},
	},
	{
		"part without addresses",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 32}]}}}`,
		[]string{`ranges[0].perNodePrefixLength`, `want a prefix length`},
	},
	{
		"part as text",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: /26}]}}}`,
		[]string{`ranges[0].perNodePrefixLength`},
	},
	{
		"no range",
		`{addresses: {nodeRanges: {ranges: []}}}`,
		[]string{`spec.addresses.nodeRanges.ranges`, `0`},
	},
	{
		"two ranges of one family",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}, {range: 10.1.0.0/16, perNodePrefixLength: 26}]}}}`,
		[]string{`spec.addresses.nodeRanges.ranges`, `two ranges are one of IPv4 and one of IPv6`},
	},
	{
		"exclusion elsewhere",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26, exclude: [10.1.0.0/26]}]}}}`,
		[]string{`ranges[0].exclude`, `want ranges and addresses that lie within 10.0.0.0/16`},
	},
	{
		"static range elsewhere",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}], static: [{node: a, range: 10.1.0.0/26}]}}}`,
		[]string{`spec.addresses.nodeRanges.static`, `each static range lies within a range`},
	},
	{
		"static range of another length",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}], static: [{node: a, range: 10.0.0.0/24}]}}}`,
		[]string{`as long as its perNodePrefixLength says`},
	},
	{
		"node with two static ranges",
		`{addresses: {nodeRanges: {ranges: [{range: 10.0.0.0/16, perNodePrefixLength: 26}], static: [{node: a, range: 10.0.0.0/26}, {node: a, range: 10.0.0.64/26}]}}}`,
		[]string{`static[1]: Duplicate value`},
	},
	{
		"counter with a path",
		`{health: {counters: [{counter: ../x, perMinute: 1}]}}`,
		[]string{`spec.health.counters[0].counter`},
	},
	{
		"counter without a limit",
		`{health: {counters: [{counter: symbol_error}]}}`,
		[]string{`spec.health.counters[0].perMinute: Required value`},
	},
	{
		"action of no meaning",
		`{health: {action: Reboot}}`,
		[]string{`spec.health.action`, `"Reboot": supported values: "Report", "Withhold"`},
	},
}
