package fabric_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shown is what a result says, in every version of the specification.
type shown struct {
	CNIVersion string `json:"cniVersion"`
	Interfaces []struct {
		Name    string `json:"name"`
		MAC     string `json:"mac"`
		MTU     int    `json:"mtu"`
		Sandbox string `json:"sandbox"`
	} `json:"interfaces"`
	IPs []struct {
		Address   string `json:"address"`
		Gateway   string `json:"gateway"`
		Interface *int   `json:"interface"`
	} `json:"ips"`
	Routes []struct {
		Dst string `json:"dst"`
	} `json:"routes"`
}

func TestAddDel(t *testing.T) {
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, everything...)
			podBefore := n.pod.State(t)
			c := n.call("ADD", confOf(version, `"device":"rail0"`, static, `"mtu":3000`)) // by altname
			var r shown
			if err := json.Unmarshal([]byte(n.must(t, c).stdout), &r); err != nil {
				t.Fatal(err)
			}
			if r.CNIVersion != version || len(r.Interfaces) != 1 || len(r.IPs) != 2 || len(r.Routes) != 1 {
				t.Fatalf("result: %+v", r)
			}
			f, ip := r.Interfaces[0], r.IPs[0]
			if f.Name != "net1" || f.Sandbox != n.pod.Path || version == "1.1.0" && f.MTU != 3000 {
				t.Errorf("result: %+v", r)
			}
			if ip.Address != "192.168.10.7/24" || ip.Gateway != "192.168.10.1" {
				t.Errorf("result: %+v", r)
			}
			if ip.Interface == nil || *ip.Interface != 0 {
				t.Errorf("result: %+v", r)
			}
			link := n.pod.IP(t, "-d", "link", "show", "dev", "net1")
			for _, want := range []string{
				"net1", ",UP,", "mtu 3000", f.MAC, "altname enp59s0", "altname rail0", "altname v0", "qlen 77",
			} {
				if !strings.Contains(link, want) {
					t.Errorf("%q is not in %s", want, link)
				}
			}
			s := n.pod.IP(t, "-4", "route", "show", "10.20.0.0/16")
			if !strings.Contains(s, "via 192.168.10.1 dev net1") {
				t.Errorf("route: %s", s)
			}
			s = n.pod.IP(t, "-6", "addr", "show", "dev", "net1")
			if !strings.Contains(s, "2001:db8:10::7/64") || strings.Contains(s, "tentative") {
				t.Errorf("IPv6: %s", s)
			}
			if files := n.files(t); len(files) != 2 {
				t.Errorf("on file: %v", files)
			}
			c.command = "DEL"
			for range 2 {
				n.must(t, c)
				n.same(t, "after DEL")
			}
			if diff := cmp.Diff(podBefore, n.pod.State(t)); diff != "" {
				t.Errorf("the pod: -before +after:\n%s", diff)
			}
		})
	}
}

// Source-based routing: rails of one subnet have their own tables, and nothing of it stays behind.
func TestSourceBased(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	podBefore := n.pod.State(t)
	c := n.call("ADD", conf(`"routing":{"sourceBased":true}`))
	result := n.must(t, c).stdout
	for args, want := range map[string]string{
		"-4 rule": "from 192.168.10.7 lookup 2000", "-6 rule": "from 2001:db8:10::7 lookup 2000",
		"-4 route show table all": "default via 192.168.10.1 dev net1 table 2000",
	} {
		if s := n.pod.IP(t, strings.Fields(args)...); !strings.Contains(s, want) {
			t.Errorf("ip %s: no %q in\n%s", args, want, s)
		}
	}
	if got := n.pod.ReadSysctl(t, "net/ipv4/conf/net1/arp_ignore"); got != "1" {
		t.Errorf("arp_ignore %s", got)
	}
	c.command, c.conf = "CHECK", with(t, c.conf, result)
	n.must(t, c)
	c.command = "DEL"
	n.must(t, c)
	n.same(t, "after DEL")
	if diff := cmp.Diff(podBefore, n.pod.State(t)); diff != "" {
		t.Errorf("the pod: -before +after:\n%s", diff)
	}
}

