//go:build labguest

package guest

import "testing"

// IPoIB children of one HCA each, in shared mode: rdma_cm finds its way over them, and queue pairs made by hand work in
// the partition of the child. A pod in another partition, on the same port, reaches neither.
func TestTrafficSharedChildren(t *testing.T) {
	RequireMode(t, "shared")
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	t.Cleanup(func() { Unload(t) })
	commands(t, [][]string{{"ip", "link", "set", "ib0", "up"}, {"ip", "link", "set", "ib1", "up"}})
	Unchanged(t)
	child := func(name string, number int, master, pkey string) *trafficPod {
		return podWithRails(t, name, number, config{"mode": "ipoib", "master": master, "pkey": pkey})
	}
	server, client := child("server", 1, "ib0", "0x8001"), child("client", 2, "ib1", "0x8001")
	stranger := child("stranger", 3, "ib1", "0x8002")
	pods := []*trafficPod{server, client, stranger}
	for _, p := range pods {
		p.idle = verbsObjects(t, p.Pod) // each sees what all have
	}
	ping(t, client.Pod, server.address(1))
	rping(server, client, server.address(1)).Must(t)
	pair := Pair{
		Server: server.Pod, Client: client.Pod, Address: server.address(1), CM: true, Tool: sized("ib_write_bw", "-R"),
	}
	measured(t, pair.Must(t))
	// Index 1 of the PKey table is 0x8001, 2 is 0x8002.
	pair.CM, pair.Tool = false, sized("ib_write_bw")
	pair.ServerArgs = []string{"-d", "mlx5_0", "--pkey_index=1"}
	pair.ClientArgs = []string{"-d", "mlx5_1", "--pkey_index=1"}
	measured(t, pair.Must(t))

	cutOff(t, server, stranger, server.address(1))
	join(t, server, stranger)
	pair.Client, pair.Address = stranger.Pod, server.clusterAddress()
	pair.ClientArgs = []string{"-d", "mlx5_1", "--pkey_index=2"}
	wantCutOff(t, pair.Exec(t))
	for _, p := range pods {
		p.idleAgain(t)
	}
	for _, p := range pods {
		p.rails[0].call("CHECK").Must(t)
		p.rails[0].del(t)
	}
}
