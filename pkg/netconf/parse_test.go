package netconf

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/pkg/device"
)

func parse(t *testing.T, extra string, env Env) *Config {
	t.Helper()
	c, err := Parse([]byte(conf(extra)), env)
	if err != nil {
		t.Fatalf("%s: %v", extra, err)
	}
	return c
}

func command(name string) Env {
	e := envADD
	e.Command = name
	return e
}

func TestEnv(t *testing.T) {
	good := conf(`"device":"d"`)
	for _, c := range []struct {
		change      func(*Env)
		field, part string
	}{
		{func(e *Env) { e.Command = "" }, "CNI_COMMAND", "ADD, DEL"},
		{func(e *Env) { e.Command = "VERSION" }, "CNI_COMMAND", "VERSION"},
		{func(e *Env) { e.ContainerID = "" }, "CNI_CONTAINERID", "missing"},
		{func(e *Env) { e.ContainerID = "../x" }, "CNI_CONTAINERID", "../x"},
		{func(e *Env) { e.ContainerID = "a/b" }, "CNI_CONTAINERID", "a/b"},
		{func(e *Env) { e.ContainerID = "a\n" }, "CNI_CONTAINERID", `a\n`},
		{func(e *Env) { e.ContainerID = "é" }, "CNI_CONTAINERID", "letters"},
		{func(e *Env) { e.ContainerID = strings.Repeat("a", 201) }, "CNI_CONTAINERID", "200"},
		{func(e *Env) { e.IfName = "" }, "CNI_IFNAME", "missing"},
		{func(e *Env) { e.IfName = "." }, "CNI_IFNAME", `"."`},
		{func(e *Env) { e.IfName = ".." }, "CNI_IFNAME", `".."`},
		{func(e *Env) { e.IfName = "a/b" }, "CNI_IFNAME", "a/b"},
		{func(e *Env) { e.IfName = "a:b" }, "CNI_IFNAME", "a:b"},
		{func(e *Env) { e.IfName = "eth%d" }, "CNI_IFNAME", "eth%d"},
		{func(e *Env) { e.IfName = "a b" }, "CNI_IFNAME", "a b"},
		{func(e *Env) { e.IfName = "a\u2028b" }, "CNI_IFNAME", "15 characters"},
		{func(e *Env) { e.IfName = "a\xff" }, "CNI_IFNAME", "15 characters"},
		{func(e *Env) { e.IfName = "abcdefghijklmnop" }, "CNI_IFNAME", "15 characters"},
		{func(e *Env) { e.IfName = "default" }, "CNI_IFNAME", "default"},
		{func(e *Env) { e.Netns = "" }, "CNI_NETNS", "missing"},
		{func(e *Env) { e.Netns = "ns" }, "CNI_NETNS", "absolute path"},
		{func(e *Env) { e.Netns = "/a\x00b" }, "CNI_NETNS", "absolute path"},
		{func(e *Env) { e.Args = "MAC=x" }, "CNI_ARGS MAC", "unicast"},
		{func(e *Env) { e.Args = "A=B;IP=10.0.0.0.1" }, "CNI_ARGS IP", "IP address"},
		{func(e *Env) { e.Args = "junk" }, "CNI_ARGS", "KEY=VALUE"},
		{func(e *Env) { e.Args = "K8S_POD_UID=a;K8S_POD_UID=b" }, "CNI_ARGS K8S_POD_UID", "is a second one"},
	} {
		env := envADD
		c.change(&env)
		wantError(t, good, env, CodeEnvironment, c.field, c.part)
	}
	for _, env := range []Env{{Command: "GC"}, {Command: "STATUS"},
		{Command: "DEL", ContainerID: "c", IfName: "net1"},
		{Command: "CHECK", ContainerID: "c", IfName: "net1", Netns: "/n"}} {
		if _, err := Parse([]byte(conf(`"cni.dev/valid-attachments":null`)), env); err != nil {
			t.Errorf("%+v: %v", env, err)
		}
	}
	for _, hostile := range []Env{{Command: "DEL", ContainerID: "../c", IfName: "net1"},
		{Command: "DEL", ContainerID: "c", IfName: "../net1"}} {
		wantError(t, good, hostile, CodeEnvironment)
	}
}

