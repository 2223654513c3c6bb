//go:build labguest

package guest

import (
	"os"
	"strings"
	"testing"
)

// The environment of a call becomes paths and names: what does not fit is refused before anything is done.
func TestPluginBadEnvironment(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	if err := os.WriteFile("/tmp/no-netns", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	conf := network(config{"device": "ibs108", "ipam": static("10.0.0.5/24")})
	executed := network(config{"device": "ibs108", "ipam": config{"type": "elsewhere"}}) // no plugin that is built in
	for name, c := range map[string]struct {
		change func(*Call)
		code   uint
		words  []string
	}{
		"container id that climbs":  {func(c *Call) { c.ContainerID = "../../etc/x" }, 4, []string{"../../etc/x"}},
		"container id with a slash": {func(c *Call) { c.ContainerID = "a/b" }, 4, []string{"a/b"}},
		"container id with a dot":   {func(c *Call) { c.ContainerID = ".." }, 4, []string{".."}},
		"container id with an at":   {func(c *Call) { c.ContainerID = "a@b" }, 4, []string{"a@b"}},
		"no container id":           {func(c *Call) { c.ContainerID = "" }, 4, []string{"CNI_CONTAINERID"}},
		"long container id": {
			func(c *Call) { c.ContainerID = longName }, 4, []string{"CNI_CONTAINERID", "200"},
		},
		"no interface name":          {func(c *Call) { c.IfName = "" }, 4, []string{"CNI_IFNAME"}},
		"interface name that climbs": {func(c *Call) { c.IfName = "../x" }, 4, nil},
		"interface name of dots":     {func(c *Call) { c.IfName = ".." }, 4, nil},
		"long interface name":        {func(c *Call) { c.IfName = "sixteenletters12" }, 4, nil},
		"interface name with space":  {func(c *Call) { c.IfName = "a b" }, 4, nil},
		"interface name as template": {func(c *Call) { c.IfName = "net%d" }, 4, []string{"CNI_IFNAME", "net%d"}},
		"interface name lo":          {func(c *Call) { c.IfName = "lo" }, 4, []string{"CNI_IFNAME", "lo"}},
		"interface name all":         {func(c *Call) { c.IfName = "all" }, 4, []string{"CNI_IFNAME", "all"}},
		"no netns":                   {func(c *Call) { c.Netns = "" }, 4, []string{"CNI_NETNS"}},
		"relative netns": {
			func(c *Call) { c.Netns = "run/netns/pod" }, 4, []string{"CNI_NETNS", "absolute"},
		},
		"netns that is not there": {
			func(c *Call) { c.Netns = "/run/netns/none" }, 4, []string{"CNI_NETNS", "/run/netns/none"},
		},
		"netns that is a file": {
			func(c *Call) { c.Netns = "/tmp/no-netns" }, 4, []string{"CNI_NETNS", "/tmp/no-netns"},
		},
		"netns that is a directory": {func(c *Call) { c.Netns = "/tmp" }, 4, []string{"CNI_NETNS", "/tmp"}},
		"namespace of another kind": {
			func(c *Call) { c.Netns = "/proc/1/ns/mnt" }, 4, []string{"CNI_NETNS", "/proc/1/ns/mnt"},
		},
		"the host's netns": {
			func(c *Call) { c.Netns = "/proc/1/ns/net" }, 8, []string{"CNI_NETNS", "/proc/1/ns/net", "host"},
		},
		"no CNI_PATH": {func(c *Call) { c.Env = []string{"CNI_PATH="} }, 4, []string{"CNI_PATH"}},
		"CNI_PATH without plugins": {func(c *Call) {
			c.Config, c.Env = executed, []string{"CNI_PATH=/nowhere"}
		}, 7, []string{`"elsewhere"`, "/nowhere"}},
		"relative CNI_PATH": {func(c *Call) {
			c.Config, c.Env = executed, []string{"CNI_PATH=::bin"}
		}, 7, []string{`"elsewhere"`}},
		"CNI_ARGS without pairs":  {func(c *Call) { c.Args = "K8S" }, 4, []string{"CNI_ARGS", "K8S", "KEY=VALUE"}},
		"CNI_ARGS with a bad MAC": {func(c *Call) { c.Args = "MAC=x" }, 4, []string{"MAC", "x"}},
		"unknown command":         {func(c *Call) { c.Command = "MEND" }, 4, []string{"CNI_COMMAND", "MEND"}},
	} {
		t.Run(name, func(t *testing.T) {
			call := Call{Command: "ADD", ContainerID: "pod", Netns: pod.Path, IfName: "net1", Config: conf}
			c.change(&call)
			wantError(t, call.Exec(t), c.code, c.words...)
		})
	}
}

// A name that is taken in the pod is refused before the device moves.
func TestPluginInterfaceNameTaken(t *testing.T) {
	S1(t)
	Unchanged(t)
	Modprobe(t, "dummy")
	pod := NewPod(t, "pod")
	pod.sh(t, "ip link add net1 type dummy; ip link property add dev net1 altname net2")
	for _, fields := range []config{{"device": "ibs108"}, {"mode": "ipoib", "master": "ibs108"}} {
		for _, name := range []string{"net1", "net2"} {
			a := interfaceOf(pod, name, network(fields))
			wantError(t, a.call("ADD").Exec(t), 4, "CNI_IFNAME", name)
			a.del(t)
			pod.link(t, "net1") // is not ours
		}
	}
	// DEL of the host's namespace touches nothing there.
	a := interfaceOf(pod, "ibs108", network(config{"device": "ibs108"}))
	del := a.call("DEL")
	del.Netns = "/proc/1/ns/net"
	if out := del.Exec(t); strings.Contains(out.Stderr, "panic") {
		t.Errorf("DEL: %s", out)
	}
}

// VERSION needs nothing.
func TestPluginVersion(t *testing.T) {
	for _, conf := range []any{nil, "", `{"cniVersion":"1.0.0"}`} {
		out := Call{Command: "VERSION", Config: conf}.Must(t)
		if !containsAll(out.Stdout, `"0.3.0"`, `"0.3.1"`, `"0.4.0"`, `"1.0.0"`, `"1.1.0"`) {
			t.Errorf("VERSION answers %s", out)
		}
	}
}
