package fabric_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fabric-cni/fabric-cni/internal/testkit/sandbox"
)

// CHECK names every difference, and changes nothing.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		spoil []string
		want  []string // in the message; none: no error
	}{
		"in order": {nil, nil},
		"down": {
			[]string{"link set net1 down"},
			[]string{
				"interface state: want up, got down",
				"address: want 2001:db8:10::7/64, got missing",
				"route: want 10.20.0.0/16",
			},
		},
		"mtu": {[]string{"link set net1 mtu 1400"}, []string{"mtu: want 1500, got 1400"}},
		"address": {
			[]string{"addr del 192.168.10.7/24 dev net1"},
			[]string{"address: want 192.168.10.7/24, got missing"},
		},
		"route": {
			[]string{"route del 10.20.0.0/16"},
			[]string{"route: want 10.20.0.0/16 via 192.168.10.1, got missing"},
		},
		"gone": {
			[]string{"link set net1 down", "link set net1 name other"},
			[]string{"interface: want net1, got none"},
		},
		"by altname": {
			[]string{"link set net1 down", "link set net1 name other", "link property add dev other altname net1"},
			[]string{"interface name: want net1, got other"},
		},
		"another's MAC":  {[]string{"link set net1 address 02:00:00:00:00:99"}, []string{"hardware address: want "}},
		"more addresses": {[]string{"addr add 10.9.9.9/24 dev net1"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.call("ADD", conf())
			c.conf = with(t, c.conf, n.must(t, c).stdout)
			for _, s := range tt.spoil {
				n.pod.IP(t, strings.Fields(s)...)
			}
			before := n.pod.State(t)
			c.command = "CHECK"
			a := n.run(t, c)
			if a.ok != (tt.want == nil) || !a.ok && a.Code != 105 {
				t.Errorf("answer %+v", a)
			}
			for _, w := range tt.want {
				if !strings.Contains(a.Msg, w) {
					t.Errorf("%q is not in %s", w, a.Msg)
				}
			}
			if diff := cmp.Diff(before, n.pod.State(t)); diff != "" {
				t.Errorf("the pod: -before +after:\n%s", diff)
			}
			c.command = "DEL"
			n.must(t, c)
		})
	}
}

func TestCheckWithoutAdd(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.call("ADD", conf())
	c.conf = with(t, c.conf, n.must(t, c).stdout)
	c.command, c.id = "CHECK", "c2"
	if a := n.run(t, c); a.ok || a.Code != 100 {
		t.Errorf("answer %+v", a)
	}
	n.must(t, n.call("DEL", conf()))
}

