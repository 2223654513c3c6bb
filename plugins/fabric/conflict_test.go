package fabric_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// detectConflicts: an address that another host on the network has is not used, and everything is given back.
func TestDetectConflicts(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil   []string // on the other end of the wire
		found   string
		without bool // IPv6 is turned off in the pod
	}{
		"free":               {[]string{"addr add 192.168.10.8/24 dev v1"}, "", false},
		"IPv4":               {[]string{"addr add 192.168.10.7/24 dev v1"}, "192.168.10.7", false},
		"IPv6":               {[]string{"addr add 2001:db8:10::7/64 dev v1 nodad"}, "2001:db8:10::7", false},
		"IPv6 is turned off": {[]string{"addr add 2001:db8:10::7/64 dev v1 nodad"}, "2001:db8:10::7", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everything...)
			for _, c := range tt.spoil {
				n.far.IP(t, strings.Fields(c)...)
			}
			n.far.Settled(t)
			if tt.without {
				n.pod.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
			}
			data := t.TempDir()
			n.policy(t, allowIPAM(data))
			const local = `"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"192.168.10.0/24",` +
				`"rangeStart":"192.168.10.7"}],[{"subnet":"2001:db8:10::/64","rangeStart":"2001:db8:10::7"}]]}`
			c := n.call("ADD", confOf("1.1.0", `"device":"v0","detectConflicts":true`, fmt.Sprintf(local, data)))
			podBefore := n.pod.State(t)
			a := n.run(t, c)
			if tt.found == "" {
				if !a.ok {
					t.Fatalf("%+v", a)
				}
				c.command = "DEL"
				n.must(t, c)
				n.same(t, "after DEL")
				return
			}
			var links []struct{ Address string }
			n.far.JSON(t, &links, "link", "show", "dev", "v1")
			mac := links[0].Address
			if a.ok || a.Code != 106 || !strings.Contains(a.Msg, tt.found) || !strings.Contains(a.Msg, mac) {
				t.Errorf("%+v; want %s and %s", a, tt.found, mac)
			}
			n.same(t, "after ADD")
			if after := n.pod.State(t); after != podBefore {
				t.Errorf("the pod was\n%s\nand is\n%s", podBefore, after)
			}
			if left := reserved(t, data); len(left) > 0 {
				t.Errorf("IPAM has %v", left)
			}
			c.command = "DEL"
			n.must(t, c)
		})
	}
}

// reserved lists the addresses that host-local has given away.
func reserved(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "rail", "[12]*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Without a carrier no neighbour can be asked: then the port is down, as far as that goes.
func TestDetectConflictsWithoutCarrier(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.far.IP(t, "link", "set", "v1", "down")
	sandbox.Until(t, "the kernel has noticed", func() bool {
		return strings.Contains(n.host.IP(t, "-6", "route"), "linkdown") &&
			strings.Contains(n.host.IP(t, "link", "show", "dev", "v0"), "state DOWN")
	})
	n.before = n.host.State(t)
	c := n.call("ADD", conf(`"detectConflicts":true`))
	if a := n.run(t, c); a.ok || a.Code != 102 || !strings.Contains(a.Msg, "no carrier") {
		t.Errorf("%+v", a)
	}
	n.same(t, "after ADD")
	c = n.call("ADD", conf(`"detectConflicts":true,"allowDown":true`))
	if a := n.must(t, c); !strings.Contains(a.stderr, "no neighbour could be asked") {
		t.Errorf("%+v", a)
	}
	c.command = "DEL"
	n.must(t, c)
	n.same(t, "after DEL")
}
