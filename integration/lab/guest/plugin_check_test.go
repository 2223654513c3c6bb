//go:build labguest

package guest

import (
	"encoding/json"
	"os"
	"testing"
)

// CHECK names each thing that was changed in the pod, and all of them at once.
func TestPluginCheck(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	ipam := static("10.0.0.5/24 via 10.0.0.1", "fd00::5/64")
	ipam["routes"] = []config{{"dst": "10.77.0.0/16"}}
	fields := config{"device": "ibs108", "ipam": ipam, "mtu": 2000, "routing": config{"sourceBased": true}}
	a := interfaceOf(pod, "net1", network(fields))
	a.add(t)
	a.call("CHECK").Must(t)
	var lines []string
	for _, c := range []struct{ what, do, undo, line string }{
		{"MTU", "ip link set net1 mtu 1500", "ip link set net1 mtu 2000", "mtu: want 2000, got 1500"},
		{
			"address", "ip address del fd00::5/64 dev net1", "ip address add fd00::5/64 dev net1 nodad",
			"address: want fd00::5/64, got missing",
		},
		{
			"route", "ip route del 10.77.0.0/16 table main", "ip route add 10.77.0.0/16 via 10.0.0.1",
			"route: want 10.77.0.0/16 via 10.0.0.1, got missing",
		},
		{"rule", "ip rule del from 10.0.0.5", "", "rule: want from 10.0.0.5/32"},
		{"sysctl", "echo 0 >/proc/sys/net/ipv4/conf/net1/arp_ignore", "echo 1 >/proc/sys/net/ipv4/conf/net1/" +
			"arp_ignore", "arp_ignore: want 1, got 0"},
	} {
		lines = append(lines, c.line)
		pod.sh(t, c.do)
		wantError(t, a.call("CHECK").Exec(t), 105, "net1", c.line)
		if c.undo != "" {
			pod.sh(t, c.undo)
			if out := a.call(
				"CHECK",
			).Exec(
				t,
			); c.what != "sysctl" && out.Err != nil &&
				containsAll(out.Err.Msg, c.line) {
				t.Errorf("%s is put right, but CHECK says %s", c.what, out)
			}
		}
		pod.sh(t, c.do+" || true")
	}
	wantError(t, a.call("CHECK").Exec(t), 105, lines...)
	pod.sh(t, "ip link set net1 down")
	wantError(t, a.call("CHECK").Exec(t), 105, "interface state: want up, got down")
	a.del(t)
}

func TestPluginCheckOfTheDevice(t *testing.T) {
	S1(t)
	Unchanged(t)
	for name, c := range map[string]struct {
		do    string
		words []string
	}{
		"renamed":             {"ip link set net1 down; ip link set net1 name other", []string{"net1"}},
		"RDMA device renamed": {"rdma dev set mlx5_0 name other", []string{"RDMA device: want mlx5_0, got other"}},
		"RDMA device gone":    {"", []string{"RDMA device: want mlx5_0, got not in the pod", "interface: want net1"}},
		"replaced": {"ip link set net1 down; ip link set net1 name other; ip link add net1 type dummy; " +
			"ip link set net1 up", []string{"hardware address: want 80:", "mtu: want 4092"}},
	} {
		t.Run(name, func(t *testing.T) {
			Modprobe(t, "dummy")
			pod := NewPod(t, "pod")
			a := interfaceOf(pod, "net1", network(config{"device": "ibs108"}))
			a.add(t)
			if c.do != "" {
				pod.sh(t, c.do)
			} else if err := pod.Do(func() error { return MoveRDMA("mlx5_0", HostPath) }); err != nil {
				t.Fatal(err)
			}
			wantError(t, a.call("CHECK").Exec(t), 105, c.words...)
			a.del(t)
		})
	}
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108"}))
	wantError(t, a.call("CHECK").Exec(t), 100, "no such attachment")
}

func TestPluginCheckOfAChild(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"mode": "ipoib", "master": "ibs108", "ipam": static("10.0.0.5/24")}))
	a.add(t)
	a.call("CHECK").Must(t)
	pod.sh(t, "ip link del net1; ip link show")
	wantError(t, a.call("CHECK").Exec(t), 105, "interface: want net1, got none")
	a.del(t)
}

// A CHECK in another namespace, or with a prevResult that does not fit, is told apart from a good one.
func TestPluginCheckElsewhere(t *testing.T) {
	S1(t)
	Unchanged(t)
	a := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108", "ipam": static("10.0.0.5/24")}))
	a.add(t)
	other := *a
	other.pod = NewPod(t, "other")
	wantError(t, other.call("CHECK").Exec(t), 105, "network namespace", "interface: want net1")
	gone := a.call("CHECK")
	gone.Netns = "/run/netns/nowhere"
	if out := gone.Exec(t); !out.Failed() || out.Err == nil {
		t.Errorf("CHECK without the namespace: %s", out)
	}
	bad := *a
	bad.prev = json.RawMessage(`{"cniVersion":"1.1.0","ips":[{"address":"10.0.0"}]}`)
	wantError(t, bad.call("CHECK").Exec(t), 7, "prevResult")
	a.del(t)
	if _, err := os.Stat(a.entryFile()); err == nil {
		t.Error("the entry is still there")
	}
}
