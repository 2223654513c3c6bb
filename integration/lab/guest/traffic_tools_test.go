//go:build labguest

package guest

import (
	"strings"
	"testing"
)

// conversation is a tool between two pods, and how much it has to move.
type conversation struct {
	name           string
	tool           []string
	server, client []string // further arguments
	cm             bool     // they meet through the RDMA connection manager
	alone          bool     // the client's last argument is not the server's address
	up, down       uint64   // octets that the client sends, and receives, at the very least
	want           string   // in the client's output
}

// conversations are the tools that people have, each with what checks its data where it can. Between them: RC, UC and
// UD, shared receive queues, SEND, WRITE, READ and both ATOMICs, inline and immediate data (rstream sends by WRITE
// with immediate), queue pairs made by hand and through rdma_cm.
func conversations(server string) []conversation {
	const all = messages * messageSize
	pingpong := func(name string, args ...string) []string {
		return append([]string{name, "-e", "-c", "-n", "50"}, args...)
	}
	return []conversation{
		{name: "rc", tool: pingpong("ibv_rc_pingpong"), up: 50 * 4096, down: 50 * 4096},
		{name: "uc", tool: pingpong("ibv_uc_pingpong"), up: 50 * 4096, down: 50 * 4096},
		{name: "ud", tool: pingpong("ibv_ud_pingpong", "-s", "2048"), up: 50 * 2048, down: 50 * 2048},
		{name: "srq", tool: pingpong("ibv_srq_pingpong", "-q", "2"), up: 50 * 4096, down: 50 * 4096},
		{name: "write", tool: sized("ib_write_bw"), up: all},
		{name: "write-uc", tool: sized("ib_write_bw", "-c", "UC"), up: all},
		{name: "write-cm", tool: sized("ib_write_bw", "-R"), up: all, cm: true},
		{name: "read", tool: sized("ib_read_bw"), down: all},
		{name: "send", tool: sized("ib_send_bw"), up: all},
		{name: "send-ud", tool: perftest("ib_send_bw", "-c", "UD", "-s", "4096"), up: messages * 4096},
		{name: "send-srq", tool: sized("ib_send_bw", "--use-srq", "-r", "60"), up: all},
		{name: "fetch-and-add", tool: perftest("ib_atomic_bw", "-A", "FETCH_AND_ADD"), up: messages * 8},
		{name: "compare-and-swap", tool: perftest("ib_atomic_bw", "-A", "CMP_AND_SWAP"), up: messages * 8},
		{name: "inline-latency", tool: perftest("ib_send_lat", "-e", "-I", "64", "-s", "64"), up: messages * 64},
		{name: "write-latency", tool: perftest("ib_write_lat", "-s", "64"), up: messages * 64},
		{
			name: "rping", tool: []string{"rping", "-a", server, "-C", "5", "-S", "4096", "-v", "-V"},
			server: []string{"-s"}, client: []string{"-c"}, cm: true, alone: true, want: "rdma-ping-4: EFGH",
			up: 5 * 4096, down: 5 * 4096,
		},
		{
			name: "rstream", tool: []string{"rstream", "-T", "v", "-S", "16384", "-C", "20"},
			server: []string{"-b", server}, client: []string{"-s", server}, cm: true, alone: true, want: "custom",
			up: 20 * 16384, down: 20 * 16384,
		},
		{
			name: "udaddy", tool: []string{"udaddy", "-S", "1024", "-C", "20"},
			server: []string{"-b", server}, client: []string{"-s", server}, cm: true, alone: true,
			up: 20 * 1024, want: "return status 0",
		},
	}
}

// Every tool that people have works between a pod that got its rail by the netdev's name and one that got it by the
// HCA's. What a tool moves is what the ports of both have counted, in its direction.
func TestTrafficTools(t *testing.T) {
	trafficFabric(t, Fabric{Num: 2})
	server := podWithRails(t, "server", 1, config{"device": "ib0"})
	client := podWithRails(t, "client", 2, config{"rdmaDevice": "mlx5_1"})
	ping(t, client.Pod, server.address(1))
	for _, c := range conversations(server.address(1)) {
		t.Run(c.name, func(t *testing.T) { c.check(t, server, client, "mlx5_0", "mlx5_1") })
	}
	server.leave(t)
	client.leave(t)
}

// count compares what the ports of both sides have counted with what the tool moves.
func (c conversation) count(t *testing.T, server, client moved) {
	t.Helper()
	if client.sent < c.up || server.received < c.up || client.received < c.down || server.sent < c.down {
		t.Errorf("the client's port has %+v and the server's %+v, want at least %d up and %d down",
			client, server, c.up, c.down)
	}
	// What only the other direction carries is acknowledgements, and how the two sides met.
	if c.down == 0 && c.up > 1<<20 && client.received > c.up/4 || c.up == 0 && client.sent > c.down/4 {
		t.Errorf("the client's port has %+v, want %d up and %d down", client, c.up, c.down)
	}
}

// check runs the tool over these HCAs.
func (c conversation) check(t *testing.T, server, client *trafficPod, serverHCA, clientHCA string) {
	t.Helper()
	pair := Pair{
		Server: server.Pod, Client: client.Pod, Tool: c.tool, ServerArgs: c.server, ClientArgs: c.client, CM: c.cm,
	}
	if !c.alone {
		pair.Address = server.address(1)
	}
	serverBefore, clientBefore := octets(t, server, serverHCA), octets(t, client, clientHCA)
	talk := pair.Must(t)
	c.count(t, octets(t, server, serverHCA).since(serverBefore), octets(t, client, clientHCA).since(clientBefore))
	output := talk.Server.Output + talk.Client.Output
	for _, bad := range []string{"invalid data", "mismatch", "verification failed"} {
		if strings.Contains(output, bad) {
			t.Errorf("the data is wrong:\n%s", talk)
		}
	}
	if !strings.Contains(talk.Client.Output, c.want) {
		t.Errorf("the client does not say %q:\n%s", c.want, talk)
	}
	if c.want == "" {
		measured(t, talk)
	}
	server.idleAgain(t)
	client.idleAgain(t)
}
