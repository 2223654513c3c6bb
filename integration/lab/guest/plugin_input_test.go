//go:build labguest

package guest

import (
	"strings"
	"testing"
)

// longName fits nowhere.
var longName = strings.Repeat("x", 300)

// What a runtime, or the author of a NetworkAttachmentDefinition, can get wrong: each has its code, and a message that
// names the field, the value and what is allowed.
func TestPluginBadConfiguration(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	good := `"cniVersion":"1.1.0","name":"rails","type":"fabric","device":"ibs108"`
	for name, c := range map[string]struct {
		conf  string
		code  uint
		words []string
	}{
		"nothing":   {"", 6, nil},
		"no JSON":   {"hello", 6, nil},
		"cut off":   {`{"cniVersion":"1.1.0","na`, 6, nil},
		"a list":    {`[1]`, 6, nil},
		"null":      {`null`, 7, nil},
		"not UTF-8": {`{` + good + ",\"mode\":\"\xff\"}", 6, []string{"UTF-8"}},
		"too long": {
			`{` + good + `,"_comment":"` + strings.Repeat("x", 1<<20) + `"}`, 6, []string{"1048576"},
		},
		"too deep": {
			`{` + good + `,"_x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, 6,
			[]string{"64 levels"},
		},
		"deep": {
			`{` + good + `,"_x":` + strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70) + `}`, 6,
			[]string{"64 levels"},
		},
		"twice":             {`{` + good + `,"mtu":1500,"mtu":9000}`, 6, []string{"mtu", "1500", "9000", "twice"}},
		"unknown field":     {`{` + good + `,"mtuu":1500}`, 7, []string{`"mtuu"`, "unknown", `"mtu"`}},
		"case of our field": {`{` + good + `,"allowdown":true}`, 7, []string{`"allowdown"`, `"allowDown"`}},
		"unknown in routing": {
			`{` + good + `,"routing":{"source":true}}`, 7, []string{`"routing.source"`, `"sourceBased"`},
		},
		"text for a number":  {`{` + good + `,"mtu":"1500"}`, 7, []string{`"mtu"`, `"1500"`, "68 to 65520"}},
		"a number too large": {`{` + good + `,"mtu":1e99}`, 7, []string{`"mtu"`, "1e99"}},
		"a negative number":  {`{` + good + `,"mtu":-1}`, 7, []string{`"mtu"`, "-1", "68 to 65520"}},
		"number for text":    {`{` + good + `,"rdmaName":7}`, 7, []string{`"rdmaName"`, "7"}},
		"text for an object": {`{` + good + `,"ipam":"static"}`, 7, []string{`"ipam"`, `"static"`, "object"}},
		"text for a boolean": {
			`{` + good + `,"allowDown":"yes"}`, 7, []string{`"allowDown"`, `"yes"`, "true or false"},
		},
		"object for a list": {`{` + good + `,"dns":{"nameservers":{}}}`, 7, []string{`"dns.nameservers"`, "list"}},
		"a mode that is none": {
			`{` + good + `,"mode":"sriov"}`, 7, []string{`"mode"`, `"sriov"`, "device, ipoib, rdma"},
		},
		"a policy that is not": {`{` + good + `,"rdma":"yes"}`, 7, []string{`"rdma"`, `"yes"`, "auto, exclusive, " +
			"shared, none"}},
		"two policies": {
			`{` + good + `,"rdma":"none","rdmaIsolation":true}`, 7, []string{`"rdmaIsolation"`, `"rdma"`},
		},
		"hostile network": {
			`{"cniVersion":"1.1.0","name":"../../etc","type":"fabric","device":"ibs108"}`, 7, []string{"../../etc"},
		},
		"no network": {`{"cniVersion":"1.1.0","type":"fabric","device":"ibs108"}`, 7, []string{"name"}},
		"long network": {
			`{"cniVersion":"1.1.0","name":"` + longName + `","type":"fabric","device":"ibs108"}`, 7, []string{`"name"`},
		},
		"hostile IPAM": {
			`{` + good + `,"ipam":{"type":"../../bin/sh"}}`, 7, []string{`"ipam.type"`, "../../bin/sh"},
		},
		"missing IPAM": {
			`{` + good + `,"ipam":{"type":"nowhere"}}`, 7, []string{`"nowhere"`, "CNI_PATH", BinDir()},
		},
		"hostile RDMA name":  {`{` + good + `,"rdmaName":"../x"}`, 7, []string{`"rdmaName"`, "../x"}},
		"template RDMA name": {`{` + good + `,"rdmaName":"mlx5_%d"}`, 7, []string{`"rdmaName"`, "mlx5_%d"}},
		"a VF's attribute":   {`{` + good + `,"vlan":5}`, 7, []string{"vlan"}},
		"bad prevResult": {`{` + good + `,"mode":"device","prevResult":{"cniVersion":"1.1.0",` +
			`"ips":[{"address":"x"}]}}`, 7, []string{"prevResult"}},
		"text as prevResult": {`{` + good + `,"prevResult":"x"}`, 7, []string{"prevResult", "object"}},
		"prevResult of 9.9": {
			`{` + good + `,"mode":"device","prevResult":{"cniVersion":"9.9.9"}}`, 7, []string{"prevResult", "9.9.9"},
		},
		"version of 9.9": {
			`{"cniVersion":"9.9.9","name":"rails","type":"fabric","device":"ibs108"}`, 1, []string{"9.9.9"},
		},
		"version 0.1.0": {
			`{"cniVersion":"0.1.0","name":"rails","type":"fabric","device":"ibs108"}`, 1, []string{"0.1.0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := Call{Command: "ADD", ContainerID: "pod", Netns: pod.Path, IfName: "net1", Config: c.conf}
			out := call.Exec(t)
			wantError(t, out, c.code, c.words...)
			if len(out.Stdout) > 2000 {
				t.Errorf("the message has %d bytes", len(out.Stdout))
			}
			call.Command = "DEL"
			if out := call.Exec(t); out.Exit == 2 || strings.Contains(out.Stderr, "panic") {
				t.Errorf("DEL: %s", out)
			}
		})
	}
}

// DEL of a configuration that has become bad since gives everything back.
func TestPluginDelWithBadConfiguration(t *testing.T) {
	S1(t)
	for name, c := range map[string]config{
		"unknown field":  {"mtuu": 1},
		"wrong type":     {"mtu": "x", "routing": 5, "device": 7},
		"bad prevResult": {"prevResult": config{"cniVersion": "1.1.0", "ips": []config{{"address": "x"}}}},
		"no selector":    {"device": nil},
		"no IPAM":        {"ipam": nil},
		"other IPAM":     {"ipam": config{"type": "static"}},
		"other mode":     {"mode": "ipoib", "master": "ibs112"},
		"other device":   {"device": "ibs110"},
		"other network":  {"name": "renamed"},
	} {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			a := interfaceOf(
				NewPod(t, "pod"),
				"net1",
				network(config{"device": "ibs108", "ipam": hostLocal("10.0.0.0/24")}),
			)
			a.add(t)
			del := a.call("DEL")
			conf := network(config{"device": "ibs108", "ipam": hostLocal("10.0.0.0/24")})
			for k, v := range c {
				conf[k] = v
			}
			del.Config = network(conf)
			if name == "other IPAM" || name == "other network" { // the IPAM plugin is told what the runtime says
				defer shell(t, "rm -rf /var/lib/cni/networks/rails/10.*")
			}
			del.Must(t)
		})
	}
}
