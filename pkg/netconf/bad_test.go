package netconf

import (
	"errors"
	"strings"
	"testing"
)

// conf is a configuration that parses, extended by some fields.
func conf(extra string) string {
	base := `"cniVersion":"1.1.0","name":"n","type":"fabric"`
	if extra != "" {
		base += "," + extra
	}
	return "{" + base + "}"
}

// wantError asserts the code and that the message has all parts.
func wantError(t *testing.T, stdin string, env Env, code uint, parts ...string) {
	t.Helper()
	c, err := Parse([]byte(stdin), env)
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("%.200s: got %+v, %v; want an *Error", stdin, c, err)
		return
	}
	if e.Code != code {
		t.Errorf("%.200s: code %d, want %d: %v", stdin, e.Code, code, err)
	}
	if strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 700 {
		t.Errorf("%.200s: not a line: %.900q", stdin, err.Error())
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%.200s:\n got %v\nwant %s", stdin, err, p)
		}
	}
}

var long = strings.Repeat("x", 300)

// badValues lists fields that are refused, and what the message has to say.
var badValues = []struct{ extra, field, value, allowed string }{
	{`"deviceID":"eth0"`, "deviceID", `"eth0"`, "PCI address"},
	{`"deviceID":7`, "deviceID", "7", "PCI address"},
	{`"deviceID":"3"`, "deviceID", `"3"`, "shared device plugin"},
	{`"pciBusID":"../0000:3b:00.2"`, "pciBusID", "..", "PCI address"},
	{`"runtimeConfig":{"deviceID":"x"}`, "runtimeConfig.deviceID", `"x"`, "auxiliary device"},
	{`"runtimeConfig":[]`, "runtimeConfig", "[]", "an object"},
	{`"device":"a/b"`, "device", `"a/b"`, "127 characters"},
	{`"device":"` + long + `"`, "device", `"xxx`, "127 characters"},
	{`"device":"0000:3b:00.2"`, "device", `"0000:3b:00.2"`, `"deviceID"`},
	{`"hwaddr":"00:00:00:00:00:00"`, "hwaddr", "00:00:00:00:00:00", "6 or 20 bytes"},
	{`"hwaddr":"02:00:00:00:00"`, "hwaddr", "02:00:00:00:00", "6 or 20 bytes"},
	{`"kernelpath":"/etc/passwd"`, "kernelpath", "/etc/passwd", "/sys/devices/"},
	{`"kernelpath":"/sys/devices/../../etc"`, "kernelpath", "/sys/devices/../../etc", "/sys/devices/"},
	{`"kernelpath":"/sys/devices/"`, "kernelpath", "/sys/devices/", "/sys/devices/"},
	{`"kernelpath":"/sys/devices/a/../b"`, "kernelpath", "/sys/devices/a/../b", `".."`},
	{`"rdmaDevice":"a/b"`, "rdmaDevice", `"a/b"`, "63 characters"},
	{`"rdmaDevice":"mlx5_%d"`, "rdmaDevice", `"mlx5_%d"`, "'%'"},
	{`"guid":"00:00:00:00:00:00:00:00"`, "guid", "00:00", "8 bytes"},
	{`"guid":"x","device":"d"`, "guid", `"x"`, "8 bytes"},
	{
		`"device":"d","runtimeConfig":{"infinibandGUID":"ffffffffffffffff"}`,
		"runtimeConfig.infinibandGUID",
		"ffffffffffffffff",
		"all ones",
	},
	{`"device":"d","args":{"cni":{"guid":"1"}}`, "args.cni.guid", `"1"`, "8 bytes"},
	{`"device":"d","args":{"cni":7}`, "args.cni", "7", "an object"},
	{`"device":"d","mtu":99999`, "mtu", "99999", "68 to 65520"},
	{`"device":"d","mtu":67`, "mtu", "67", "68 to 65520"},
	{`"device":"d","mtu":-1`, "mtu", "-1", "68 to 65520"},
	{`"device":"d","mtu":"1500"`, "mtu", `"1500"`, "68 to 65520"},
	{`"device":"d","mtu":1.5e3`, "mtu", "1.5e3", "68 to 65520"},
	{`"device":"d","mtu":99999999999999999999`, "mtu", "99999999999999999999", "68 to 65520"},
	{`"device":"d","mode":"ipvlan"`, "mode", `"ipvlan"`, "device, ipoib, rdma"},
	{`"device":"d","rdma":"yes"`, "rdma", `"yes"`, "auto, exclusive, shared, none"},
	{`"device":"d","rdma":true`, "rdma", "true", "auto, exclusive, shared, none"},
	{`"device":"d","rdmaIsolation":"true"`, "rdmaIsolation", `"true"`, "true or false"},
	{`"device":"d","rdma":"none","rdmaIsolation":true`, "rdmaIsolation", "true", `"rdma", which is "none"`},
	{`"device":"d","rdma":"auto","rdmaIsolation":false`, "rdmaIsolation", "false", `"rdma", which is "auto"`},
	{`"device":"d","rdmaName":"a%b"`, "rdmaName", `"a%b"`, "63 characters"},
	{`"device":"d","rdmaName":"` + long[:64] + `"`, "rdmaName", "xxx", "63 characters"},
	{`"device":"d","rdmaName":"r0","rdma":"none"`, "rdmaName", `"r0"`, `"auto" or "exclusive"`},
	{`"device":"d","tos":256`, "tos", "256", "0 to 255"},
	{`"device":"d","tos":"0x6a"`, "tos", `"0x6a"`, "0 to 255: DSCP * 4 + ECN, such as 106"},
	{`"device":"d","trafficClass":-1`, "trafficClass", "-1", "0 to 255"},
	{`"device":"d","roceMode":"V2"`, "roceMode", `"V2"`, "v1, v2"},
	{`"device":"d","tos":106,"rdma":"none"`, "tos", "106", "moved"},
	{`"master":"m","trafficClass":106`, "trafficClass", "106", "moved"},
	{`"device":"d","roceMode":"v2","rdma":"shared"`, "roceMode", `"v2"`, "moved"},
	{`"device":"d","allowDown":1`, "allowDown", "1", "true or false"},
	{`"device":"d","detectConflicts":"yes"`, "detectConflicts", `"yes"`, "true or false"},
	{`"device":"d","mode":"rdma","detectConflicts":true`, "detectConflicts", "true", `mode "rdma"`},
	{`"device":"d","hostAddresses":1`, "hostAddresses", "1", "true or false"},
	{`"device":"d","hostAddresses":true,"ipam":{"type":"static"}`, "hostAddresses", "true", `without "ipam"`},
	{`"device":"d","hostAddresses":true,"runtimeConfig":{"ips":["10.0.0.1/8"]}`, "hostAddresses", "true", "pod's own"},
	{`"device":"d","mode":"rdma","hostAddresses":true`, "hostAddresses", "true", `mode "device" only`},
	{`"master":"m","mode":"ipoib","hostAddresses":true`, "hostAddresses", "true", `mode "device" only`},
	{`"device":"d","allPorts":1`, "allPorts", "1", "true or false"},
	{`"device":"d","allPorts":true,"rdma":"none"`, "allPorts", "true", "with an RDMA device"},
	{`"device":"d","allPorts":true,"mac":"02:00:00:00:00:01"`, "allPorts", "true", "without MAC"},
	{`"device":"d","allPorts":true,"runtimeConfig":{"ips":["10.0.0.1/8"]}`, "allPorts", "true", "pod's own"},
	{`"device":"d","mode":"rdma","allPorts":true`, "allPorts", "true", `mode "device" only`},
	{`"master":"m","mode":"ipoib","allPorts":true`, "allPorts", "true", `mode "device" only`},
	{`"device":"d","keepLeases":true`, "keepLeases", "true", `beside "hostAddresses"`},
	{`"device":"d","ignoreRADefaultRoute":"v0"`, "ignoreRADefaultRoute", `"v0"`, "true or false"},
	{`"device":"d","routing":true`, "routing", "true", "an object"},
	{`"device":"d","routing":{"sourceBased":"yes"}`, "routing.sourceBased", `"yes"`, "true or false"},
	{`"device":"d","linkState":"up"`, "linkState", `"up"`, "auto, enable, disable"},
	{`"device":"d","link_state":"up"`, "link_state", `"up"`, "auto, enable, disable"},
	{`"device":"d","spoofchk":"yes"`, "spoofchk", `"yes"`, "on, off"},
	{`"device":"d","trust":true`, "trust", "true", "on, off"},
	{`"device":"d","vlan":4095`, "vlan", "4095", "0 to 4094"},
	{`"device":"d","vlan":"5"`, "vlan", `"5"`, "0 to 4094"},
	{`"device":"d","vlan":5,"vlanQoS":8`, "vlanQoS", "8", "0 to 7"},
	{`"device":"d","vlanQoS":1`, "vlanQoS", "1", `beside "vlan"`},
	{`"device":"d","vlan":0,"vlanQoS":1`, "vlanQoS", "1", "vlan"},
	{`"device":"d","vlan":5,"vlanProto":"802.1x"`, "vlanProto", `"802.1x"`, "802.1q, 802.1ad"},
	{`"device":"d","vlanProto":"802.1q"`, "vlanProto", `"802.1q"`, `beside "vlan"`},
	{`"device":"d","vlan":0,"vlanProto":"802.1AD"`, "vlanProto", `"802.1AD"`, "1 to 4094"},
	{`"device":"d","min_tx_rate":-1`, "min_tx_rate", "-1", "0 to"},
	{`"device":"d","maxTxRate":4294967296`, "maxTxRate", "4294967296", "Mb/s"},
	{`"device":"d","min_tx_rate":200,"max_tx_rate":100`, "min_tx_rate", "200", `at most "max_tx_rate", which is 100`},
	{`"device":"d","mac":"01:00:00:00:00:01"`, "mac", "01:00:00:00:00:01", "unicast"},
	{`"device":"d","runtimeConfig":{"mac":"x"}`, "runtimeConfig.mac", `"x"`, "6 bytes"},
	{`"device":"d","runtimeConfig":{"ips":["10.0.0.1/33"]}`, "runtimeConfig.ips", "10.0.0.1/33", "IP address"},
	{`"device":"d","runtimeConfig":{"ips":"10.0.0.1"}`, "runtimeConfig.ips", "10.0.0.1", "list"},
	{`"device":"d","ibKubernetesEnabled":"yes"`, "ibKubernetesEnabled", `"yes"`, "true or false"},
	{`"device":"d","vfioPciMode":0`, "vfioPciMode", "0", "true or false"},
	{`"device":"d","ipam":[]`, "ipam", "[]", "an object"},
	{`"device":"d","ipam":{"type":"../sh"}`, "ipam.type", `"../sh"`, "without a path"},
	{`"device":"d","ipam":{"type":"fabric"}`, "ipam.type", `"fabric"`, "start itself"},
	{`"device":"d","ipam":{"type":"host-device"}`, "ipam.type", `"host-device"`, "start itself"},
	{`"device":"d","ipam":{"type":5}`, "ipam.type", "5", "name of a plugin"},
	{`"device":"d","dns":{"nameservers":"1.1.1.1"}`, "dns.nameservers", "1.1.1.1", "list of strings"},
	{`"device":"d","dns":{"search":[1]}`, "dns.search", "[1]", "list of strings"},
	{`"device":"d","capabilities":7`, "capabilities", "7", "an object"},
	{`"device":"d","prevResult":"x"`, "prevResult", `"x"`, "an object"},
	{`"device":"d","logLevel":"loud"`, "logLevel", `"loud"`, "error, warning, info, debug"},
	{`"device":"d","logFile":"x.log"`, "logFile", `"x.log"`, "absolute path"},
	{`"device":"d","logFile":"/var/log/../../etc/x"`, "logFile", "..", "absolute path"},
	{`"device":"d","ipoibMode":"datagram"`, "ipoibMode", `"datagram"`, `mode "device"`},
	{`"device":"d","umcast":true`, "umcast", "true", `mode "device"`},
	{`"mode":"ipoib"`, "master", "missing", "parent"},
	{`"master":"a b"`, "master", `"a b"`, "altname"},
	{`"master":"m","pkey":"0x8000"`, "pkey", `"0x8000"`, "0x0001 to 0x7fff"},
	{`"master":"m","pkey":65536`, "pkey", "65536", "0x0001 to 0x7fff"},
	{`"master":"m","pkey":{}`, "pkey", "{}", "0x0001 to 0x7fff"},
	{`"master":"m","ipoibMode":"fast"`, "ipoibMode", `"fast"`, "datagram, connected"},
	{`"master":"m","umcast":2`, "umcast", "2", "true or false"},
	{`"master":"m","vlan":5`, "vlan", "5", `mode "device" only`},
	{`"master":"m","runtimeConfig":{"mac":"02:00:00:00:00:01"}`, "runtimeConfig.mac", "02:00", `mode "device" only`},
	{`"mode":"ipoib","master":"m","device":"d"`, "device", `"d"`, `"master"`},
	{`"master":"m","guid":"0002c90300fa0010"`, "guid", "0002c90300fa0010", `"master"`},
	{`"master":"m","rdma":"exclusive"`, "rdma", `"exclusive"`, "stays on the host"},
	{`"master":"m","rdmaName":"r0"`, "rdmaName", `"r0"`, "moved"},
	{`"mode":"rdma","device":"d","trust":"on"`, "trust", `"on"`, `mode "device" only`},
	{`"mode":"rdma","device":"d","guid":"0002c90300fa0010"`, "guid", "0002c90300fa0010", `mode "device" only`},
	{`"mode":"rdma","device":"d","mtu":1500`, "mtu", "1500", `mode "rdma"`},
	{`"mode":"rdma","device":"d","rdma":"none"`, "rdma", `"none"`, "does nothing else"},
	{`"mode":"rdma","device":"d","ipam":{"type":"static"}`, "ipam", "static", "gives the addresses"},
	{`"mode":"rdma","device":"d","routing":{"sourceBased":true}`, "routing", "true", `no "routing" in mode "rdma"`},
	{`"mode":"rdma"`, "deviceID", "missing", "a prevResult to derive it from"},
	{
		``,
		"deviceID",
		"k8s.v1.cni.cncf.io/resourceName",
		"one of runtimeConfig.deviceID, deviceID, pciBusID, device, hwaddr, kernelpath, rdmaDevice, guid",
	},
	{`"device":"d","hwaddr":"02:00:00:00:00:01"`, "hwaddr", "02:00:00:00:00:01", `"device" ("d")`},
	{`"link_state":"auto","linkState":"enable"`, "linkState", `"enable"`, `"link_state"`},
}

