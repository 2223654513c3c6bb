//go:build labguest

package guest

import "testing"

// Field "rdma" on a system in exclusive mode.
func TestPluginRDMAExclusive(t *testing.T) {
	RequireMode(t, "exclusive")
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	for name, moves := range map[string]bool{"auto": true, "exclusive": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			a := interfaceOf(
				pod,
				"net1",
				network(config{"device": "ibs114", "rdma": name, "ipam": static("10.0.0.5/24")}),
			)
			a.add(t)
			if moves {
				pod.hasHCA(t, "mlx5_7")
			} else {
				pod.hasHCA(t)
			}
			pod.has(t, "net1", "10.0.0.5/24")
			a.call("CHECK").Must(t)
			a.del(t)
		})
	}
	a := interfaceOf(pod, "net1", network(config{"device": "ibs114", "rdma": "shared"}))
	wantError(t, a.call("ADD").Exec(t), 103, "exclusive", "mlx5_7", "rdma system set netns shared")
}

// A netdev without an RDMA device: moved with "auto", refused where RDMA is asked for.
func TestPluginRDMAOfPlainNetdev(t *testing.T) {
	S1(t)
	Modprobe(t, "dummy")
	shell(
		t,
		"ip link add d1 mtu 1400 type dummy; ip link set d1 up; ip address add 10.44.0.1/24 dev d1; ip route add "+
			"10.45.0.0/16 via 10.44.0.2",
	)
	t.Cleanup(func() { shell(t, "ip link del d1") })
	Unchanged(t)
	allowVirtual(t)
	pod := NewPod(t, "pod")
	for _, rdma := range []string{"auto", "none"} {
		a := interfaceOf(pod, "net1", network(config{"device": "d1", "rdma": rdma, "ipam": static("10.0.0.5/24")}))
		a.add(t)
		pod.has(t, "net1", "10.0.0.5/24")
		a.call("CHECK").Must(t)
		a.del(t)
	}
	for _, rdma := range []string{"exclusive", "shared"} {
		a := interfaceOf(pod, "net1", network(config{"device": "d1", "rdma": rdma}))
		wantError(t, a.call("ADD").Exec(t), 100, "d1", "no RDMA device", "none")
	}
}

// The RDMA device keeps a stable name while in the pod.
func TestPluginRDMAName(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"device": "ibs108", "rdmaName": "mlx5_rail0"}))
	a.add(t)
	pod.hasHCA(t, "mlx5_rail0")
	a.call("CHECK").Must(t)
	taken := interfaceOf(pod, "net2", network(config{"device": "ibs110", "rdmaName": "mlx5_rail0"}))
	wantError(t, taken.call("ADD").Exec(t), 105, "mlx5_rail0", "unique")
	taken.del(t)
	own := interfaceOf(pod, "net2", network(config{"device": "ibs110", "rdmaName": "mlx5_3"}))
	own.add(t)
	pod.hasHCA(t, "mlx5_3", "mlx5_rail0")
	own.del(t)
	a.del(t)
}

// Field "rdma" on a system in shared mode.
func TestSharedPluginRDMA(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	for _, rdma := range []string{"auto", "shared", "none"} {
		a := interfaceOf(pod, "net1", network(config{"device": "ib1", "rdma": rdma, "ipam": static("10.0.0.5/24")}))
		a.add(t)
		pod.has(t, "net1", "10.0.0.5/24")
		if got := pod.Sysfs(t, "/sys/class/infiniband"); len(got) != 2 {
			t.Errorf("the pod sees %v", got)
		}
		a.call("CHECK").Must(t)
		a.del(t)
	}
	for _, fields := range []config{{"rdma": "exclusive"}, {"rdmaIsolation": true}} {
		fields["device"] = "ib1"
		a := interfaceOf(pod, "net1", network(fields))
		wantError(t, a.call("ADD").Exec(t), 103, "shared", "rdma system set netns exclusive", "ib_core netns_mode=0")
	}
}

// In shared mode a pod with NET_ADMIN can give any RDMA device the name that the policy lists.
func TestSharedPolicyNames(t *testing.T) {
	RequireMode(t, "shared")
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	policyFile(t, `{"devices": ["mlx5_9", "ib0"]}`)
	pod := NewPod(t, "pod")
	pod.sh(t, "rdma dev set mlx5_1 name mlx5_9")
	for _, fields := range []config{
		{"device": "ib1"}, {"rdmaDevice": "mlx5_9"}, {"device": "ib1", "rdma": "none"},
		{"mode": "ipoib", "master": "ib1"},
	} {
		a := interfaceOf(pod, "net1", network(fields))
		wantError(t, a.call("ADD").Exec(t), 104, "not among", "mlx5_9", "shared RDMA mode", "bus address")
		a.del(t)
	}
	pod.sh(t, "rdma dev set mlx5_9 name mlx5_1")
	policyFile(t, `{"devices": ["platform/fakeib.1", "ib0"]}`)
	for _, device := range []string{"ib0", "ib1"} {
		a := interfaceOf(pod, "net1", network(config{"device": device}))
		a.add(t)
		a.del(t)
	}
}

// In shared mode a chained call has nothing to move: it passes the result on, and CHECK and DEL have nothing to do.
func TestSharedPluginChain(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	first, second := chain(t, pod, config{"device": "ib1", "ipam": static("10.0.0.5/24")}, config{})
	pod.has(t, "net1", "10.0.0.5/24")
	second.call("CHECK").Must(t)
	unchain(t, first, second)
}

// Shared mode, netns gone, late DEL, dead owner.
func TestSharedPluginNetnsGone(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	shell(
		t,
		"ip link set ib1 mtu 2000 up; ip address add 10.1.0.1/24 dev ib1; ip link property add dev ib1 altname rail1",
	)
	Unchanged(t)
	old := interfaceOf(NewPod(t, "old"), "net1", network(config{"device": "ib1"}))
	old.add(t)
	old.pod.Delete(t)
	young := interfaceOf(NewPod(t, "young"), "net1", network(config{"device": "ib1"}))
	young.add(t)
	old.del(t)
	young.pod.has(t, "net1")
	young.pod.Delete(t)
	young.del(t)
}
