package ipam

// sameCase is a configuration that is given to the built-in plugin and to its executable. DIR stands for the test's
// directory, which has a resolv.conf.
type sameCase struct {
	name  string
	ipam  string // the section; "": the whole configuration is conf
	conf  string // more of the configuration, or all of it
	args  string // CNI_ARGS
	steps string // "": short, or cycle for each version where the case is for all; "ADD/2" is of another container
	all   bool   // for each version of the specification
}

const (
	short = "ADD CHECK ADD/2 DEL"
	// cycle has an attachment added, looked at, added twice, and removed twice; and another beside it.
	cycle = "STATUS ADD CHECK ADD ADD/2 CHECK/2 DEL DEL CHECK ADD DEL/2 GC"
)

var sameStatic = []sameCase{
	{name: "one address", ipam: `"addresses":[{"address":"10.0.0.5/24"}]`},
	{name: "everything", all: true,
		ipam: `"addresses":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"},{"address":"fd00::5/64",` +
			`"gateway":"fd00::1"}],"routes":[{"dst":"0.0.0.0/0"},{"dst":"10.8.0.0/16","gw":"10.0.0.9","mtu":1400,` +
			`"advmss":1300,` +
			`"priority":5,"table":100,"scope":253}],"dns":{"nameservers":["10.0.0.53"],"domain":"a","search":["b"],` +
			`"options":["c"]}`},
	{name: "host bits", ipam: `"addresses":[{"address":"::ffff:10.0.0.5/120"}]`},
	{name: "no address", ipam: `"routes":[{"dst":"0.0.0.0/0"}]`},
	{name: "no prefix length", ipam: `"addresses":[{"address":"10.0.0.5"}]`},
	{name: "no such address", ipam: `"addresses":[{"address":"nonsense"}]`},
	{name: "empty address", ipam: `"addresses":[{}]`},
	{name: "no such gateway", ipam: `"addresses":[{"address":"10.0.0.5/24","gateway":"router"}]`},
	{name: "no such route", ipam: `"addresses":[{"address":"10.0.0.5/24"}],"routes":[{"dst":"10.0.0.0"}]`},
	{name: "wrong types", ipam: `"addresses":"10.0.0.5/24"`},
	{name: "wrong type inside", ipam: `"addresses":[{"address":5}]`},
	{name: "two of a family", all: true, ipam: `"addresses":[{"address":"10.0.0.5/24"},{"address":"10.0.0.6/24"}]`},
	{name: "CNI_ARGS",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		args: "IP=10.0.1.5/24, fd00::5/64;GATEWAY=10.0.1.1,fd00::1"},
	{name: "CNI_ARGS for a gateway in the configuration",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		args: "GATEWAY=10.0.0.1"},
	{name: "CNI_ARGS without prefix length", ipam: `"addresses":[]`, args: "IP=10.0.1.5"},
	{name: "CNI_ARGS without gateway", ipam: `"addresses":[{"address":"10.0.0.5/24"}]`, args: "GATEWAY=x"},
	{name: "CNI_ARGS of Kubernetes",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		args: "IgnoreUnknown=1;K8S_POD_NAME=p"},
	{name: "CNI_ARGS unknown", ipam: `"addresses":[{"address":"10.0.0.5/24"}]`, args: "K8S_POD_NAME=p"},
	{name: "CNI_ARGS broken", ipam: `"addresses":[{"address":"10.0.0.5/24"}]`, args: "IP"},
	{name: "args",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		conf: `,"args":{"cni":{"ips":["10.1.0.5/16","fd00::7/64"]}}`,
		args: "IP=10.0.1.5/24"},
	{name: "args broken", ipam: `"addresses":[]`, conf: `,"args":{"cni":{"ips":["10.1.0.5"]}}`},
	{name: "args of others", ipam: `"addresses":[{"address":"10.0.0.5/24"}]`, conf: `,"args":{"labels":[]}`},
	{name: "runtimeConfig",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		conf: `,"runtimeConfig":{"ips":["10.2.0.5/16"],"mac":"x"},` +
			`"args":{"cni":{"ips":["10.1.0.5/16"]}}`},
	{name: "runtimeConfig broken", ipam: `"addresses":[]`, conf: `,"runtimeConfig":{"ips":["10.1.0.5"]}`},
	{name: "null", ipam: `"addresses":null,"routes":null,"dns":null`, conf: `,"args":null,"runtimeConfig":null`},
	{name: "prevResult", all: true, ipam: `"addresses":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}]`,
		conf: `,"prevResult":{"cniVersion":"VERSION","ips":[{"version":"4","address":"10.0.0.5/24",` +
			`"gateway":"10.0.0.1"}]}`},
	{name: "prevResult with another gateway", ipam: `"addresses":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}]`,
		conf: `,"prevResult":{"cniVersion":"VERSION","ips":[{"version":"4","address":"10.0.0.5/24",` +
			`"gateway":"10.0.0.9"}]}`},
	{name: "prevResult without address",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		conf: `,"prevResult":{"cniVersion":"VERSION","ips":[]}`},
	{name: "prevResult of another kind",
		ipam: `"addresses":[{"address":"10.0.0.5/24"}]`,
		conf: `,"prevResult":{"cniVersion":"VERSION","ips":5}`},
}

