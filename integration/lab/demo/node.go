package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fabric-cni/fabric-cni/integration/lab/guest"
)

// hcas are the simulated HCAs in the order of fakeib's parameters. The node is one of many like it: four rails, two
// ports without a cable. The last four stand for the next node, as a peer to ping: all of them are plugged into one
// fabric.
var hcas = []struct {
	name, netdev string
	state        int
}{
	{"mlx5_0", "ibs108", guest.Active}, {"mlx5_3", "ibs110", guest.Active},
	{"mlx5_4", "ibs112", guest.Active}, {"mlx5_7", "ibs114", guest.Active},
	{"mlx5_5", "ibs116", guest.Down}, {"mlx5_6", "ibs118", guest.Down},
	{"mlx5_8", "ibs208", guest.Active}, {"mlx5_9", "ibs210", guest.Active},
	{"mlx5_10", "ibs212", guest.Active}, {"mlx5_11", "ibs214", guest.Active},
}

// inGuest makes the guest the node, runs the demo in it, and compares the whole state of the host.
func inGuest(ctx context.Context, bin string, stdout io.Writer) error {
	if os.Getenv("FABRIC_LAB_GUEST") == "" {
		return errors.New("-guest is for the lab's guests: it sets up the machine it runs on")
	}
	if err := guest.LayOver([]string{filepath.Join(os.Getenv("FABRIC_USERLAND"), "root")}); err != nil {
		return err
	}
	if err := setUp(ctx, bin); err != nil {
		return fmt.Errorf("set up the node: %w", err)
	}
	before, err := settled()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(
		ctx,
		"scripts/demo.sh",
		"--yes",
		"--down",
		"ibs116",
		"ibs108",
		"ibs110",
		"ibs112",
		"ibs114",
		"--",
		"ibs208",
		"ibs210",
		"ibs212",
		"ibs214",
	)
	cmd.Env = append(
		os.Environ(),
		"FABRIC_DEMO_PEER=on the devices of the next node (mlx5_8 to mlx5_11 stand for it here)",
		"FABRIC_BIN=/opt/cni/bin",
		"FABRIC_DEMO_EMULATED=yes",
	)
	cmd.Stdout, cmd.Stderr = stdout, stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("scripts/demo.sh: %w", err)
	}
	diff, err := difference(before)
	if err != nil {
		return err
	}
	if diff != "" {
		return fmt.Errorf("the host is not what it was (-before +after):\n%s", diff)
	}
	fmt.Fprintf(
		stdout,
		"\n   IDENTICAL, also by the lab's own eyes: %d links with every attribute and sysctl, %d routes, %d rules,\n"+
			"   %d RDMA devices, and no file left in /run/fabric-cni or /var/lib/cni.\n",
		len(before.Links),
		len(before.Routes),
		len(before.Rules),
		len(before.RDMA),
	)
	return nil
}

func setUp(ctx context.Context, bin string) error {
	var names, states []string
	for _, h := range hcas {
		names, states = append(names, h.name), append(states, fmt.Sprint(h.state))
	}
	return shell(ctx, fmt.Sprintf(`
mkdir -p /opt/cni/bin
cp %sfabric %scnitool %shost-local /opt/cni/bin/
modprobe virtio_net
modprobe bonding max_bonds=0
modprobe ib_ipoib
modprobe -a ib_umad ib_uverbs
ip link add bond0 type bond mode active-backup miimon 100
ip link set eth0 master bond0
ip link set bond0 up
ip address add 192.0.2.10/24 dev bond0
ip route add default via 192.0.2.1
modprobe fakeib num=%d names=%s,mlx5_bond_0 state=%s roce=bond0@eth0
`, bin, bin, bin, len(hcas), strings.Join(names, ","), strings.Join(states, ","))+rename()+somethingToLose)
}

// rename does what udev does on a host.
func rename() string {
	var b strings.Builder
	b.WriteString("ip -batch - <<EOF\n")
	for i, h := range hcas {
		fmt.Fprintf(&b, "link set ib%d name %s\n", i, h.netdev)
		if h.state == guest.Active {
			fmt.Fprintf(&b, "link set %s up\n", h.netdev)
		}
	}
	return b.String() + "EOF\n"
}

// somethingToLose is what administrators put on such interfaces.
const somethingToLose = `
echo 1 >/sys/class/net/ibs110/umcast
echo 2 >/proc/sys/net/ipv4/conf/ibs114/rp_filter
ip -batch - <<EOF
link property add dev ibs108 altname rail0 altname ibp8s0
link set ibs108 mtu 2044 txqueuelen 512 alias "rail 0, leaf 1 port 12"
address add 10.8.0.1/24 dev ibs108
address add fd00:8::1/64 dev ibs108 nodad
route add 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 77
route add default via 10.8.0.254 dev ibs108 table 108
rule add from 10.8.0.1 lookup 108 priority 1008
link set ibs110 group 7
address add 10.10.0.1/24 dev ibs110
link set ibs112 allmulticast on
EOF
`

// shell runs a script that stops at the first command that fails; the last one in its output is that.
func shell(ctx context.Context, script string) error {
	out, err := exec.CommandContext(ctx, "sh", "-exc", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// What the kernel does by itself (carriers, link-local addresses) is waited for as long as patience, and for so many
// looks at the least: a slow machine takes longer for each.
const (
	patience = 20 * time.Second
	looks    = 100
)

// settled returns the state of the host once every active port has its carrier, duplicate address detection is over,
// and two states in a row are equal.
func settled() (guest.State, error) {
	var last guest.State
	end := time.Now().Add(patience)
	for n := 0; n < looks || time.Now().Before(end); n++ {
		time.Sleep(100 * time.Millisecond)
		s, err := guest.Take()
		if err != nil {
			return s, err
		}
		tentative, err := exec.Command("ip", "-6", "address", "show", "tentative").Output()
		if err != nil {
			return s, err
		}
		if len(tentative) == 0 && ready(s) && guest.Diff(last, s) == "" {
			return s, nil
		}
		last = s
	}
	return last, errors.New("the node does not settle")
}

func ready(s guest.State) bool {
	for _, h := range hcas {
		carrier, err := os.ReadFile(filepath.Join("/sys/class/net", h.netdev, "carrier"))
		active := err == nil && string(carrier) == "1\n" &&
			strings.Contains(strings.Join(s.Addrs[h.netdev], ""), "address fe80:")
		if h.state == guest.Active && !active {
			return false
		}
	}
	return true
}

// difference waits until the host is what it was.
func difference(before guest.State) (diff string, err error) {
	end := time.Now().Add(patience)
	for n := 0; n < looks || time.Now().Before(end); n++ {
		now, err := guest.Take()
		if err != nil {
			return "", err
		}
		if diff = guest.Diff(before, now); diff == "" {
			return "", nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return diff, nil
}
