package netconf

import (
	"strings"
	"testing"
)

// A pod's annotation chooses a GUID, a MAC address or IP addresses only where the network has the capability: Multus
// passes them in args.cni and CNI_ARGS whatever the network says.
func TestPodChooses(t *testing.T) {
	const dev = `"device":"d","ipam":{"type":"host-local"},`
	args := func(fields string) string { return dev + `"args":{"cni":{` + fields + `}}` }
	guid := args(`"guid":"02:00:00:00:00:00:00:02","mellanox.infiniband.app":"configured"`)
	for _, tt := range []struct {
		conf, env, field, value, capability string
		others                              []string // also allow it
	}{
		{conf: guid, field: "args.cni.guid", value: "02:00:00:00:00:00:00:02", capability: "infinibandGUID",
			others: []string{`"ibKubernetesEnabled":true`}},
		{conf: args(`"ips":["10.0.0.5"]`), field: "args.cni.ips", value: "10.0.0.5", capability: "ips",
			others: []string{`"runtimeConfig":{"ips":["10.0.0.5/24"]}`}},
		{conf: args(`"ips":[],"IPS":["10.0.0.5"]`), field: "args.cni.IPS", value: "10.0.0.5", capability: "ips"},
		{conf: args(`"ipſ":"10.0.0.5"`), field: "args.cni.ipſ", value: "10.0.0.5", capability: "ips"},
		{conf: strings.TrimSuffix(dev, ","), env: "IP=10.0.0.5/24", field: "CNI_ARGS IP", value: "10.0.0.5/24",
			capability: "ips"},
		{conf: strings.TrimSuffix(dev, ","), env: "MAC=02:00:00:00:00:05", field: "CNI_ARGS MAC",
			value: "02:00:00:00:00:05", capability: "mac",
			others: []string{`"runtimeConfig":{"mac":"02:00:00:00:00:05"}`}},
	} {
		env := command("ADD")
		env.Args = "K8S_POD_NAME=x;" + tt.env
		for _, more := range []string{
			``, `,"capabilities":{"` + tt.capability + `":false}`, `,"capabilities":{"deviceID":true}`,
		} {
			_, err := Parse([]byte(conf(tt.conf+more)), env)
			if err == nil {
				t.Errorf("%s %s: the pod chooses", tt.conf+more, tt.env)
				continue
			}
			for _, part := range []string{tt.field, tt.value, `"capabilities": {"` + tt.capability + `": true}`} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %v: want %s", tt.conf, err, part)
				}
			}
		}
		for _, more := range append(tt.others, `"capabilities":{"`+tt.capability+`":true}`) {
			parse(t, tt.conf+`,`+more, env)
		}
		env.Command = "DEL"
		parse(t, tt.conf, env)
	}
	// A chain gets the same in each plugin: it is no error where nothing reads it.
	env := command("ADD")
	env.Args = "IP=10.0.0.5/24"
	parse(t, `"device":"d","args":{"cni":{"ips":["10.0.0.5"]}}`, env)
	parse(t, args(`"ips":[]`), envADD)
	parse(t, args(`"ips":null`), envADD)
}