var sameHostLocal = []sameCase{
	{name: "subnet", ipam: `"subnet":"10.4.0.0/24"`},
	{name: "small", ipam: `"subnet":"10.4.0.0/30"`},
	{name: "everything of one", all: true,
		ipam: `"subnet":"10.4.0.0/24","rangeStart":"10.4.0.9","rangeEnd":"10.4.0.10","gateway":"10.4.0.254",` +
			`"routes":[{"dst":"0.0.0.0/0","gw":"10.4.0.253"}],"resolvConf":"DIR/resolv.conf"`},
	{name: "two sets", all: true,
		ipam: `"ranges":[[{"subnet":"10.4.0.0/29"},{"subnet":"10.5.0.0/30","gateway":"10.5.0.2"}],[{` +
			`"subnet":"fd00:4::/64"}]]`},
	{name: "old and new", ipam: `"subnet":"10.4.0.0/24","ranges":[[{"subnet":"10.5.0.0/24"}]]`},
	{name: "IPv6", ipam: `"subnet":"fd00:4::/120","rangeStart":"fd00:4::fe"`},
	{name: "IPv6 to the end",
		ipam: `"ranges":[[{"subnet":"fd00:4::/127","gateway":"fd00:4::1"}],[{"subnet":"10.0.0.0/8"}]]`},
	{name: "one left, second set full",
		ipam: `"ranges":[[{"subnet":"10.4.0.0/24"}],[{"subnet":"10.5.0.0/24","rangeStart":"10.5.0.9",` +
			`"rangeEnd":"10.5.0.9"}]]`},
	{name: "start at the gateway",
		ipam: `"ranges":[[{"subnet":"10.4.0.0/29","rangeStart":"10.4.0.1","rangeEnd":"10.4.0.2"},{` +
			`"subnet":"10.4.0.8/29","gateway":"10.4.0.9"}]]`,
		steps: "ADD ADD/2 ADD/3 ADD/4 DEL/2 ADD/5 DEL/5 ADD/6"},
	{name: "only the gateway", ipam: `"subnet":"10.4.0.0/24","rangeStart":"10.4.0.1","rangeEnd":"10.4.0.1"`},
	{name: "round and round",
		ipam:  `"subnet":"10.4.0.0/29"`,
		steps: "ADD/1 DEL/1 ADD/2 DEL/2 ADD/3 ADD/4 ADD/5 ADD/6 ADD/7 ADD/8 DEL/4 ADD/9"},
	{name: "no range", ipam: `"routes":[]`},
	{name: "empty set", ipam: `"ranges":[[]]`},
	{name: "empty range", ipam: `"ranges":[[{}]]`},
	{name: "host bits", ipam: `"subnet":"10.4.0.5/24"`},
	{name: "too small", ipam: `"subnet":"10.4.0.0/31"`},
	{name: "IPv4 in IPv6", ipam: `"subnet":"::ffff:10.4.0.0/120"`},
	{name: "start outside", ipam: `"subnet":"10.4.0.0/24","rangeStart":"10.5.0.1"`},
	{name: "end outside", ipam: `"subnet":"10.4.0.0/24","rangeEnd":"10.5.0.1"`},
	{name: "end of another family", ipam: `"subnet":"10.4.0.0/24","rangeStart":"10.4.0.4","rangeEnd":"fd00::1"`},
	{name: "end before start", ipam: `"subnet":"10.4.0.0/24","rangeStart":"10.4.0.9","rangeEnd":"10.4.0.8"`},
	{name: "overlapping ranges",
		ipam: `"ranges":[[{"subnet":"10.4.0.0/24"},{"subnet":"10.5.0.0/24"},{"subnet":"10.5.0.0/25"}]]`},
	{name: "overlapping sets",
		ipam: `"ranges":[[{"subnet":"10.6.0.0/24"}],[{"subnet":"10.4.0.0/24"}],[{"subnet":"10.4.0.0/25"}]]`},
	{name: "mixed families", ipam: `"ranges":[[{"subnet":"10.4.0.0/24"},{"subnet":"fd00::/64"}]]`},
	{name: "gateway outside", ipam: `"subnet":"10.4.0.0/24","gateway":"192.168.0.1"`},
	{name: "no such subnet", ipam: `"subnet":"nonsense"`},
	{name: "no such gateway", ipam: `"subnet":"10.4.0.0/24","gateway":"router"`},
	{name: "wrong types", ipam: `"ranges":{"subnet":"10.4.0.0/24"}`},
	{name: "wrong type inside", ipam: `"ranges":[[{"subnet":5}]]`},
	{name: "CNI_ARGS", ipam: `"subnet":"10.4.0.0/24"`, args: "IP=10.4.0.77"},
	{name: "CNI_ARGS with a prefix length",
		ipam: `"ranges":[[{"subnet":"10.4.0.0/24"}],[{"subnet":"fd00::/64"}]]`,
		args: "IgnoreUnknown=true;IP=fd00::77/64;A=B"},
	{name: "CNI_ARGS empty", ipam: `"subnet":"10.4.0.0/24"`, args: "IP="},
	{name: "CNI_ARGS the gateway", ipam: `"subnet":"10.4.0.0/24"`, args: "IP=10.4.0.1"},
	{name: "CNI_ARGS elsewhere", ipam: `"subnet":"10.4.0.0/24"`, args: "IP=10.9.0.1"},
	{name: "CNI_ARGS no address", ipam: `"subnet":"10.4.0.0/24"`, args: "IP=x"},
	{name: "CNI_ARGS unknown", ipam: `"subnet":"10.4.0.0/24"`, args: "A=B"},
	{name: "args",
		ipam: `"ranges":[[{"subnet":"10.4.0.0/24"}],[{"subnet":"fd00::/64"}]]`,
		conf: `,"args":{"cni":{"ips":["fd00::8","10.4.0.8"]}}`},
	{name: "args too many",
		ipam: `"subnet":"10.4.0.0/24"`,
		conf: `,"args":{"cni":{"ips":["10.4.0.8","10.4.0.8/24","fd00::8"]}}`},
	{name: "args broken", ipam: `"subnet":"10.4.0.0/24"`, conf: `,"args":{"cni":{"ips":["10.4.0"]}}`},
	{name: "args empty", ipam: `"subnet":"10.4.0.0/24"`, conf: `,"args":{"cni":{"ips":[""]}}`},
	{name: "runtimeConfig",
		ipam: `"subnet":"10.4.0.0/24"`,
		conf: `,"runtimeConfig":{"ips":["10.4.0.9"],"ipRanges":[[{"subnet":"10.3.0.0/24"}]]}`},
	{name: "runtimeConfig and no range",
		ipam: `"routes":null`,
		conf: `,"runtimeConfig":{"ipRanges":[[{"subnet":"10.3.0.0/24"}]]}`},
	{name: "no resolv.conf", ipam: `"subnet":"10.4.0.0/24","resolvConf":"DIR/nothing"`,
		steps: "ADD ADD/2"}, // here CHECK and DEL of it create nothing
	{name: "dataDir is a file", ipam: `"subnet":"10.4.0.0/24","dataDir":"DIR/resolv.conf"`, steps: "ADD ADD/2"},
}

// sameAny are for both plugins.
var sameAny = []sameCase{
	{name: "no configuration", conf: ` `},
	{name: "no JSON", all: true, conf: `{"name":`},
	{name: "null", conf: `null`},
	{name: "no name", conf: `{"cniVersion":"VERSION"}`},
	{name: "bad name", conf: `{"cniVersion":"VERSION","name":"a b"}`},
	{name: "no ipam", conf: `{"cniVersion":"VERSION","name":"n"}`},
	{name: "ipam is a text", conf: `{"cniVersion":"VERSION","name":"n","ipam":"TYPE"}`},
	{name: "bad version", conf: `{"cniVersion":"x","name":"n","ipam":{"type":"TYPE"}}`},
	{name: "future version", conf: `{"cniVersion":"1.9.0","name":"n","ipam":{"type":"TYPE"}}`, steps: "ADD DEL"},
	{name: "no container", ipam: `"subnet":"10.4.0.0/24"`, steps: "ADD/- CHECK/- DEL/-"},
	{name: "bad container", ipam: `"subnet":"10.4.0.0/24"`, steps: "ADD// DEL//"},
}
