//go:build labguest

package guest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A port that goes Down ends the traffic over it with an error, and does not take part while it is Down or waits for
// the subnet manager. When it is Active again the same pods work as before. The programs meet over the cluster's
// network, so that nothing but the rail is cut.
func TestTrafficPortDown(t *testing.T) {
	trafficFabric(t, Fabric{Num: 2})
	t.Cleanup(func() { SetStates(t, Active, Active) })
	server := podWithRails(t, "server", 1, config{"device": "ib0"})
	client := podWithRails(t, "client", 2, config{"device": "ib1"})
	join(t, server, client)
	ping(t, client.Pod, server.address(1))
	for _, c := range []struct {
		whose  string
		states []int
	}{{"server", []int{Down, Active}}, {"client", []int{Active, Down}}} {
		t.Run(c.whose, func(t *testing.T) {
			defer SetStates(t, Active, Active)
			talking := untilError(server, client).Start(t)
			underWay(t, talking, client)
			SetStates(t, c.states...)
			wantCutOff(t, talking.Wait())
			server.idleAgain(t)
			client.idleAgain(t)
		})
	}
	for state, word := range map[int]string{Down: "Down", Init: "Init"} {
		SetStates(t, state, Active)
		wantNoPort(t, server.Pod, "mlx5_0", word)
	}
	SetStates(t, Active, Active)
	ping(t, client.Pod, server.address(1))
	worksBetween(t, server, client, server.address(1), true)
	server.leave(t)
	client.leave(t)
}

// untilError is traffic that only an error ends. The programs meet over the cluster's network.
func untilError(server, client *trafficPod) Pair {
	return Pair{
		Server: server.Pod, Client: client.Pod, Address: server.clusterAddress(),
		Tool: []string{"ib_write_bw", "-F", "-s", strconv.Itoa(messageSize), "--run_infinitely"},
	}
}

// underWay waits until there is traffic. The programs do not say so at once: they keep their output until it is worth
// a write.
func underWay(t *testing.T, talking *Talking, client *trafficPod) {
	t.Helper()
	hca := client.hca(t)
	before := octets(t, client, hca)
	Until(t, "there is traffic", func() error {
		if sent := octets(t, client, hca).since(before).sent; sent < 16*messageSize {
			return fmt.Errorf("%d octets are sent: %s", sent, talking.Client.Output())
		}
		return nil
	})
}

// wantCutOff wants both sides to have ended by themselves, the client because its peer did not answer.
func wantCutOff(t *testing.T, talk Talk) {
	t.Helper()
	// 12 is IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded".
	if talk.Client.OK() || talk.Client.Late || !strings.Contains(talk.Client.Output, "Failed status 12") {
		t.Errorf("the client does not say that its peer is out of reach:\n%s", talk)
	}
	if talk.Server.Late {
		t.Errorf("the server goes on without its client:\n%s", talk)
	}
}

// wantNoPort wants a program to refuse the port of an HCA because of its state.
func wantNoPort(t *testing.T, pod *Pod, hca, state string) {
	t.Helper()
	end := pod.Run(t, "ib_write_bw", "-F", "-d", hca)
	if end.OK() || end.Late || !strings.Contains(end.Output, "state is "+state) {
		t.Errorf("want the port of %s to be in state %s: %s", hca, state, end)
	}
}
