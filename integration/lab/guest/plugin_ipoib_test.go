//go:build labguest

package guest

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// An IPoIB child has what its master has, unless the configuration says otherwise.
func TestPluginChildSettings(t *testing.T) {
	for name, c := range map[string]struct {
		fields config
		pkey   uint16
		mode   netlink.IPoIBMode
		mtu    int
		umcast uint16
	}{
		"all from the master":  {config{"master": "ibs108"}, 0xffff, netlink.IPOIB_MODE_DATAGRAM, 4092, 0},
		"by altname":           {config{"master": "rail0"}, 0xffff, netlink.IPOIB_MODE_DATAGRAM, 4092, 0},
		"mode from the master": {config{"master": "ibs110"}, 0xffff, netlink.IPOIB_MODE_CONNECTED, 2000, 0},
		"other partition": {
			config{"master": "ibs108", "pkey": "0x8002"}, 0x8002, netlink.IPOIB_MODE_DATAGRAM, 4092, 0,
		},
		"partition as a number": {
			config{"master": "ibs108", "pkey": 0x8003}, 0x8003, netlink.IPOIB_MODE_DATAGRAM, 4092, 0,
		},
		"without the member bit": {
			config{"master": "ibs108", "pkey": "0x1"}, 0x8001, netlink.IPOIB_MODE_DATAGRAM, 4092, 0,
		},
		"own mode and MTU": {
			config{"master": "ibs108", "ipoibMode": "connected", "mtu": 9000}, 0xffff, netlink.IPOIB_MODE_CONNECTED,
			9000, 0,
		},
		"datagram on connected": {
			config{"master": "ibs110", "ipoibMode": "datagram"}, 0xffff, netlink.IPOIB_MODE_DATAGRAM, 2000, 0,
		},
		"umcast": {
			config{"master": "ibs114", "umcast": true, "mtu": 1500}, 0xffff, netlink.IPOIB_MODE_DATAGRAM, 1500, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			S1(t)
			Unchanged(t)
			pod := NewPod(t, "pod")
			c.fields["mode"] = "ipoib"
			c.fields["ipam"] = static("10.0.0.5/24")
			a := interfaceOf(pod, "net1", network(c.fields))
			out := a.add(t)
			child, ok := pod.link(t, "net1").(*netlink.IPoIB)
			if !ok {
				t.Fatalf("net1 is %+v", pod.link(t, "net1"))
			}
			if child.Pkey != c.pkey || child.Mode != c.mode || child.MTU != c.mtu || child.Umcast != c.umcast {
				t.Errorf(
					"child has pkey %#x mode %v mtu %d umcast %d, want %+v",
					child.Pkey,
					child.Mode,
					child.MTU,
					child.Umcast,
					c,
				)
			}
			pod.has(t, "net1", "10.0.0.5/24")
			pod.hasHCA(t) // the master's stays on the host
			if i := out.Result.Interfaces; len(i) != 1 || i[0].Mac != child.HardwareAddr.String() || i[0].Mtu != c.mtu {
				t.Errorf("result has interfaces %+v", i)
			}
			a.call("CHECK").Must(t)
			a.del(t)
			if _, err := pod.Handle(t).LinkByName("net1"); err == nil {
				t.Error("the child is still in the pod")
			}
		})
	}
}

func TestPluginChildRefused(t *testing.T) {
	S1(t)
	shell(t, "ip link add link ibs114 name kid type ipoib pkey 0x8001")
	t.Cleanup(func() { shell(t, "ip link del kid") })
	Unchanged(t)
	pod := NewPod(t, "pod")
	for name, c := range map[string]struct {
		fields config
		code   uint
		words  []string
	}{
		"partition the port is not in": {
			config{"master": "ibs108", "pkey": "0x8abc"}, 102, []string{"pkey", "0x8abc", "mlx5_0 port 1", "0x8001"},
		},
		"PKey 0": {
			config{"master": "ibs108", "pkey": "0x0000"}, 7, []string{"pkey", "0x0000", "0x0001"},
		},
		"too large a PKey": {config{"master": "ibs108", "pkey": "0x10000"}, 7, []string{"pkey", "0x10000"}},
		"child of a child": {config{"master": "kid"}, 7, []string{"master", "kid", "child", "ibs114"}},
		"not IPoIB":        {config{"master": "bond0"}, 7, []string{"master", "bond0", "IPoIB", "ibs108"}},
		"no master":        {config{}, 7, []string{"master", "missing"}},
		"a mode that is none": {
			config{"master": "ibs108", "ipoibMode": "fast"}, 7, []string{"ipoibMode", "fast", "datagram, connected"},
		},
		"MTU of another mode": {config{"master": "ibs108", "mtu": 60000}, 105, []string{"mtu"}},
		"exclusive": {
			config{"master": "ibs108", "rdma": "exclusive"}, 7, []string{"rdma", "exclusive"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.fields["mode"] = "ipoib"
			a := interfaceOf(pod, "net1", network(c.fields))
			wantError(t, a.call("ADD").Exec(t), c.code, c.words...)
			a.del(t)
		})
	}
}

// Pods on children of different HCAs reach each other in one partition, and not across partitions.
func TestPluginChildrenPing(t *testing.T) {
	S1(t)
	Unchanged(t)
	var pods []*Pod
	var list []*attachment
	for i, c := range []config{{"master": "ibs108"}, {"master": "ibs112"}, {"master": "ibs112", "pkey": "0x8001"}} {
		c["mode"], c["ipam"] = "ipoib", static(fmt.Sprintf("10.0.0.%d/24", i+1), fmt.Sprintf("fd00::%d/64", i+1))
		pods = append(pods, NewPod(t, fmt.Sprintf("pod%d", i)))
		list = append(list, interfaceOf(pods[i], "ib0", network(c)))
		list[i].add(t)
	}
	ping(t, pods[0], "10.0.0.2")
	ping(t, pods[1], "10.0.0.1")
	ping(t, pods[0], "fd00::2")
	if out, err := pods[0].Command("ping", "-c", "2", "-W", "1", "10.0.0.3"); err == nil {
		t.Errorf("another partition answers: %s", out)
	}
	for _, a := range list {
		a.del(t)
	}
}

// Moving the PF would destroy its children, in whatever pod: it is refused, with their owners' names.
func TestPluginParentWithChildrenStays(t *testing.T) {
	S1(t)
	Unchanged(t)
	pods := []*Pod{NewPod(t, "alice"), NewPod(t, "bob")}
	var list []*attachment
	for i, pod := range pods {
		a := interfaceOf(
			pod,
			fmt.Sprintf("ib%d", i),
			network(config{"mode": "ipoib", "master": "ibs108", "pkey": fmt.Sprintf("0x%x", 0x8001+i)}),
		)
		a.add(t)
		list = append(list, a)
	}
	pf := interfaceOf(NewPod(t, "pod"), "net1", network(config{"device": "ibs108"}))
	wantError(t, pf.call("ADD").Exec(t), 101, "ibs108", "container alice (ib0)", "container bob (ib1)", "mode")
	list[0].del(t)
	wantError(t, pf.call("ADD").Exec(t), 101, "container bob (ib1)")
	// A child whose pod is dead does not count: it is removed.
	pods[1].Delete(t)
	pf.add(t)
	pf.del(t)
	list[1].del(t)
	shell(t, "ip link add link ibs108 name own type ipoib pkey 0x8001")
	wantError(t, pf.call("ADD").Exec(t), 101, "host interface own")
	shell(t, "ip link del own")
}
