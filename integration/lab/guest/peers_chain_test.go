//go:build labguest

package guest

import (
	"encoding/json"
	"maps"
	"testing"
)

// chain calls host-device and then mode rdma, as libcni does for a list: each gets the result of the one before.
func chain(t *testing.T, pod *Pod, hostDevice, fabric config) (first, second *attachment) {
	t.Helper()
	first = interfaceOf(pod, "net1", network(hostDevice))
	first.conf["type"] = "host-device"
	call := first.call("ADD")
	call.Plugin = "host-device"
	out := call.Must(t)
	first.prev = json.RawMessage(out.Stdout)

	second = interfaceOf(pod, "net1", network(fabric))
	second.conf["prevResult"] = first.prev
	second.add(t)
	return first, second
}

// unchain returns the two in reverse order. Both get the result of the whole chain.
func unchain(t *testing.T, first, second *attachment) {
	t.Helper()
	second.del(t)
	first.prev = second.prev
	call := first.call("DEL")
	call.Plugin = "host-device"
	call.Must(t)
}

// host-device + rdma-cni on InfiniBand: ADD succeeds without a netdev in the pod, and DEL never does.
func TestPeerChainKeepsNetdev(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	for name, fields := range map[string]config{
		"device from the prevResult": {},
		"RDMA device by name":        {"mode": "rdma", "rdmaDevice": "mlx5_1"},
		"device id from Multus":      {"deviceID": "platform/fakeib.1"},
		"renamed RDMA device":        {"rdmaName": "mlx5_rail1"},
	} {
		t.Run(name, func(t *testing.T) {
			Unchanged(t)
			pod := NewPod(t, "pod")
			ipam := static("10.0.0.5/24 via 10.0.0.1", "fd00::5/64")
			ipam["routes"] = []config{{"dst": "10.77.0.0/16"}}
			first, second := chain(t, pod, config{"device": "ib1", "ipam": ipam}, fields)
			pod.has(t, "net1", "10.0.0.5/24", "fd00::5/64")
			hca := "mlx5_1"
			if fields["rdmaName"] != nil {
				hca = "mlx5_rail1"
			}
			pod.hasHCA(t, hca)
			if out := pod.sh(t, "ip route show dev net1"); !containsAll(out, "10.77.0.0/16 via 10.0.0.1") {
				t.Errorf("routes of the first plugin are lost: %s", out)
			}
			out := second.call("CHECK").Exec(t)
			if out.Failed() {
				t.Errorf("CHECK: %s", out)
			}
			unchain(t, first, second)
			second.del(t)
		})
	}
}

// The result of the chain tells the truth: the move of the RDMA device gave the netdev a new queue pair number.
func TestPeerChainResult(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	first, second := chain(t, pod, config{"device": "ib1", "ipam": static("10.0.0.5/24")}, config{})
	var result struct {
		Interfaces []struct{ Name, Mac, Sandbox string }
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal(second.prev, &result); err != nil {
		t.Fatal(err)
	}
	mac := pod.link(t, "net1").Attrs().HardwareAddr.String()
	found := false
	for _, i := range result.Interfaces {
		found = found || i.Name == "net1" && i.Mac == mac && i.Sandbox == pod.Path
	}
	if !found || len(result.IPs) != 1 || result.IPs[0].Address != "10.0.0.5/24" {
		t.Errorf("result is %s, want net1 with hardware address %s and 10.0.0.5/24", second.prev, mac)
	}
	unchain(t, first, second)
}

// The pod dies before DEL: the RDMA device is home, and the netdev is where host-device looks for it or on the host.
func TestPeerChainNetnsGone(t *testing.T) {
	Fabric{Num: 2}.Load(t)
	before := Snapshot(t)
	pod := NewPod(t, "pod")
	_, second := chain(t, pod, config{"device": "ib1", "ipam": static("10.0.0.5/24")}, config{})
	pod.Delete(t)
	second.del(t)
	second.del(t)
	host := Host(t)
	if _, err := RDMA(host, "mlx5_1"); err != nil {
		t.Error(err)
	}
	// host-device fails without the namespace; nothing but the name is left for it to do.
	if name := comesBack(t, "fakeib.1").Name; name != "ib1" {
		shell(t, "ip link set "+name+" name ib1")
	}
	Same(t, before)
}

// Mode rdma alone would leave an IPoIB interface of the host destroyed and recreated: it refuses.
func TestPeerRDMAAloneRefused(t *testing.T) {
	S1(t)
	Unchanged(t)
	pod := NewPod(t, "pod")
	a := interfaceOf(pod, "net1", network(config{"mode": "rdma", "rdmaDevice": "mlx5_0"}))
	wantError(t, a.call("ADD").Exec(t), 101, "ibs108", "mode")
	conf := maps.Clone(a.conf)
	conf["prevResult"] = config{"cniVersion": "1.1.0", "interfaces": []config{}}
	delete(conf, "rdmaDevice")
	a.conf = conf
	wantError(t, a.call("ADD").Exec(t), 7, "prevResult", "0 interfaces")
}
