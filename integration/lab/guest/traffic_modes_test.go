//go:build labguest

package guest

import (
	"testing"
)

// worksBetween runs one program with queue pairs made by hand, and, over IPoIB, one through rdma_cm.
func worksBetween(t *testing.T, server, client *trafficPod, address string, ipoib bool) {
	t.Helper()
	write := Pair{Server: server.Pod, Client: client.Pod, Tool: sized("ib_write_bw"), Address: address}
	measured(t, write.Must(t))
	if ipoib {
		rping(server, client, address).Must(t)
	}
}

// rping is a conversation through rdma_cm that checks its data.
func rping(server, client *trafficPod, address string) Pair {
	return Pair{
		Server: server.Pod, Client: client.Pod, Tool: []string{"rping", "-a", address, "-C", "3", "-V"},
		ServerArgs: []string{"-s"}, ClientArgs: []string{"-c"}, CM: true,
	}
}

// Mode rdma behind another plugin: host-device has given the pod the netdev, ours brings the RDMA device.
func TestTrafficChain(t *testing.T) {
	trafficFabric(t, Fabric{Num: 2})
	var pods [2]*trafficPod
	var firsts, seconds [2]*attachment
	for i, name := range []string{"server", "client"} {
		p := &trafficPod{Pod: NewPod(t, name), number: i + 1}
		device := config{"device": "ib" + []string{"0", "1"}[i], "ipam": static(p.address(1) + "/24")}
		firsts[i], seconds[i] = chain(t, p.Pod, device, config{"mode": "rdma"})
		p.idle = verbsObjects(t, p.Pod)
		pods[i] = p
	}
	ping(t, pods[1].Pod, pods[0].address(1))
	worksBetween(t, pods[0], pods[1], pods[0].address(1), true)
	for i, p := range pods {
		p.leave(t)
		seconds[i].call("CHECK").Must(t)
		unchain(t, firsts[i], seconds[i])
	}
}

// RDMA devices that have no netdev: programs meet over the cluster's network, and all else goes over the rail.
func TestTrafficBare(t *testing.T) {
	trafficFabric(t, Fabric{Num: 2, Bare: true})
	var pods [2]*trafficPod
	var list [2]*attachment
	for i, name := range []string{"server", "client"} {
		p := &trafficPod{Pod: NewPod(t, name), number: i + 1}
		list[i] = interfaceOf(p.Pod, "net1", network(config{"rdmaDevice": "mlx5_" + []string{"0", "1"}[i]}))
		list[i].add(t)
		p.rails, p.idle = list[i:i+1], verbsObjects(t, p.Pod)
		pods[i] = p
	}
	join(t, pods[0], pods[1])
	worksBetween(t, pods[0], pods[1], pods[0].clusterAddress(), false)
	pods[0].leave(t)
	pods[1].leave(t)
}

// Subfunctions, by their names on the auxiliary bus.
func TestTrafficSubfunctions(t *testing.T) {
	trafficFabric(t, Fabric{SFs: 2})
	server := podWithRails(t, "server", 1, config{"deviceID": "fakeib.sf.0"})
	client := podWithRails(t, "client", 2, config{"deviceID": "fakeib.sf.1"})
	ping(t, client.Pod, server.address(1))
	worksBetween(t, server, client, server.address(1), true)
	server.leave(t)
	client.leave(t)
}