// DEL in the ways that runtimes and pods make it hard.
func TestDel(t *testing.T) {
	tests := map[string]struct {
		before func(*testing.T, *node)
		edit   func(*call)
		lost   bool // without a journal only the device and its names can be known
	}{
		"empty netns":         {nil, func(c *call) { c.netns = "" }, false},
		"netns path gone":     {nil, func(c *call) { c.netns = "/run/netns/not-there" }, false},
		"another netns":       {nil, func(c *call) { c.netns = "/proc/1/ns/net" }, false},
		"renamed in the pod":  {pod("link set net1 down", "link set net1 name eth5"), nil, false},
		"aliased in the pod":  {pod("link set net1 alias x", "link property add dev net1 altname mine"), nil, false},
		"settings in the pod": {pod("link set net1 mtu 1000 group 9", "addr flush dev net1"), nil, false},
		"without ipam":        {nil, func(c *call) { c.conf = confOf("1.1.0", `"device":"v0"`) }, false},
		"another device":      {nil, func(c *call) { c.conf = strings.Replace(c.conf, `"v0"`, `"v7"`, 1) }, false},
		"journal damaged": {func(t *testing.T, n *node) {
			if err := os.WriteFile(filepath.Join(n.state, "attachments", "c1@net1"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := everything
			if tt.lost {
				setup = []string{"link set v0 down"}
			}
			n := newNode(t, setup...)
			c := n.call("ADD", conf())
			n.must(t, c)
			if tt.before != nil {
				tt.before(t, n)
			}
			c.command = "DEL"
			if tt.edit != nil {
				tt.edit(&c)
			}
			n.must(t, c)
			if tt.lost {
				n.before = strings.ReplaceAll(n.before, "qdisc noqueue state DOWN", "qdisc noop state DOWN")
			}
			n.same(t, "after DEL")
		})
	}
}

func pod(commands ...string) func(*testing.T, *node) {
	return func(t *testing.T, n *node) {
		for _, c := range commands {
			n.pod.IP(t, strings.Fields(c)...)
		}
	}
}

func TestAddTwice(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must(t, n.call("ADD", conf()))
	first := n.pod.State(t)
	second := n.call("ADD", conf())
	for _, want := range []string{
		"attached already, as net1 of this very container", "in use by container c1 as net1",
	} {
		if a := n.run(t, second); a.ok || a.Code != 101 || !strings.Contains(a.Msg, want) {
			t.Errorf("answer %+v, want %q", a, want)
		}
		second.id, second.ifName = "c2", "net2"
	}
	if diff := cmp.Diff(first, n.pod.State(t)); diff != "" {
		t.Errorf("the first attachment: -before +after:\n%s", diff)
	}
	n.must(
		t,
		call{command: "DEL", id: "c2", ifName: "net2", netns: n.pod.Path, conf: conf()},
	) // the one that failed: touches nothing
	if diff := cmp.Diff(first, n.pod.State(t)); diff != "" {
		t.Errorf("the first attachment: -before +after:\n%s", diff)
	}
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL")
}

// Eight rails of one pod, added and returned side by side.
func TestParallel(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i := 1; i < 8; i++ {
		n.host.Veth(t, fmt.Sprintf("v%d0", i), n.far, fmt.Sprintf("w%d", i))
	}
	n.before = n.host.State(t)
	for range 3 {
		for _, command := range []string{"ADD", "DEL"} {
			done := make(chan answer)
			for i := range 8 {
				name := strings.Replace(fmt.Sprintf("v%d0", i), "v00", "v0", 1)
				c := call{
					command: command,
					id:      "c1",
					ifName:  fmt.Sprintf("net%d", i),
					netns:   n.pod.Path,
					conf: confOf("1.1.0", fmt.Sprintf(`"device":%q`, name),
						fmt.Sprintf(`"ipam":{"type":"static","addresses":[{"address":"192.168.%d.7/24"}]}`, i)),
				}
				go func() { done <- n.run(t, c) }()
			}
			for range 8 {
				if a := <-done; !a.ok {
					t.Errorf("%s: %d %s", command, a.Code, a.Msg)
				}
			}
		}
		n.same(t, "after DEL")
	}
}
