//go:build labguest

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lifetime is how many seconds an address is valid that the router advertises, each 3 or 4 s.
const lifetime = 12

// advertised is the configuration of radvd: a default route, and a prefix.
const advertised = `interface net1 {
	AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 60;
	prefix fd02::/64 { AdvValidLifetime %d; AdvPreferredLifetime 10; };
};
`

// published makes a configuration one of the agent's.
func published(t *testing.T, conf config) {
	t.Helper()
	const dir = "/run/fabric-cni/networks"
	b, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, fmt.Sprintf("fabric-agent-%s.conf", conf["name"]))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
}

// onHost is what a command prints on the host.
func onHost(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// The addresses that a RoCE rail has on the host go along into the pod: what the host configures, and what a router
// advertises, for three lifetimes. RDMA works by the GIDs of both.
func TestTrafficRoCEHostAddresses(t *testing.T) {
	UserLand(t)
	e := nics(t, "e1000e")
	Fabric{RoCE: []string{e[0].Attrs().Name, e[1].Attrs().Name}, RoCEVerbs: true}.Load(t)
	dev := e[1].Attrs().Name
	shell(t, "ip link set "+dev+" up && ip address add 10.1.0.2/24 dev "+dev)
	Until(t, "the rail is up", func() error {
		if out := onHost(t, "ip -6 address show dev "+dev+" -tentative"); !strings.Contains(out, "fe80::") {
			return errors.New(out)
		}
		return nil
	})
	Unchanged(t)
	server := rail{
		attachment: interfaceOf(NewPod(t, "server"), "net1", network(config{
			"device": e[0].Attrs().Name, "ipam": static("10.1.0.1/24", "fd02::1/64"),
		})),
		hca: "mlx5_0", address: "10.1.0.1",
	}
	server.add(t)
	conf := filepath.Join(t.TempDir(), "radvd.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, advertised, lifetime), 0o600); err != nil {
		t.Fatal(err)
	}
	router := server.pod.Start(t, "radvd", "-C", conf, "-n", "-m", "stderr", "-p", filepath.Join(t.TempDir(), "pid"))
	six := ""
	Until(t, "the host has an address by the router", func() error {
		out := onHost(t, "ip -6 -o address show dev "+dev+" scope global -tentative")
		for _, f := range strings.Fields(out) {
			if a, ok := strings.CutSuffix(f, "/64"); ok && strings.HasPrefix(a, "fd02:") {
				six = a
				return nil
			}
		}
		return fmt.Errorf("%s; %s", out, router.Output())
	})

	fields := config{"device": dev, "hostAddresses": true}
	refused := interfaceOf(NewPod(t, "client"), "net1", network(fields))
	if r := refused.call("ADD").Exec(t); r.Err == nil || !strings.Contains(r.Err.Msg, "default route") {
		t.Errorf("ADD although the host has a default route by the rail: %s", r)
	}
	fields["ignoreRADefaultRoute"] = true
	ours := network(fields)
	published(t, ours)
	client := rail{attachment: interfaceOf(refused.pod, "net1", ours), hca: "mlx5_1", address: "10.1.0.2"}
	client.add(t)
	for _, r := range []rail{server, client} {
		PortIs(t, r.pod, r.hca, 1, "4: ACTIVE")
	}
	for end := time.Now().Add(3 * lifetime * time.Second); time.Now().Before(end); {
		out := client.pod.sh(t, "ip -6 -o address show dev net1 scope global; ip -6 route")
		if !strings.Contains(out, six+"/64") || strings.Contains(out, "default") {
			t.Fatalf("want %s, and no default route:\n%s", six, out)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(time.Second):
		}
	}
	client.call("CHECK").Must(t)
	write := []string{"ib_write_bw", "-F", "-n", "50", "-s", "65536", "--report_gbits"}
	for _, ips := range [][2]string{{"10.1.0.1", "10.1.0.2"}, {"fd02::1", six}} {
		talk := over(t, server, client, ips, RoCEv2, write...).Exec(t)
		if !talk.OK() || !sent50.MatchString(talk.Client.Output) {
			t.Errorf("%s: %s", ips, talk)
		}
	}

	client.del(t)
	Until(t, "the router advertises to the host again", func() error {
		if out := onHost(t, "ip -6 -o address show dev "+dev); !strings.Contains(out, six+"/64") {
			return errors.New(out)
		}
		return nil
	})
	if err := syscall.Kill(router.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	Until(t, "what it has advertised ends", func() error {
		// The kernel removes a route that has run out within half a minute.
		out := onHost(t, "ip -6 -o address show dev "+dev+"; ip -6 route | grep -v expires.-")
		if strings.Contains(out, "fd02") || strings.Contains(out, "default") {
			return errors.New(out)
		}
		return nil
	})
	onHost(t, "ip -6 route flush fd02::/64 dev "+dev)
	server.del(t)
}
