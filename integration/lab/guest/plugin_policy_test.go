//go:build labguest

package guest

import (
	"os"
	"strings"
	"testing"
)

// The plugin never moves what the node stands on, whatever a network configuration says.
func TestPluginPolicyRefuses(t *testing.T) {
	S1(t)
	Modprobe(t, "dummy")
	Modprobe(t, "bridge")
	Modprobe(t, "vrf")
	Modprobe(t, "veth")
	Modprobe(t, "tun")
	shell(
		t,
		`ip link add br9 type bridge; ip link add d1 type dummy; ip link set d1 master br9
ip link add d2 type dummy; ip link set d2 up
ip address add fd99::1/64 dev d2 nodad; ip -6 route add default via fd99::2 dev d2
ip link add vrf9 type vrf table 9; ip link add d3 type dummy; ip link set d3 master vrf9
ip link add cali1 type veth peer name cali2
ip tuntap add tun9 mode tun`,
	)
	t.Cleanup(func() { shell(t, "for i in d1 d2 d3 br9 vrf9 cali1 tun9; do ip link del $i; done") })
	Unchanged(t)
	nic := firstNIC(t)
	target, err := os.Readlink("/sys/class/infiniband/mlx5_bond_0/device")
	if err != nil {
		t.Fatal(err)
	}
	pci := target[strings.LastIndex(target, "/")+1:]
	pod := NewPod(t, "pod")
	for name, c := range map[string]struct {
		fields config
		policy string
		words  []string
	}{
		"default route":            {config{"device": "bond0"}, "", []string{"bond0", "default route"}},
		"IPv6 default route":       {config{"device": "d2"}, "", []string{"d2", "default route"}},
		"bond member":              {config{"device": nic}, "", []string{nic, "bond"}},
		"bond member by address":   {config{"deviceID": pci}, "", []string{nic, "bond"}},
		"its RDMA device":          {config{"rdmaDevice": "mlx5_bond_0", "mode": "device"}, "", []string{nic, "bond"}},
		"its RDMA device alone":    {config{"rdmaDevice": "mlx5_bond_0", "mode": "rdma"}, "", []string{nic, "bond"}},
		"bridge port":              {config{"device": "d1"}, "", []string{"d1", "bridge"}},
		"VRF member":               {config{"device": "d3"}, "", []string{"d3", "VRF"}},
		"loopback":                 {config{"device": "lo"}, "", []string{"lo", "loopback"}},
		"host end of a pod's veth": {config{"device": "cali1"}, "", []string{"cali1", "veth", "allowVirtual"}},
		"virtual by hwaddr":        {config{"hwaddr": macOf(t, "cali2")}, "", []string{"cali2", "allowVirtual"}},
		"tun":                      {config{"device": "tun9"}, "", []string{"tun9", "tun", "allowVirtual"}},
		"node address": {
			config{"device": "ibs108"}, `{"nodeAddresses": ["10.8.0.1"]}`, []string{"ibs108", "10.8.0.1"},
		},
		"not in the list": {
			config{"device": "ibs108"}, `{"devices": ["ibs11*", "mlx5_7"]}`, []string{"ibs108", "ibs11*"},
		},
		"master not in the list": {
			config{"mode": "ipoib", "master": "ibs108"}, `{"devices": ["ibs11*"]}`, []string{"ibs108"},
		},
		"broken file": {config{"device": "ibs108"}, `{"devices": [`, []string{"policy.json"}},
		"unknown field": {
			config{"device": "ibs108"}, `{"device": ["ibs108"]}`, []string{"policy.json", "device"},
		},
		"bad pattern":    {config{"device": "ibs108"}, `{"devices": ["[ib"]}`, []string{"policy.json", "[ib"}},
		"more behind it": {config{"device": "ibs108"}, `{} {"devices": ["x"]}`, []string{"policy.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.policy != "" {
				policyFile(t, c.policy)
			}
			a := interfaceOf(pod, "net1", network(c.fields))
			wantError(t, a.call("ADD").Exec(t), 104, c.words...)
			a.del(t)
		})
	}
}

func macOf(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("/sys/class/net/" + name + "/address")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// What the node's owner allows is moved, and comes back.
func TestPluginPolicyAllows(t *testing.T) {
	S1(t)
	Modprobe(t, "dummy")
	Modprobe(t, "bridge")
	shell(
		t,
		"ip link add d1 type dummy; ip address add 10.61.0.1/24 dev d1; ip link set d1 up; ip route add default via "+
			"10.61.0.254 metric 9",
	)
	t.Cleanup(func() { shell(t, "ip link del d1") })
	Unchanged(t)
	for name, c := range map[string]struct{ device, policy string }{
		"list by name":         {"ibs108", `{"devices": ["ibs108"]}`},
		"list by altname":      {"ibs108", `{"devices": ["rail?"]}`},
		"list by address":      {"ibs108", `{"devices": ["platform/fakeib.0"]}`},
		"list by RDMA device":  {"ibs108", `{"devices": ["mlx5_[0-3]"]}`},
		"default route":        {"d1", `{"allowDefaultRoute": ["d1"], "allowVirtual": ["d1"]}`},
		"node address":         {"ibs108", `{"nodeAddresses": ["10.8.0.1"], "allowNodeAddress": ["rail0"]}`},
		"route of other table": {"ibs108", `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			policyFile(t, c.policy)
			a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": c.device}))
			a.add(t)
			a.del(t)
		})
	}
}

// A policy that breaks later keeps nothing from going home.
func TestPluginPolicyDoesNotHinderDel(t *testing.T) {
	S1(t)
	Unchanged(t)
	policyFile(t, `{"logDirs": ["/run"]}`)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108", "logFile": "/run/fabric-test.log"}))
	a.add(t)
	policyFile(t, "{")
	a.del(t)
	os.Remove("/run/fabric-test.log")
}
