//go:build labguest

package guest

import (
	"fmt"
	"strconv"
	"testing"
)

// Two pods with four rails each. All rails work at once, each with messages of another size, and what each port has
// counted afterwards is its own rail's traffic and no other's.
func TestTrafficFourRails(t *testing.T) {
	const rails = 4
	trafficFabric(t, Fabric{Num: 2 * rails})
	var networks [2][]config
	for i := range rails {
		networks[0] = append(networks[0], config{"device": fmt.Sprintf("ib%d", i)})
		networks[1] = append(networks[1], config{"device": fmt.Sprintf("ib%d", rails+i)})
	}
	server := podWithRails(t, "server", 1, networks[0]...)
	client := podWithRails(t, "client", 2, networks[1]...)
	hca := func(p *trafficPod, rail int) string {
		if p == client {
			rail += rails
		}
		return fmt.Sprintf("mlx5_%d", rail)
	}
	ports := func(p *trafficPod) (list [rails]moved) {
		for i := range list {
			list[i] = octets(t, p, hca(p, i))
		}
		return list
	}
	for i := range rails {
		ping(t, client.Pod, server.address(i+1))
	}
	serverBefore, clientBefore := ports(server), ports(client)
	var running [rails]*Talking
	size := func(rail int) int { return messageSize / 4 << rail }
	for i := range rails {
		running[i] = Pair{
			Server: server.Pod, Client: client.Pod,
			Tool:       perftest("ib_write_bw", "-s", strconv.Itoa(size(i)), "-p", strconv.Itoa(18515+i)),
			ServerArgs: []string{"-d", hca(server, i)}, ClientArgs: []string{"-d", hca(client, i)},
			Address: server.address(i + 1),
		}.Start(t)
	}
	for i, r := range running {
		talk := r.Wait()
		if !talk.OK() {
			t.Fatalf("rail %d: %s", i+1, talk)
		}
		measured(t, talk)
	}
	serverAfter, clientAfter := ports(server), ports(client)
	for i := range rails {
		want := uint64(messages * size(i))
		s, c := serverAfter[i].since(serverBefore[i]), clientAfter[i].since(clientBefore[i])
		t.Logf("rail %d: client %+v, server %+v", i+1, c, s)
		// The rest is IPoIB's, over which the programs have met. The next rail carries twice as much.
		if most := want + want/8; c.sent < want || c.sent > most || s.received < want || s.received > most {
			t.Errorf("rail %d: the client's port has sent %d octets and the server's has received %d, want %d to %d",
				i+1, c.sent, s.received, want, most)
		}
		if c.received > want/2 || s.sent > want/2 {
			t.Errorf("rail %d: %d octets came back, and the client writes %d", i+1, c.received, want)
		}
	}
	server.leave(t)
	client.leave(t)
}
