package fabric_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// What an author has misspelt in the section ipam keeps no pod Terminating: ADD takes nothing, and DEL succeeds.
func TestDelOfMisspeltIPAM(t *testing.T) {
	t.Parallel()
	n, dir := newNode(t), t.TempDir()
	const failing = "#!/bin/sh\necho '{\"code\":999,\"msg\":\"range is no range\"}'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "failing"), []byte(failing), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, ipam := range map[string]string{
		"unknown plugin": `{"type":"whereabout"}`,
		"bad subnet":     `{"type":"host-local","subnet":"10.7.0.0/33"}`,
		"no ranges":      `{"type":"host-local"}`,
		"no address":     `{"type":"static","addresses":[{"address":"10.7.0.5"}]}`,
		"bad directory":  `{"type":"host-local","subnet":"10.7.0.0/24","dataDir":"/proc/x"}`,
		"this plugin":    `{"type":"fabric"}`,
		"a path":         `{"type":"../fabric"}`,
		"what it says":   `{"type":"failing"}`,
	} {
		for _, device := range []string{`"device":"v0"`, `"device":"nosuch"`} {
			c := n.call("ADD", confOf("1.1.0", device, `"ipam":`+ipam))
			c.env = []string{"CNI_PATH=" + dir + ":" + os.Getenv(binDir)}
			if a := n.run(t, c); a.ok {
				t.Errorf("%s: ADD succeeds", name)
			}
			c.command = "DEL"
			for try := 1; ; try++ {
				a := n.run(t, c)
				if a.ok {
					break
				}
				// A plugin that has run may have taken something: its DEL is tried three times.
				if name != "what it says" || try == 3 {
					t.Fatalf("%s: DEL %d of %s: %+v", name, try, device, a)
				}
			}
			n.same(t, name)
		}
	}
}

// The policy has changed since ADD: the third DEL ends, with the device at home from the first one on.
func TestDelOfForbiddenIPAM(t *testing.T) {
	t.Parallel()
	n, dir := newNode(t), t.TempDir()
	n.policy(t, allowIPAM(dir))
	conf := hostLocal("n", "v0", fmt.Sprintf(`,"dataDir":%q`, dir))
	n.must(t, n.call("ADD", conf))
	n.policy(t, sandbox.AllowVirtual)
	for range 2 {
		if a := n.run(t, n.call("DEL", conf)); a.ok || a.Code != 104 || !strings.Contains(a.Msg, "ipamDirs") {
			t.Errorf("%+v", a)
		}
		if !n.host.Has(t, "v0") {
			t.Error("the device is not home")
		}
	}
	n.must(t, n.call("DEL", conf))
	n.same(t, "after DEL")
}

// A pod is dead, and its IPAM plugin hangs: the next pod gets the device, and the address waits for the dead pod's DEL.
func TestAddPassesDeadIPAM(t *testing.T) {
	t.Parallel()
	n, g := newNode(t, everything...), newGate(t, "gate")
	first, second := sandbox.New(t), sandbox.New(t)
	dead := g.call(n, "ADD", "c1")
	dead.netns = first.Path
	n.must(t, dead)
	first.IP(t, "link", "set", "net1", "netns", n.host.Name) // as the kernel brings hardware home
	n.host.IP(t, "link", "property", "del", "dev", "net1", "altname", "v0")
	n.host.IP(t, "link", "set", "net1", "name", "v0") // a veth is claimed by its name
	sandbox.Run(t, "ip", "netns", "delete", first.Name)
	sandbox.Run(t, "ip", "netns", "add", first.Name) // for the end of the test; another namespace
	g.shut(t, "DEL", "c1")
	next := n.call("ADD", conf())
	next.id, next.netns, next.env = "c2", second.Path, dead.env
	n.must(t, next)
	if !strings.Contains(g.calls(t), "DEL c1") || !g.has("c1") {
		t.Errorf("calls %q, address given: %v; the dead pod's is to be tried, and to wait", g.calls(t), g.has("c1"))
	}
	next.command = "DEL"
	n.must(t, next)
	if err := os.Remove(g.fifo("DEL", "c1")); err != nil {
		t.Fatal(err)
	}
	dead.command = "DEL"
	n.must(t, dead)
	g.hasNot(t, "c1")
	n.same(t, "after DEL")
}