func TestMode(t *testing.T) {
	prev := `,"prevResult":{}`
	for _, c := range []struct {
		extra string
		want  Mode
	}{
		{`"mode":"rdma","deviceID":"3b:00.2"`, ModeRDMA},
		{`"mode":"ipoib","master":"m"`, ModeIPoIB},
		{`"mode":"device","device":"d"` + prev, ModeDevice},
		{`"master":"m"` + prev, ModeIPoIB},
		{`"master":"m","deviceID":"3"`, ModeIPoIB},
		{`"master":"m","deviceID":"0000:3b:00.2"`, ModeDevice},
		{`"master":"m","deviceID":"0000:3b:00.2","ipoibMode":"connected"`, ModeIPoIB},
		{`"master":"m","device":"d"`, ModeDevice},
		{`"deviceID":"0000:3b:00.2"`, ModeDevice},
		{`"deviceID":"0000:3b:00.2"` + prev, ModeRDMA},
		{`"rdmaDevice":"mlx5_0"` + prev, ModeRDMA},
		{`"guid":"0002c90300fa0010"` + prev, ModeRDMA},
		{`"ipam":{}` + prev, ModeRDMA},
		{`"device":"d"` + prev, ModeDevice},
		{`"deviceID":"0000:3b:00.2","ipam":{"type":"static"}` + prev, ModeDevice},
		{`"deviceID":"0000:3b:00.2","vlan":0` + prev, ModeDevice},
		{`"deviceID":"0000:3b:00.2","rdmaIsolation":true` + prev, ModeDevice},
		{`"deviceID":"0000:3b:00.2","prevResult":null`, ModeDevice},
	} {
		got := parse(t, c.extra, envADD)
		if got.Mode != c.want || got.ModeDerived == strings.Contains(c.extra, `"mode"`) {
			t.Errorf("%s: mode %q, derived %v; want %q", c.extra, got.Mode, got.ModeDerived, c.want)
		}
	}
}

func TestSelector(t *testing.T) {
	for _, c := range []struct {
		extra string
		kind  SelectorKind
		field string
	}{
		{`"runtimeConfig":{"deviceID":"0000:3b:00.2"},"deviceID":"0000:3b:00.3","pciBusID":"0000:3b:00.4"`,
			ByAddress, "runtimeConfig.deviceID"},
		{`"deviceID":"0000:3b:00.3","pciBusID":"0000:3b:00.4"`, ByAddress, "deviceID"},
		{`"deviceID":"","pciBusID":"0000:3b:00.4"`, ByAddress, "pciBusID"},
		{`"rdmaDevice":"mlx5_0","deviceID":"0000:3b:00.3"`, ByRDMADevice, "rdmaDevice"},
		{`"hwaddr":"80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fa:00:10"`, ByHWAddr, "hwaddr"},
		{`"device":"","hwaddr":"0002c90300fa0010"`, ByHWAddr, "hwaddr"},
		{`"guid":"0002c90300fa0010"`, ByGUID, "guid"},
		{`"guid":"0002c90300fa0010","device":"d"`, ByName, "device"},
		{`"device":"` + strings.Repeat("a", 127) + `"`, ByName, "device"},
	} {
		got := parse(t, c.extra, envADD)
		if got.Selector.Kind != c.kind || got.Selector.Field != c.field {
			t.Errorf("%s: %+v", c.extra, got.Selector)
		}
		if asVF := got.VF.GUID != nil; asVF != (c.kind == ByName && strings.Contains(c.extra, "guid")) {
			t.Errorf("%s: VF GUID %v", c.extra, got.VF.GUID)
		}
	}
	c := parse(t, `"hwaddr":"0002c90300fa0010"`, envADD)
	if c.Selector.GUID != 0x0002c90300fa0010 || c.Selector.HWAddr.String() != "00:02:c9:03:00:fa:00:10" {
		t.Errorf("GUID as hwaddr: %+v", c.Selector)
	}
	c = parse(t, `"device":"d","deviceID":"3","pciBusID":"3","pkey":"0x5","kubeconfig":"/k"`, envADD)
	if !slices.Equal(c.Ignored, []string{"kubeconfig", "deviceID", "pciBusID"}) || c.PKey != 0x8005 {
		t.Errorf("ignored: %q; PKey %s", c.Ignored, c.PKey)
	}
	for _, name := range []string{"DEL", "CHECK", "STATUS"} {
		if c := parse(t, "", command(name)); c.Selector.Kind != ByNothing {
			t.Errorf("%s without a selector: %+v", name, c.Selector)
		}
	}
}

