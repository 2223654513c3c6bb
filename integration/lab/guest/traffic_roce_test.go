//go:build labguest

package guest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// rail is a RoCE rail in a pod.
type rail struct {
	*attachment
	hca, address string
}

// roceRails gives two pods a RoCE rail each: the server has 10.1.0.1 on mlx5_0, the client 10.1.0.2 on mlx5_1.
func roceRails(t *testing.T) (server, client rail) {
	t.Helper()
	UserLand(t)
	e := nics(t, "e1000e")
	Fabric{RoCE: []string{e[0].Attrs().Name, e[1].Attrs().Name}, RoCEVerbs: true}.Load(t)
	Unchanged(t)
	var rails []rail
	for i, name := range []string{"server", "client"} {
		r := rail{
			attachment: interfaceOf(NewPod(t, name), "net1", network(config{
				"device": e[i].Attrs().Name,
				"ipam":   static(fmt.Sprintf("10.1.0.%d/24", i+1), fmt.Sprintf("fd01::%d/64", i+1)),
			})),
			hca:     fmt.Sprintf("mlx5_%d", i),
			address: fmt.Sprintf("10.1.0.%d", i+1),
		}
		r.add(t)
		rails = append(rails, r)
	}
	for _, r := range rails {
		PortIs(t, r.pod, r.hca, 1, "4: ACTIVE")
		r.pod.hasHCA(t, r.hca)
		// The GID of a tentative IPv6 address is there, but the kernel does not look for a neighbour with it.
		Until(t, "the IPv6 addresses are not tentative", func() error {
			out, err := r.pod.Command("ip", "-6", "address", "show", "tentative")
			if err == nil && out != "" {
				err = errors.New(out)
			}
			return err
		})
	}
	ping(t, rails[1].pod, byIPv4[0])
	ping(t, rails[1].pod, byIPv6[0])
	return rails[0], rails[1]
}

// over is a tool between two rails that uses the GIDs of two addresses of one RoCE version: option is -g or -x.
func over(t *testing.T, server, client rail, ips [2]string, version string, tool ...string) Pair {
	t.Helper()
	option := "-x"
	if strings.HasPrefix(tool[0], "ibv_") {
		option = "-g"
	}
	args := func(r rail, ip string) []string {
		return []string{"-d", r.hca, option, fmt.Sprint(GIDIndex(t, r.pod, r.hca, ip, version))}
	}
	return Pair{
		Server: server.pod, Client: client.pod, Tool: tool, Address: server.address,
		ServerArgs: args(server, ips[0]), ClientArgs: args(client, ips[1]),
	}
}

var (
	byIPv4 = [2]string{"10.1.0.1", "10.1.0.2"}
	byIPv6 = [2]string{"fd01::1", "fd01::2"}
)

// Two pods do RDMA over the RoCE rails that the plugin gave them: by the GIDs of IPv4 and IPv6, of both versions, with
// queue pairs of every kind, and with the connection manager.
func TestTrafficRoCE(t *testing.T) {
	Modprobe(t, "8021q")
	server, client := roceRails(t)
	write := []string{"ib_write_bw", "-F", "-n", "50", "-s", "65536", "--report_gbits"}
	rc := []string{"ibv_rc_pingpong", "-e", "-n", "50"}
	for _, c := range []struct {
		ips     [2]string
		version string
		tool    []string
	}{
		{byIPv6, RoCEv2, rc},
		{byIPv4, RoCEv1, rc},
		{byIPv4, RoCEv2, []string{"ibv_ud_pingpong", "-e", "-n", "50"}},
		{byIPv4, RoCEv2, write},
	} {
		talk := over(t, server, client, c.ips, c.version, c.tool...).Exec(t)
		if !talk.OK() || c.tool[0] == write[0] && !sent50.MatchString(talk.Client.Output) {
			t.Errorf("%s, %s: %s", c.version, c.ips, talk)
		}
	}
	const written = 50 * 65536 / 4 // the counters' unit is four octets
	sent := Counters(t, client.pod, client.hca)["port_xmit_data"]
	received := Counters(t, server.pod, server.hca)["port_rcv_data"]
	if sent < written || received < written {
		t.Errorf("port_xmit_data %d, port_rcv_data %d, want %d and more", sent, received, written)
	}
	Pair{Server: server.pod, Client: client.pod, Tool: append(write, "-R"), CM: true, Address: server.address}.Must(t)

	vlans(t, server, client)

	// What programs are told to use is what has worked here.
	want := fmt.Sprintf("NCCL_IB_GID_INDEX='%d'", GIDIndex(t, client.pod, client.hca, client.address, RoCEv2))
	env := client.pod.Run(t, BinDir()+"/fabricctl", "nccl-env")
	if !env.OK() || !containsAll(env.Output, want, "NCCL_IB_HCA='=mlx5_1:1'") {
		t.Errorf("want %s of %s", want, env)
	}
	for _, r := range []rail{server, client} {
		r.call("CHECK").Must(t)
	}
	mtus(t, client)
	server.del(t)
	client.del(t)
}