func TestGC(t *testing.T) {
	t.Parallel()
	n := newNode(t, everything...)
	n.host.Veth(t, "w0", n.far, "w1")
	n.before = n.host.State(t)
	const second = `"ipam":{"type":"static","addresses":[{"address":"192.168.20.7/24"}]}`
	w := call{
		command: "ADD",
		id:      "c2",
		ifName:  "net2",
		netns:   n.pod.Path,
		conf:    confOf("1.1.0", `"device":"w0"`, second),
	}
	n.must(t, n.call("ADD", conf()))
	n.must(t, w)
	n.age(t)
	gc := func(network, valid string) call {
		c := confOf("1.1.0", static, `"cni.dev/valid-attachments":`+valid)
		return call{command: "GC", conf: strings.Replace(c, `"rail"`, `"`+network+`"`, 1)}
	}
	both := `[{"containerID":"c1","ifname":"net1"},{"containerID":"c2","ifname":"net2"}]`
	without := call{command: "GC", conf: confOf("1.1.0", static)}
	// Nothing is stale; another network; no list, and the pod is there.
	for _, c := range []call{gc("rail", both), gc("other", "[]"), without} {
		n.must(t, c)
		if files := n.files(t); len(files) != 4 {
			t.Errorf("on file: %v", files)
		}
	}
	n.must(t, gc("rail", `[{"containerID":"c2","ifname":"net2"}]`))
	if s := n.pod.IP(t, "link"); strings.Contains(s, "net1") || !strings.Contains(s, "net2") {
		t.Errorf("in the pod: %s", s)
	}
	// It goes on past what it can't read, and reports that.
	if err := os.WriteFile(filepath.Join(n.state, "attachments", "c0@net1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := n.run(t, gc("rail", "[]")); !a.ok || !strings.Contains(a.stderr, "c0@net1") {
		t.Errorf("answer %+v", a)
	}
	n.must(t, call{command: "DEL", id: "c0", ifName: "net1", netns: n.pod.Path, conf: conf()})
	n.same(t, "after GC")
}

func TestStatus(t *testing.T) {
	tests := map[string]struct {
		conf   string
		policy string
		spoil  func(*testing.T, *node)
		code   uint
		want   string
	}{
		"ready":       {conf: conf()},
		"RDMA wanted": {conf: conf(`"rdma":"exclusive"`), code: 50, want: "ib_core"},
		"child":       {conf: confOf("1.1.0", `"mode":"ipoib","master":"ib0"`), code: 50},
		"bad policy":  {conf: conf(), policy: `{"device":[]}`, code: 50, want: "policy.json"},
		"no IPAM plugin": {
			conf: confOf("1.1.0", `"device":"v0","ipam":{"type":"nowhere"}`),
			code: 50,
			want: "nowhere",
		},
		"no such device": {conf: confOf("1.1.0", `"device":"v9"`), code: 50, want: `device "v9": no such device`},
		"virtual":        {conf: conf(), policy: `{}`, code: 50, want: "v0 is a virtual interface"},
		"forbidden":      {conf: conf(), policy: `{"devices":["ens*"]}`, code: 50, want: "not among its devices"},
		"enslaved":       {conf: conf(), spoil: enslaved, code: 50, want: "bond, bridge or VRF"},
		"setting of a VF": {
			conf: conf(`"vlan":5`),
			code: 50,
			want: "vlan",
		},
		"in a pod":        {conf: conf(), spoil: attachedToPod},
		"no selector":     {conf: confOf("1.1.0", static)},
		"state directory": {conf: conf(), spoil: stateIsFile, code: 51, want: "/run/fabric-cni"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if tt.policy != "" {
				n.policy(t, tt.policy)
			}
			if tt.spoil != nil {
				tt.spoil(t, n)
			}
			a := n.run(t, call{command: "STATUS", conf: tt.conf})
			if a.ok != (tt.code == 0) || a.Code != tt.code || !strings.Contains(a.Msg, tt.want) {
				t.Errorf("answer %+v, want %d %q", a, tt.code, tt.want)
			}
		})
	}
}

func enslaved(t *testing.T, n *node) {
	n.host.IP(t, "link", "add", "b0", "type", "bridge")
	n.host.IP(t, "link", "set", "v0", "master", "b0")
}

// attachedToPod gives the device to a pod: that is no reason against the next one.
func attachedToPod(t *testing.T, n *node) { n.must(t, n.call("ADD", conf())) }

// stateIsFile puts a file where the attachments are to be: not even root can write below it.
func stateIsFile(t *testing.T, n *node) {
	if err := os.WriteFile(filepath.Join(n.state, "attachments"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var v struct {
		Supported []string `json:"supportedVersions"`
	}
	if err := json.Unmarshal(
		[]byte(n.must(t, call{command: "VERSION", conf: `{"cniVersion":"1.1.0"}`}).stdout),
		&v,
	); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}, v.Supported); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A virtual device dies with the pod's namespace. DEL does not insist on it, and nothing stays on file.
func TestDelOfVirtualDeviceThatDied(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.must(t, n.call("ADD", conf()))
	sandbox.Run(t, "ip", "netns", "delete", n.pod.Name)
	sandbox.Run(t, "ip", "netns", "add", n.pod.Name) // for the end of the test; another namespace
	n.must(t, n.call("DEL", conf()))
	if files := n.files(t); len(files) > 0 {
		t.Errorf("left on file: %v", files)
	}
}
