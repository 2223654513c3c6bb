package netconf

import (
	"encoding/json"
	"testing"
)

// A network whose devices come from ResourceClaims names none itself. What Multus adds is no selector.
func TestFromClaim(t *testing.T) {
	const dra = `"allocation":"DRA"`
	env := envADD
	env.Args = "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p1;K8S_POD_UID=7d2c"
	for extra, id := range map[string]string{
		dra: "",
		dra + `,"runtimeConfig":{"deviceID":"0000:3b:00.0"}`: "0000:3b:00.0",
		dra + `,"mode":"ipoib"`:                              "",
		dra + `,"mode":"ipoib","deviceID":"ib0-3"`:           "ib0-3",
	} {
		c := parse(t, extra, env)
		if !c.FromClaim || c.DeviceID != id || c.Pod != (Pod{UID: "7d2c", Namespace: "default", Name: "p1"}) {
			t.Errorf("%s: %+v", extra, c)
		}
	}
	if c := parse(t, dra+`,"mode":"ipoib","master":"ib0"`, env); c.Master != "ib0" {
		t.Errorf("a master that the node's file has: %+v", c)
	}
	for _, extra := range []string{
		`"device":"ibs108"`, `"hwaddr":"02:00:00:00:00:01"`, `"kernelpath":"/sys/devices/x"`, `"rdmaDevice":"mlx5_0"`,
		`"guid":"00:02:c9:03:00:fa:00:11"`, `"device":"ibs108","deviceID":"0000:3b:00.0"`,
	} {
		wantError(t, conf(dra+","+extra), env, CodeConfig, `is a selector beside "allocation": "DRA"`, "ResourceClaim")
		if _, err := Parse([]byte(conf(dra+","+extra)), command("DEL")); err != nil {
			t.Errorf("DEL with %s: %v", extra, err)
		}
	}
	wantError(t, conf(dra+`,"mode":"rdma"`), env, CodeConfig, "allocation", `no "allocation" in mode "rdma"`)
	wantError(t, conf(`"allocation":"dranet","device":"d"`), env, CodeConfig, "allocation", "DRA")
	wantError(t, conf(dra+`,"deviceID":"eth0"`), env, CodeConfig, "deviceID", "PCI address")
}

func TestOverride(t *testing.T) {
	text := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct {
		stdin string
		by    map[string]json.RawMessage
		want  string
	}{
		{`{}`, nil, `{}`},
		{` {"a/b" : [1, 2],"MTU":1500} `, map[string]json.RawMessage{"mtu": text("4092")}, `{"a/b":[1, 2],"mtu":4092}`},
		{
			`{"mtu":1,"Mtu":2,"name":"n","allocation":"DRA"}`,
			map[string]json.RawMessage{"allocation": text("null"), "mtu": text("3"), "device": text(`"v0"`)},
			`{"name":"n","device":"v0","mtu":3}`,
		},
		{`{"x\"\n":1}`, nil, `{"x\"\n":1}`},
	} {
		got, err := Override([]byte(c.stdin), c.by)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v", c.stdin, got, err)
		}
	}
	for _, bad := range []string{``, `[]`, `{`, `{"a":1}}`} {
		if got, err := Override([]byte(bad), nil); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
	if got, err := Override([]byte(`{}`), map[string]json.RawMessage{"mtu": text(`1,"device":"x"`)}); err == nil {
		t.Errorf("a value that is none: %s", got)
	}
}

// Whoever has put the device's address into the configuration is told from where it is.
func TestInjected(t *testing.T) {
	const id = "0000:3b:00.0"
	both := `"deviceID":"` + id + `","pciBusID":"` + id + `"`
	for extra, want := range map[string]string{
		both: id,
		both + `,"runtimeConfig":{"deviceID":"` + id + `"}`:        id,
		both + `,"runtimeConfig":{"deviceID":"0000:3b:00.1"}`:      "", // of the pod's annotation
		`"runtimeConfig":{"deviceID":"` + id + `"}`:                "",
		`"deviceID":"` + id + `"`:                                  "",
		`"pciBusID":"` + id + `"`:                                  "",
		`"deviceID":"` + id + `","pciBusID":"0000:3b:00.1"`:        "",
		both + `,"device":"ibs108"`:                                "",
		both + `,"mode":"ipoib","master":"ibs108"`:                 "",
		both + `,"mode":"rdma","prevResult":{"interfaces":[]}`:     id,
		both + `,"allocation":"DRA"`:                               id,
		`"deviceID":"netdev/v0","pciBusID":"netdev/v0","mtu":1500`: "netdev/v0",
	} {
		if c := parse(t, extra, envADD); c.Injected != want || c.Unsorted {
			t.Errorf("%s: %q, %v", extra, c.Injected, c.Unsorted)
		}
	}
	if c := parse(t, both+`,"railOrder":false`, envADD); c.Injected != id || !c.Unsorted {
		t.Errorf("railOrder false: %q, %v", c.Injected, c.Unsorted)
	}
	if c := parse(t, both+`,"railOrder":true`, envADD); c.Unsorted {
		t.Error("railOrder true: unsorted")
	}
	wantError(t, conf(both+`,"railOrder":"rail"`), envADD, CodeConfig, "railOrder", "true or false")
	wantError(t, conf(`"mode":"ipoib","master":"ib0","railOrder":true`), envADD, CodeConfig, `no "railOrder"`)
	wantError(t, conf(both+`,"mode":"rdma","railOrder":true`), envADD, CodeConfig, `no "railOrder"`)
}

func TestWithDevice(t *testing.T) {
	for stdin, want := range map[string]string{
		`{"name":"n","deviceID":"a","pciBusID":"a","mtu":1}`: `{"name":"n","mtu":1,"deviceID":"b","pciBusID":"b"}`,
		`{"DeviceID":"a","pciBusID":"a","runtimeConfig":{"deviceID":"a","mac":"m"}}`: `{"deviceID":"b","pciBusID":"b",` +
			`"runtimeConfig":{"deviceID":"b","mac":"m"}}`,
		`{"deviceID":"a","pciBusID":"a","runtimeConfig":{"mac":"m"}}`: `{"deviceID":"b","pciBusID":"b",` +
			`"runtimeConfig":{"mac":"m"}}`,
		`{"deviceID":"a","runtimeConfig":null}`: `{"runtimeConfig":null,"deviceID":"b","pciBusID":"b"}`,
	} {
		if got, err := WithDevice([]byte(stdin), "b"); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", stdin, got, err)
		}
	}
	for _, bad := range []string{``, `[]`, `{`} {
		if got, err := WithDevice([]byte(bad), "b"); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
