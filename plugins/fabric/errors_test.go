package fabric_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// refusedAdds are the ways in which an ADD of a veth can be refused.
var refusedAdds = map[string]struct {
	host, pod []string
	policy    string
	edit      func(*call)
	code      uint
	want      string
	late      bool // only the kernel or the IPAM plugin finds out
}{
	"no such device":  {edit: conf1(`"device":"v9"`), code: 100, want: `device "v9": no such device`},
	"no such address": {edit: conf1(`"deviceID":"0000:99:00.0"`), code: 100, want: "0000:99:00.0"},
	"two addresses": {
		host: []string{
			"link add b0 address 02:00:00:00:00:01 type bridge",
			"link add b1 address 02:00:00:00:00:01 type bridge",
		},
		edit: conf1(`"hwaddr":"02:00:00:00:00:01"`),
		code: 7,
		want: "b0, b1",
	},
	"no selector":       {edit: conf1(`"mtu":1500`), code: 7, want: "deviceID"},
	"unknown key":       {edit: conf1(`"device":"v0","devcie":"x"`), code: 7, want: `"devcie"`},
	"not JSON":          {edit: func(c *call) { c.conf = "{" }, code: 6},
	"too long":          {edit: func(c *call) { c.conf = strings.Repeat(" ", 1<<20+1) }, code: 6, want: "1048576"},
	"deep":              {edit: conf1(`"device":"v0","ipam":` + strings.Repeat(`[`, 100000)), code: 6},
	"attribute of a VF": {edit: conf1(`"device":"v0","vlan":5`), code: 7, want: "vlan"},
	"name taken":        {pod: []string{"link add net1 type bridge"}, code: 4, want: "CNI_IFNAME net1"},
	"name is altname": {
		pod:  []string{"link add x type bridge", "link property add dev x altname net1"},
		code: 4,
		want: "CNI_IFNAME net1",
	},
	"bad name":         {edit: func(c *call) { c.ifName = "a/b" }, code: 4},
	"bad id":           {edit: func(c *call) { c.id = "../x" }, code: 4},
	"no netns":         {edit: func(c *call) { c.netns = "/run/netns/not-there" }, code: 4, want: "not-there"},
	"netns is a file":  {edit: func(c *call) { c.netns = "/proc/version" }, code: 4, want: "not a namespace"},
	"host's own netns": {edit: func(c *call) { c.netns = "/proc/self/ns/net" }, code: 8, want: "the host's own"},
	"default route":    {host: []string{"route add default via 10.1.0.9"}, code: 104, want: "default route"},
	"IPv6 default": {
		host: []string{"-6 route add default via fe80::9 dev v0"},
		code: 104,
		want: "default route",
	},
	"several defaults": {
		host: []string{
			"link add w0 type veth peer name w1",
			"link set w1 up",
			"link set w0 up",
			"addr add 10.2.0.1/24 dev w0",
			"route add default nexthop via 10.1.0.9 nexthop via 10.2.0.9",
		},
		code: 104,
		want: "default route",
	},
	"enslaved": {
		host: []string{"link add b0 type bridge", "link set v0 master b0"},
		code: 104,
		want: "bond, bridge or VRF",
	},
	"not listed":       {policy: `{"devices":["ens*"]}`, code: 104, want: "not among"},
	"node's address":   {policy: `{"allowVirtual":true,"nodeAddresses":["10.1.0.1"]}`, code: 104, want: "10.1.0.1"},
	"virtual":          {policy: `{}`, code: 104, want: "v0 is a virtual interface (veth)"},
	"virtual, another": {policy: `{"allowVirtual":["w*"]}`, code: 104, want: `"allowVirtual"`},
	"its host veth": { // as a pod's network plugin leaves them
		host:   []string{"link add cali7 type veth peer name far7"},
		policy: `{"devices":["cali*"]}`,
		edit:   conf1(`"device":"cali7"`),
		code:   104,
		want:   "cali7 is a virtual interface (veth)",
	},
	"bad policy":       {policy: `{"devices":`, code: 104, want: "policy.json"},
	"loopback":         {edit: conf1(`"device":"lo"`), code: 104, want: "loopback"},
	"RDMA wanted":      {edit: conf1(`"device":"v0","rdma":"exclusive"`), code: 100, want: "no RDMA device"},
	"no RDMA to chain": {edit: conf1(`"mode":"rdma","rdmaDevice":"mlx5_0"`), code: 100},
	"no IPoIB":         {edit: conf1(`"mode":"ipoib","master":"v0"`), code: 7, want: "is no IPoIB interface"},
	"mtu": {
		host: []string{"link add link v0 name mv0 type macvlan"},
		edit: conf1(`"device":"mv0","mtu":9000`),
		code: 105,
		late: true,
		want: "mtu 9000",
	},
	"no IPAM plugin": {edit: conf1(`"device":"v0","ipam":{"type":"nowhere"}`), code: 7, want: "nowhere", late: true},
	"IPAM fails": {
		edit: conf1(`"device":"v0","ipam":{"type":"static","addresses":[{"address":"nonsense"}]}`),
		want: "nonsense",
		late: true,
	},
	"route refused": {
		edit: conf1(
			`"device":"v0","ipam":{"type":"static","addresses":[{"address":"10.5.0.1/32"}],` +
				`"routes":[{"dst":"10.9.0.0/16","gw":"10.6.0.1"}]}`,
		),
		code: 105,
		late: true,
		want: "10.9.0.0/16 via 10.6.0.1",
	},
}