var activeMTU = regexp.MustCompile(`active_mtu:\s+(\d+)`)

// vlans lets two pods talk over a VLAN on their rails: it has GIDs of its own.
func vlans(t *testing.T, server, client rail) {
	t.Helper()
	for i, r := range []rail{server, client} {
		r.pod.sh(t, fmt.Sprintf(
			"ip link add link net1 name vlan5 type vlan id 5; ip link set vlan5 up; ip address add 10.5.0.%d/24 dev "+
				"vlan5",
			i+1,
		))
	}
	ping(t, client.pod, "10.5.0.1")
	byVLAN := [2]string{"10.5.0.1", "10.5.0.2"}
	over(t, server, client, byVLAN, RoCEv2, "ibv_rc_pingpong", "-e", "-n", "50").Must(t)
	args := []string{"-a", "10.5.0.1", "-C", "3"}
	Pair{
		Server: server.pod, Client: client.pod, Tool: []string{"rping"}, CM: true,
		ServerArgs: append([]string{"-s"}, args...), ClientArgs: append([]string{"-c"}, args...),
	}.Must(t)
}

// mtus checks that the active MTU of a rail's port is what the netdev's MTU leaves for it.
func mtus(t *testing.T, r rail) {
	t.Helper()
	for mtu, want := range map[int]string{1500: "1024", 4300: "4096"} {
		r.pod.sh(t, fmt.Sprintf("ip link set net1 mtu %d", mtu))
		out := r.pod.Run(t, "ibv_devinfo", "-d", r.hca)
		if got := activeMTU.FindStringSubmatch(out.Output); got == nil || got[1] != want {
			t.Errorf("netdev's MTU %d: want an active MTU of %s: %s", mtu, want, out)
		}
	}
}

// endlessly writes between two RoCE rails until something ends it.
func endlessly(t *testing.T, server, client rail) *Talking {
	t.Helper()
	return endless(t, server.pod, client.pod, server.hca, client.hca, server.address, 18600)
}

// retriesExceeded waits until both sides of an endless exchange fail because the other one does not answer, as the
// status of a work request says.
func retriesExceeded(t *testing.T, talking *Talking) {
	t.Helper()
	for _, p := range []*Program{talking.Client, talking.Server} {
		fails(t, p)
		if !strings.Contains(p.Output(), "Failed status 12") {
			t.Errorf("want IBV_WC_RETRY_EXC_ERR: %s", p.Output())
		}
	}
}

// What ends a pod's network ends its RDMA traffic, and brings it back: the interface, its address. DEL takes the rail
// out of a pod that uses it, alive or dead, and the next pod can use it.
func TestTrafficRoCEStops(t *testing.T) {
	server, client := roceRails(t)
	for _, c := range []struct{ what, stop, start, state string }{
		{"interface", "ip link set net1 down", "ip link set net1 up", "1: DOWN"},
		{"address", "ip address del 10.1.0.2/24 dev net1", "ip address add 10.1.0.2/24 dev net1", "4: ACTIVE"},
	} {
		t.Run(c.what, func(t *testing.T) {
			talking := endlessly(t, server, client)
			client.pod.sh(t, c.stop)
			retriesExceeded(t, talking)
			PortIs(t, client.pod, client.hca, 1, c.state)
			client.pod.sh(t, c.start)
			PortIs(t, client.pod, client.hca, 1, "4: ACTIVE")
			ping(t, client.pod, server.address)
		})
	}
	talking := endlessly(t, server, client)
	client.del(t)
	fails(t, talking.Server)
	talking.Client.Kill() // it may wait for ever for a completion of a device that it has no more
	client.pod.hasHCA(t)

	next := client
	next.attachment = interfaceOf(NewPod(t, "next"), "net1", client.conf)
	next.add(t)
	PortIs(t, next.pod, next.hca, 1, "4: ACTIVE")
	ping(t, next.pod, server.address)
	talking = endlessly(t, server, next)
	next.pod.Delete(t)
	talking.Client.Kill()
	fails(t, talking.Server)
	next.del(t)
	server.del(t)
}

// Such ports have the driver id of rdma_rxe, which would take them for its own: one of the two modules is refused.
func TestTrafficRoCEWithoutRxe(t *testing.T) {
	name := nics(t, "e1000e")[0].Attrs().Name
	Fabric{RoCE: []string{name}, RoCEVerbs: true}.Load(t)
	busy := func(module ...string) {
		t.Helper()
		if err := run("modprobe", module...); err == nil || !strings.Contains(err.Error(), "busy") {
			t.Errorf("modprobe %v: %v", module, err)
		}
	}
	busy("rdma_rxe")
	Unload(t)
	Modprobe(t, "rdma_rxe")
	busy("fakeib", "num=0", "roce_verbs=1", "roce="+name)
	Modprobe(t, "-r", "rdma_rxe")
	Fabric{RoCE: []string{name}, RoCEVerbs: true}.Load(t)
}