func TestPrecedence(t *testing.T) {
	const a, b, c = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
	with := command("ADD")
	with.Args = "K8S_POD_NAME=x;MAC=" + b + ";IP=10.0.0.5,fd00::5/64"
	for _, tc := range []struct {
		extra string
		env   Env
		want  string
	}{
		{`"mac":"` + c + `","runtimeConfig":{"mac":"` + a + `"}`, with, a},
		{`"mac":"` + c + `"`, with, b},
		{`"mac":"` + c + `"`, envADD, c},
		{`"trust":"on"`, with, b},
		{`"trust":"on"`, envADD, ""},
	} {
		got := parse(t, `"device":"d","capabilities":{"mac":true},`+tc.extra, tc.env)
		if got.VF.MAC.String() != tc.want {
			t.Errorf("%s: mac %s, want %s", tc.extra, got.VF.MAC, tc.want)
		}
	}
	short := func(n string) string { return `"00000000000000` + n + `"` }
	all := `"device":"d","capabilities":{"infinibandGUID":true},"guid":` + short("03") +
		`,"args":{"cni":{"guid":` + short("02") + `}}`
	for extra, want := range map[string]device.GUID{
		all + `,"runtimeConfig":{"infinibandGUID":` + short("01") + `}`: 1, all: 2,
		`"device":"d","guid":` + short("03"): 3,
	} {
		if got := parse(t, extra, envADD); got.VF.GUID == nil || *got.VF.GUID != want {
			t.Errorf("%s: %v, want %v", extra, got.VF.GUID, want)
		}
	}
	got := parse(t, `"device":"d","capabilities":{"mac":true}`, with)
	if want := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.5/32"),
		netip.MustParsePrefix("fd00::5/64"),
	}; !slices.Equal(
		got.IPs,
		want,
	) {
		t.Errorf("IPs of CNI_ARGS: %v", got.IPs)
	}
	got = parse(t, `"device":"d","capabilities":{"mac":true},"runtimeConfig":{"ips":["10.9.9.9/24"]}`, with)
	if want := []netip.Prefix{netip.MustParsePrefix("10.9.9.9/24")}; !slices.Equal(got.IPs, want) {
		t.Errorf("IPs of runtimeConfig: %v", got.IPs)
	}
	// A chain gets the same CNI_ARGS and args.cni in each plugin: they are no error where they mean nothing.
	got = parse(t, `"mode":"rdma","rdmaDevice":"mlx5_0","args":{"cni":{"guid":"no GUID"}}`, with)
	if !reflect.DeepEqual(got.VF, VF{}) || !slices.Equal(got.Ignored, []string{"CNI_ARGS MAC"}) {
		t.Errorf("mode rdma: %+v, %q", got.VF, got.Ignored)
	}
}

func TestRDMAPolicy(t *testing.T) {
	for extra, want := range map[string]RDMAPolicy{
		`"device":"d"`:                                         RDMAAuto,
		`"device":"d","rdma":"shared"`:                         RDMAShared,
		`"device":"d","rdmaIsolation":true`:                    RDMAExclusive,
		`"device":"d","rdmaIsolation":false`:                   RDMANone,
		`"device":"d","rdma":"auto","rdmaIsolation":true`:      RDMAExclusive,
		`"device":"d","rdma":"shared","rdmaIsolation":false`:   RDMAShared,
		`"device":"d","rdma":"exclusive","rdmaIsolation":true`: RDMAExclusive,
		`"master":"m"`:                                          RDMANone,
		`"master":"m","rdma":"auto"`:                            RDMANone,
		`"master":"m","rdma":"shared"`:                          RDMAShared,
		`"rdmaDevice":"mlx5_0","mode":"rdma","rdma":"shared"`:   RDMAShared,
		`"rdmaDevice":"mlx5_0","mode":"rdma","rdmaName":"r0"`:   RDMAAuto,
		`"device":"d","rdma":"exclusive","rdmaName":"mlx5_r-0"`: RDMAExclusive,
	} {
		if got := parse(t, extra, envADD); got.RDMA != want {
			t.Errorf("%s: %q, want %q", extra, got.RDMA, want)
		}
	}
}

