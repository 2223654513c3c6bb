//go:build labguest

package guest

import (
	"fmt"
	"strings"
	"testing"
)

// Queue pairs in one partition talk, and in two they do not: the sender is told in bounded time, and nothing arrives.
// The PKey table is that of Fabric.
func TestTrafficPartitions(t *testing.T) {
	trafficFabric(t, Fabric{Num: 2})
	server := podWithRails(t, "server", 1, config{"device": "ib0"})
	client := podWithRails(t, "client", 2, config{"device": "ib1"})
	ping(t, client.Pod, server.address(1))
	pair := Pair{
		Server: server.Pod, Client: client.Pod, Tool: sized("ib_write_bw"), Address: server.address(1),
		ServerArgs: []string{"--pkey_index=1"}, ClientArgs: []string{"--pkey_index=1"},
	}
	measured(t, pair.Must(t))
	pair.ClientArgs = []string{"--pkey_index=2"}
	before := octets(t, server, "mlx5_0")
	wantCutOff(t, pair.Exec(t))
	if m := octets(t, server, "mlx5_0").since(before); m.received > messageSize {
		t.Errorf("%d octets have arrived in another partition", m.received)
	}
	t.Run("children of the pods", func(t *testing.T) { podChildren(t, server, client) })
	server.leave(t)
	client.leave(t)
}

// podChildren are IPoIB children that the pods make on their rails, with rdma_cm over them: its queue pairs are in the
// child's partition.
func podChildren(t *testing.T, server, client *trafficPod) {
	t.Helper()
	child := func(p *trafficPod, pkey string, net int) string {
		address := fmt.Sprintf("10.%d.0.%d", net, p.number)
		p.sh(t, fmt.Sprintf("ip link add link net1 name p%s type ipoib pkey %s; ip address add %s/24 dev p%s; "+
			"ip link set p%s up", pkey, pkey, address, pkey, pkey))
		return address
	}
	address := child(server, "0x8001", 81)
	child(client, "0x8001", 81)
	ping(t, client.Pod, address)
	rping(server, client, address).Must(t)
	address = child(server, "0x8002", 82)
	child(client, "0x8003", 82)
	cutOff(t, server, client, address)
	server.sh(t, "ip link del p0x8001; ip link del p0x8002")
	client.sh(t, "ip link del p0x8001; ip link del p0x8003")
}

// cutOff wants rdma_cm to give up between two pods. The neighbour entry of another partition's address never comes.
func cutOff(t *testing.T, server, client *trafficPod, address string) {
	t.Helper()
	talking := rping(server, client, address).Start(t)
	end := talking.Client.Wait(talking.timeout)
	talking.Server.Kill() // it would wait for another client
	if end.OK() || end.Late || !strings.Contains(end.Output, "RDMA_CM_EVENT_") {
		t.Errorf("rping into another partition: %s", end)
	}
}
