//go:build labguest

package guest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// ports makes an HCA of two ports, mlx5_0, and its attachment, which is to be added: it gets 10.1.0.2 and 10.1.0.3.
// names are its interfaces. Another pod has the HCAs mlx5_1 and mlx5_2 of one port, with 10.1.0.101 and 10.1.0.102.
func ports(t *testing.T) (both *attachment, names [2]string, peers [2]rail) {
	t.Helper()
	UserLand(t)
	e := nics(t, "e1000e")
	name := func(i int) string { return e[i].Attrs().Name }
	Fabric{RoCE: []string{name(0) + "+" + name(1), name(2), name(3)}, RoCEVerbs: true}.Load(t)
	Unchanged(t)
	both = interfaceOf(NewPod(t, "both"), "net1", network(config{
		"device": name(0), "allPorts": true, "allowDown": true, "ipam": hostLocal("10.1.0.0/24"),
		"routing": config{"sourceBased": true},
	}))
	pod := NewPod(t, "peers")
	for i := range peers {
		peers[i] = rail{
			attachment: interfaceOf(pod, fmt.Sprintf("net%d", i+1), network(config{
				"device": name(2 + i), "ipam": static(fmt.Sprintf("10.1.0.%d/24", 101+i)),
				"routing": config{"sourceBased": true},
			})),
			hca: fmt.Sprintf("mlx5_%d", i+1), address: fmt.Sprintf("10.1.0.%d", 101+i),
		}
		peers[i].add(t)
		PortIs(t, pod, peers[i].hca, 1, "4: ACTIVE")
	}
	return both, [2]string{name(0), name(1)}, peers
}

// A pod gets an HCA with the interfaces of both ports, and does RDMA over each of them. One that is down leaves the
// other, and CHECK names what the pod has changed.
func TestTrafficRoCEPorts(t *testing.T) {
	both, names, peers := ports(t)
	out := both.add(t)
	for _, want := range []string{`"net1"`, `"net1p2"`, "10.1.0.2/24", "10.1.0.3/24"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("want %s in %s", want, out.Stdout)
		}
	}
	both.pod.hasHCA(t, "mlx5_0")
	for i := range peers {
		ping(t, both.pod, peers[i].address)
		address := fmt.Sprintf("10.1.0.%d", 2+i)
		args := func(r string, pod *Pod, port int, ip string) []string {
			gid := gidIndex(t, pod, r, port, ip, RoCEv2)
			return []string{"-d", r, "-i", fmt.Sprint(port), "-x", fmt.Sprint(gid)}
		}
		Pair{
			Server: peers[i].pod, Client: both.pod, Address: peers[i].address,
			Tool:       []string{"ib_write_bw", "-F", "-n", "50", "-s", "65536"},
			ServerArgs: args(peers[i].hca, peers[i].pod, 1, peers[i].address),
			ClientArgs: args("mlx5_0", both.pod, i+1, address),
		}.Must(t)
	}
	both.call("CHECK").Must(t)
	env := both.pod.Run(t, BinDir()+"/fabricctl", "nccl-env")
	if !env.OK() || !strings.Contains(env.Output, "NCCL_IB_HCA='=mlx5_0:1,mlx5_0:2'") {
		t.Errorf("want both ports in %s", env)
	}
	found := onHost(t, BinDir()+"/fabricctl discover; "+BinDir()+"/fabricctl plan --netns "+both.pod.Path+
		" --ifname net1")
	for i, name := range names {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^mlx5_0 +%d +%s .* container both$`, i+1, name))
		back := "ip link set $DEV netns 1 name " + name
		if !row.MatchString(found) || !strings.Contains(found, back) {
			t.Errorf("want %s and %s in %s", row, back, found)
		}
	}

	both.pod.sh(t, "ip address del 10.1.0.3/24 dev net1p2")
	wantError(t, both.call("CHECK").Exec(t), 105, "net1p2", "10.1.0.3/24")
	both.del(t)
	both.pod.hasHCA(t)
	for _, p := range peers {
		p.del(t)
	}
}

// What is wrong with the interface of the second port is said before anything moves.
func TestTrafficRoCEPortsRefused(t *testing.T) {
	both, names, peers := ports(t)
	second := names[1]
	for _, p := range peers {
		p.del(t)
	}
	delete(both.conf, "allPorts")
	wantError(t, both.call("ADD").Exec(t), 101, "carries "+second+" (port 2) as well as", `"allPorts": true`)

	both.conf["allPorts"] = true
	onHost(t, "ip link add br9 type bridge && ip link set "+second+" master br9")
	wantError(t, both.call("ADD").Exec(t), 104, "port 2 ("+second+")", "bridge")
	onHost(t, "ip link del br9")

	both.ifname = "a-name-of-15-ch"
	wantError(t, both.call("ADD").Exec(t), 4, "CNI_IFNAME", `"a-name-of-15-chp2"`)
	both.ifname = "net1"
	both.add(t)
	both.del(t)
}

// The pod gets the interfaces of all four ports of an HCA, as a card with four planes has them.
func TestTrafficRoCEPortsFour(t *testing.T) {
	UserLand(t)
	var names []string
	for _, l := range nics(t, "e1000e")[:4] {
		names = append(names, l.Attrs().Name)
	}
	Fabric{RoCE: []string{strings.Join(names, "+")}, RoCEVerbs: true}.Load(t)
	Unchanged(t)
	pod := NewPod(t, "all")
	all := interfaceOf(pod, "net1", network(config{
		"device": names[0], "allPorts": true, "ipam": hostLocal("10.4.0.0/24"), "routing": config{"sourceBased": true},
	}))
	out := all.add(t)
	for i, name := range []string{"net1", "net1p2", "net1p3", "net1p4"} {
		if address := fmt.Sprintf("10.4.0.%d/24", 2+i); !strings.Contains(out.Stdout, `"`+name+`"`) ||
			!strings.Contains(out.Stdout, address) {
			t.Errorf("want %s with %s in %s", name, address, out.Stdout)
		}
		PortIs(t, pod, "mlx5_0", i+1, "4: ACTIVE")
	}
	all.call("CHECK").Must(t)
	all.del(t)
	pod.hasHCA(t)
}