// TestLenient gives DEL and GC a configuration full of mistakes: what is good in it is kept.
func TestLenient(t *testing.T) {
	broken := `"mode":"devcie","deviceID":"nonsense","device":7,"mtu":"big","vlan":9999,"vlanQoS":3,` +
		`"link_state":"up","trust":"on",` +
		`"typo":1,
		"rdma":[],"routing":{"x":1,"sourceBased":true},"runtimeConfig":5,"args":"x","dns":3,"logFile":"rel",` +
		`"guid":"0",` +
		`"min_tx_rate":5,"max_tx_rate":1,
		"ipam":{"type":"whereabouts"},"cniVersion":7,"prevResult":3,"cni.dev/valid-attachments":[]`
	for _, name := range []string{"DEL", "GC"} {
		env := command(name)
		env.Args = "junk;MAC=bad"
		c := parse(t, broken, env)
		if c.Mode != ModeDevice || c.RDMA != RDMAAuto || c.IPAM.Type != "whereabouts" || !c.SourceBased ||
			c.Name != "n" {
			t.Errorf("%s: %+v", name, c)
		}
		if c.Selector.Kind != ByNothing || c.MTU != 0 || c.VF.VLAN != nil || c.VF.VLANQoS != nil ||
			c.VF.MinTxRate != nil ||
			c.VF.Trust == nil ||
			!*c.VF.Trust {
			t.Errorf("%s: %+v", name, c)
		}
		wantError(t, `{"name":"../n"}`, env, CodeConfig, `field "name"`)
	}
	if c := parse(t, `"mode":"rdma","ipam":{"type":"static"}`, command("DEL")); c.IPAM.Type != "static" {
		t.Errorf("DEL in another mode than ADD forgets IPAM: %+v", c)
	}
	if c, err := Parse([]byte(`{}`), command("DEL")); err != nil || c.Mode != ModeDevice {
		t.Errorf("DEL of an empty object: %+v, %v", c, err)
	}
}

func TestAttachments(t *testing.T) {
	gc := Env{Command: "GC"}
	for list, n := range map[string]int{
		`"cni.dev/valid-attachments":null`:                                                           0,
		`"cni.dev/valid-attachments":[]`:                                                             0,
		`"cni.dev/attachments":[{"containerID":"c","ifname":"net1"}]`:                                1,
		`"cni.dev/valid-attachments":[{"containerID":"c","ifname":"net1"}],"cni.dev/attachments":[]`: 1,
		`"cni.dev/valid-attachments":[{"containerID":"c","ifname":"net1"},{"ifname":"net1"},{"containerID":"c",` +
			`"ifname":"a/../b"}]`: 1,
	} {
		if c := parse(t, list, gc); len(c.ValidAttachments) != n || c.ValidAttachments == nil {
			t.Errorf("%s: %v", list, c.ValidAttachments)
		}
	}
	for _, list := range []string{`"cni.dev/valid-attachments":{}`, `"cni.dev/valid-attachments":["c"]`,
		`"cni.dev/valid-attachments":[{"containerID":5,"ifname":"net1"}]`} {
		wantError(t, conf(list), gc, CodeConfig, "cni.dev/valid-attachments", "containerID")
	}
	if c := parse(t, `"mtu":1`, gc); c.ValidAttachments != nil {
		t.Errorf("without a list: %v", c.ValidAttachments)
	}
	if c := parse(t, `"device":"d","cni.dev/valid-attachments":5`, envADD); c.ValidAttachments != nil {
		t.Errorf("ADD: %v", c.ValidAttachments)
	}
}

func TestAsked(t *testing.T) {
	guid := device.GUID(1)
	for want, vf := range map[string]VF{
		"": {}, "guid": {GUID: &guid}, "linkState": {LinkState: "auto"}, "mac": {MAC: mustMAC("02:00:00:00:00:01")},
		"vlan": {VLAN: new(0)}, "spoofchk": {SpoofChk: new(false)}, "trust": {Trust: new(false)},
		"minTxRate, maxTxRate": {MinTxRate: new(0)},
	} {
		var got []string
		for _, f := range vf.Asked() {
			got = append(got, f.Name)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%+v asks for %q, want %q", vf, got, want)
		}
	}
	if asked := (&VF{MaxTxRate: new(0)}).Asked(); len(asked) != 1 {
		t.Errorf("a maximal rate asks for %v", asked)
	}
}