func TestBadValues(t *testing.T) {
	for _, c := range badValues {
		wantError(t, conf(c.extra), envADD, CodeConfig, `field "`+c.field+`"`, c.value, c.allowed)
	}
	for _, c := range []struct{ stdin, field, allowed string }{
		{`{"type":"fabric","device":"d"}`, "name", "network"},
		{`{"name":"../n","type":"fabric","device":"d"}`, "name", "letters, digits"},
		{`{"name":7,"type":"fabric","device":"d"}`, "name", "letters, digits"},
		{`{"name":"n","device":"d"}`, "type", "plugin"},
		{`{"name":"n","type":"","device":"d"}`, "type", "plugin"},
		{`{"name":"n","type":"/bin/sh","device":"d"}`, "type", "without a path"},
		{`{"name":"n","type":"fabric","device":"d","cniVersion":"one"}`, "cniVersion", "version"},
		{`{"name":"n","type":"fabric","device":"d","cniVersion":1}`, "cniVersion", "version"},
	} {
		wantError(t, c.stdin, envADD, CodeConfig, `field "`+c.field+`"`, c.allowed)
	}
}

func TestUndecodable(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for stdin, part := range map[string]string{
		"":                                       "nothing on stdin",
		" \n":                                    "nothing on stdin",
		"[]":                                     "want a JSON object",
		"null":                                   "want a JSON object",
		`"x"`:                                    "want a JSON object",
		"{":                                      "not valid JSON",
		"{}{}":                                   "not valid JSON",
		conf("") + "x":                           "not valid JSON",
		"{\"a\":1,\n  \"b\":x}":                  "line 2, column 7",
		conf(`"x/y":` + deep):                    "64 levels",
		strings.Repeat(`{"a":`, 1<<15):           "64 levels",
		conf("") + strings.Repeat(" ", maxStdin): "at most 256 KiB",
		"{\"a\":\"\xff\"}":                       "offset 6",
		conf(`"device":"d","device":"e"`):        `field "device": value "e" is there twice, first as "d"`,
		conf(`"vlan":1,"VLAN":2`):                `field "VLAN"`,
		conf(`"device":"d","routing":{"sourceBased":true,"sourceBased":false}`): `field "routing.sourceBased"`,
	} {
		wantError(t, stdin, envADD, CodeDecode, part)
		del := envADD
		del.Command = "DEL"
		if c, err := Parse([]byte(stdin), del); (err == nil) != strings.Contains(part, "field") {
			t.Errorf("DEL %.60q: %+v, %v", stdin, c, err)
		}
	}
	if _, err := Parse(
		[]byte(conf(`"device":"d","device":"d","link_state":"auto","linkState":"auto","mtu":null,"mtu":1500`)),
		envADD,
	); err != nil {
		t.Errorf("twice with the same value: %v", err)
	}
}