// Each way an ADD can be refused has its code, which plan prints as well, and says what is the matter, and leaves host,
// pod and journal alone. The DEL that a runtime sends after it succeeds.
func TestAddRefused(t *testing.T) {
	for name, tt := range refusedAdds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, append(append([]string(nil), everything...), tt.host...)...)
			for _, c := range tt.pod {
				n.pod.IP(t, strings.Fields(c)...)
			}
			podBefore := n.pod.State(t)
			if tt.policy != "" {
				n.policy(t, tt.policy)
			}
			c := n.call("ADD", conf())
			if tt.edit != nil {
				tt.edit(&c)
			}
			planned, _ := n.plan(c)
			a := n.run(t, c)
			if a.ok || tt.code != 0 && a.Code != tt.code || !strings.Contains(a.Msg, tt.want) ||
				strings.Contains(a.Msg, "internal error") {
				t.Errorf("answer %+v, want %d %q", a, tt.code, tt.want)
			}
			refusal := fmt.Sprintf("# ADD\n# refused: code %d: ", a.Code)
			if !tt.late && !strings.Contains(planned, refusal) {
				t.Errorf("ADD ends with code %d, plan has %s", a.Code, planned)
			}
			n.same(t, "after ADD")
			if diff := cmp.Diff(podBefore, n.pod.State(t)); diff != "" {
				t.Errorf("the pod: -before +after:\n%s", diff)
			}
			if name := c.ifName + c.id + c.netns; name != "net1c1"+n.pod.Path || !strings.HasPrefix(c.conf, `{"cni`) ||
				a.Code == 6 {
				return // DEL is as strict with these
			}
			c.command = "DEL"
			if b := n.run(t, c); !b.ok && a.Code != 7 {
				t.Errorf("DEL: %+v", b)
			}
			n.same(t, "after DEL")
			if diff := cmp.Diff(podBefore, n.pod.State(t)); diff != "" {
				t.Errorf("the pod: -before +after:\n%s", diff)
			}
		})
	}
}

func conf1(fields string) func(*call) {
	return func(c *call) {
		c.conf = confOf("1.1.0", fields)
	}
}

// What the owner allows is done.
func TestPolicyAllows(t *testing.T) {
	t.Parallel()
	n := newNode(t, "addr add 10.1.0.1/24 dev v0", "route add default via 10.1.0.9")
	n.policy(t, `{"devices":["v0"],"allowDefaultRoute":["v*"],"allowVirtual":["v0"]}`)
	n.must(t, n.call("ADD", conf()))
	n.must(t, n.call("DEL", conf()))
	n.same(t, "after DEL")
}
