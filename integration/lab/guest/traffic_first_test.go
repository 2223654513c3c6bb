//go:build labguest

package guest

import (
	"regexp"
	"testing"
)

// sent50 is the line of results that perftest prints when it has sent 50 messages: bytes, iterations, peak, average.
// With -F the figures are zeros where it could not measure the clock, which says nothing of what was sent.
var sent50 = regexp.MustCompile(`(?m)^ *65536 +50 +[0-9.]+ +[0-9.]+`)

// Two pods that got a rail each do RDMA over them, and the host is as before when both are gone.
func TestTrafficFirst(t *testing.T) {
	UserLand(t)
	Fabric{Num: 2}.Load(t)
	Unchanged(t)
	server, client := NewPod(t, "server"), NewPod(t, "client")
	rails := []*attachment{
		interfaceOf(server, "net1", network(config{"device": "ib0", "ipam": static("10.1.0.1/24")})),
		interfaceOf(client, "net1", network(config{"device": "ib1", "ipam": static("10.1.0.2/24")})),
	}
	for _, a := range rails {
		a.add(t)
	}
	ping(t, client, "10.1.0.1")
	if talk := Exchange(t, server, client, []string{"ibv_rc_pingpong", "-e", "-n", "50"}, "10.1.0.1"); !talk.OK() {
		t.Errorf("ibv_rc_pingpong:\n%s", talk)
	}
	tool := []string{"ib_write_bw", "-F", "-n", "50", "-s", "65536", "--report_gbits"}
	talk := Exchange(t, server, client, tool, "10.1.0.1")
	if !talk.OK() || !sent50.MatchString(talk.Client.Output) {
		t.Errorf("ib_write_bw:\n%s", talk)
	}
	rping := Pair{
		Server: server, Client: client, Tool: []string{"rping", "-a", "10.1.0.1", "-C", "3"}, CM: true,
		ServerArgs: []string{"-s"}, ClientArgs: []string{"-c"},
	}
	rping.Must(t)
	for _, a := range rails {
		a.del(t)
	}
}