func TestUnknownFields(t *testing.T) {
	for key, near := range map[string]string{
		"mtuu": "mtu", "rdma_name": "rdmaName", "RdmaName": "rdmaName", "linkstate": "linkState",
		"devcie": "device", "MODE": "mode",
		"pkeys": "pkey", "vlan_qos": "vlanQoS", "minTxrate": "minTxRate", "gateway": "", "plugins": "", "é": "",
		strings.Repeat("k", 10000): "",
	} {
		wantError(
			t,
			conf(`"device":"d","`+key+`":1`),
			envADD,
			CodeConfig,
			`is unknown; the nearest known field is "`+near,
			key[:1],
		)
	}
	wantError(
		t,
		conf(`"device":"d","routing":{"sourcebased":true}`),
		envADD,
		CodeConfig,
		`field "routing.sourcebased"`,
		`"sourceBased"`,
	)

	open := conf(
		`"device":"d","_c":1,"$schema":"s","example.com/x":{},"a:b":1,"cni.dev/y":[],"disableCheck":true,` +
			`"disableGC":true,` +
			`"loadOnlyInlinedPlugins":true,"resourceName":"r","args":{"labels":[],"cni":{"x":1}},` +
			`"runtimeConfig":{"bandwidth":{}},` +
			`"capabilities":{"portMappings":true},"ipam":{"anything":[1,{"type":2}]},"dns":{"x":1}`,
	)
	if c, err := Parse([]byte(open), envADD); err != nil || c.Ignored != nil {
		t.Errorf("an open envelope: %+v, %v", c, err)
	}
}
