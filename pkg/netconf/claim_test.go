package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/pkg/device"
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

func TestSelect(t *testing.T) {
	text := func(s string) json.RawMessage { return json.RawMessage(s) }
	const dra = `"allocation":"DRA","MTU":1500,"runtimeConfig":{"mac":"02:00:00:00:00:01"},"ipam":{"type":"static"}`
	of := parse(t, dra, envADD)
	by := map[string]json.RawMessage{
		"allocation": text("null"), "mtu": text("4092"), "deviceID": text(`"0000:3b:00.0"`), "mode": text(`"device"`),
	}
	c, err := of.Select(envADD, by)
	if err != nil {
		t.Fatal(err)
	}
	if c.FromClaim || c.MTU != 4092 || c.Selector.Value != "0000:3b:00.0" || c.ModeDerived || c.IPAM != of.IPAM {
		t.Errorf("%+v", c)
	}
	if !of.FromClaim || of.MTU != 1500 || of.Selector.Kind != ByNothing {
		t.Errorf("the configuration itself has changed: %+v", of)
	}
	sameJSON(t, c.Raw, conf(`"mode":"device","deviceID":"0000:3b:00.0","mtu":4092,"ipam":{"type":"static"},`+
		`"runtimeConfig":{"mac":"02:00:00:00:00:01"}`))
	again, err := Parse(c.Raw, envADD)
	if diff := cmp.Diff(c, again); diff != "" || err != nil {
		t.Errorf("the text is another configuration: %v, %s", err, diff)
	}
	for field, bad := range map[string]json.RawMessage{
		"mtu": text("1"), "mtv": text("1500"), "vlan": text(`"x"`), "": text(`1,"device":"x"`),
	} {
		by := map[string]json.RawMessage{"device": text(`"v0"`), "allocation": text("null"), field: bad}
		_, err := of.Select(envADD, by)
		var e *Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%q %s: %v", field, bad, err)
		}
	}
}

func sameJSON(t *testing.T, got []byte, want string) {
	t.Helper()
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Error(diff)
	}
}

// What has put the device's address into the configuration is told from where it is.
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

// Another device of the pod makes the configuration that Multus would have written had it named that one.
func TestSelectInjected(t *testing.T) {
	const old, id = "0000:3b:00.0", "0000:5e:00.0"
	a, err := device.ParseAddress(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{
		`"deviceID":"%[1]s","pciBusID":"%[1]s","mtu":1500`,
		`"deviceID":"%[1]s","pciBusID":"%[1]s","RuntimeConfig":{"deviceID":"%[1]s","mac":"02:00:00:00:00:01"}`,
		`"deviceID":"%[1]s","pciBusID":"%[1]s","runtimeConfig":{"mac":"02:00:00:00:00:01"}`,
		`"deviceID":"%[1]s","pciBusID":"%[1]s","runtimeConfig":null,"ipam":{"type":"static"}`,
		`"deviceID":"%[1]s","pciBusID":"%[1]s","allocation":"DRA"`,
	} {
		before := parse(t, fmt.Sprintf(form, old), envADD)
		got, err := before.SelectInjected(id, a)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, got.Raw, conf(fmt.Sprintf(strings.Replace(form, "RuntimeConfig", "runtimeConfig", 1), id)))
		want, err := Parse(got.Raw, envADD)
		if err != nil {
			t.Fatal(err)
		}
		want.Selector.Field = got.Selector.Field // in the user's spelling
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", form, diff)
		}
		if before.Injected != old || before.Selector.Value != old {
			t.Errorf("the configuration itself has changed: %+v", before)
		}
	}
}

// The interface of another port is selected by its own address, whatever selects the first one, and has nothing that is
// the RDMA device's.
func TestOtherPort(t *testing.T) {
	env := Env{Command: "ADD", ContainerID: "c", Netns: "/run/netns/p", IfName: "net1"}
	for _, selected := range []string{
		`"deviceID": "0000:3b:00.0", "pciBusID": "0000:3b:00.0", "runtimeConfig": {"deviceID": "0000:3b:00.0",
			"CNIDeviceInfoFile": "/var/run/k8s.cni.cncf.io/devinfo/cni/f"}`,
		`"device": "ens1f0"`, `"rdmaDevice": "mlx5_0"`, `"guid": "00:02:c9:03:00:fa:00:10"`,
		`"hwaddr": "02:00:00:00:00:01"`, `"kernelpath": "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"`,
	} {
		c, err := Parse([]byte(`{"cniVersion": "1.1.0", "name": "n", "type": "fabric",
			"allPorts": true, "rdmaName": "auto", "tos": 106, "roceMode": "v2", "pkey": "0x8001",
			"mtu": 4200, "ipam": {"type": "host-local"}, "prevResult": {"cniVersion": "1.1.0"},
			"mode": "device", `+selected+`}`), env)
		if err != nil {
			t.Fatal(err)
		}
		to := env
		to.IfName = "net1p2"
		p, err := c.OtherPort(to, device.OnPCI("0000:3b:00.1"))
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Selector; s.Kind != ByAddress || s.Address != device.OnPCI("0000:3b:00.1") || p.Injected != "" {
			t.Errorf("%s: selector %+v", selected, p.Selector)
		}
		if p.RDMA != RDMANone || p.AllPorts || p.RDMAName != "" || p.TOS != nil || p.PKey != 0 || p.PrevResult != nil ||
			p.DeviceInfo != "" || p.MTU != 4200 || p.IPAM.Type != "host-local" || p.Mode != ModeDevice {
			t.Errorf("%s: %+v", selected, p)
		}
		// It is what the journal keeps for the DEL.
		if _, err := Parse(p.Raw, Env{Command: "DEL", ContainerID: "c", IfName: "net1p2"}); err != nil {
			t.Error(err)
		}
	}
}
