package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Rail is an InfiniBand HCA of a node and its netdev.
type Rail struct {
	Bus    string // "fakeib.0" on the platform bus
	HCA    string
	Netdev string
	Active bool // its port
}

// Node is a host with rails, its netdevs named and configured so that there is something to lose.
type Node struct {
	Rails    []Rail
	Bond     string // RoCE HCA on Ethernet, carries the default route
	Pristine State  // right after set-up
}

// s1 is the node that most tests run on: four ACTIVE rails, two Down ones, and an Ethernet bond.
var s1 = Node{
	Rails: []Rail{
		{"fakeib.0", "mlx5_0", "ibs108", true},
		{"fakeib.1", "mlx5_3", "ibs110", true},
		{"fakeib.2", "mlx5_4", "ibs112", true},
		{"fakeib.3", "mlx5_7", "ibs114", true},
		{"fakeib.4", "mlx5_5", "ibs116", false},
		{"fakeib.5", "mlx5_6", "ibs118", false},
	},
	Bond: "mlx5_bond_0",
}

// s1Ready is the node as S1 left it, until a fabric is loaded.
var s1Ready *Node

// s1File has the snapshot of that node for the processes that run after this one in the same guest.
const s1File = "/run/fabric-s1.json"

// S1 makes this guest the node with four Active rails, two Down ones and a bond. A guest that still is that node,
// unchanged, stays as it is, also when another process has set it up. Any other guest is set up again, so that a test
// that failed does not spoil the ones behind it.
func S1(t testing.TB) *Node {
	t.Helper()
	if s1Ready == nil {
		s1Ready = s1OfAnEarlierProcess()
	}
	if s1Ready != nil {
		// A test that spoiled it has waited already.
		if difference(s1Ready.Pristine, Take, time.Second) == "" {
			return s1Ready
		}
	}
	forgetS1()
	n := s1
	n.setUp(t)
	n.Pristine = Snapshot(t)
	s1Ready = &n
	data, err := json.Marshal(n.Pristine)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s1File, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return s1Ready
}

// forgetS1 makes the next S1 set up the node again.
func forgetS1() {
	s1Ready = nil
	_ = os.Remove(s1File) // mostly it does not exist; the snapshot in one that stays is compared with the host
}

// s1OfAnEarlierProcess returns the node that another process has set up, nil if the host is no longer that node.
// The texts are compared because JSON does not distinguish an empty list from a missing one.
func s1OfAnEarlierProcess() *Node {
	saved, err := os.ReadFile(s1File)
	if err != nil {
		return nil
	}
	n := s1
	err = await(func() error {
		if n.Pristine, err = Take(); err != nil {
			return err
		}
		now, err := json.Marshal(n.Pristine)
		if err == nil && !bytes.Equal(saved, now) {
			err = errors.New("the host differs")
		}
		return err
	}, time.Second)
	if err != nil {
		return nil
	}
	return &n
}

// Rail returns the rail whose netdev has this name on the host.
func (n *Node) Rail(netdev string) Rail {
	for _, r := range n.Rails {
		if r.Netdev == netdev {
			return r
		}
	}
	return Rail{}
}

// Names maps bus addresses to the names of the netdevs, for Udev.
func (n *Node) Names() map[string]string {
	names := make(map[string]string)
	for _, r := range n.Rails {
		names[r.Bus] = r.Netdev
	}
	return names
}

func (n *Node) setUp(t testing.TB) {
	t.Helper()
	// What an earlier set-up left. A flush spares only the rule for the local table.
	commands(t, [][]string{
		{"ip", "rule", "flush"}, {"ip", "rule", "add", "table", "main", "priority", "32766"},
		{"ip", "rule", "add", "table", "default", "priority", "32767"},
		{"ip", "-6", "rule", "flush"}, {"ip", "-6", "rule", "add", "table", "main", "priority", "32766"},
	})
	for _, dir := range StateDirs {
		if err := removeBelow(dir); err != nil {
			t.Fatal(err)
		}
	}
	n.bond(t)
	fabric := Fabric{Num: len(n.Rails), RoCE: []string{"bond0@" + firstNIC(t)}}
	for _, r := range n.Rails {
		fabric.Names = append(fabric.Names, r.HCA)
		state := Down
		if r.Active {
			state = Active
		}
		fabric.States = append(fabric.States, state)
	}
	fabric.Names = append(fabric.Names, n.Bond)
	fabric.Load(t)
	host := Host(t)
	for _, r := range n.Rails {
		l, err := NetdevOf(host, r.Bus)
		if err != nil {
			t.Fatal(err)
		}
		if err := host.LinkSetName(l, r.Netdev); err != nil {
			t.Fatal(err)
		}
	}
	n.configure(t)
}

// configure gives each netdev something else to lose.
func (n *Node) configure(t testing.TB) {
	t.Helper()
	for path, value := range map[string]string{
		"/sys/class/net/ibs110/mode":                      "connected",
		"/sys/class/net/ibs112/umcast":                    "1",
		"/proc/sys/net/ipv6/conf/ibs112/addr_gen_mode":    "1",
		"/proc/sys/net/ipv4/conf/ibs108/arp_ignore":       "1",
		"/proc/sys/net/ipv4/conf/ibs108/arp_announce":     "2",
		"/proc/sys/net/ipv4/conf/ibs108/rp_filter":        "2",
		"/proc/sys/net/ipv6/conf/ibs108/accept_ra":        "0",
		"/proc/sys/net/ipv6/conf/ibs110/use_tempaddr":     "-1",
		"/proc/sys/net/ipv4/conf/ibs114/accept_local":     "1",
		"/proc/sys/net/ipv4/conf/ibs114/forwarding":       "1",
		"/proc/sys/net/ipv6/conf/ibs114/accept_redirects": "0",
	} {
		// IPoIB compares the mode with its line end.
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var list [][]string
	for line := range strings.Lines(s1Commands) {
		if fields := strings.Fields(line); len(fields) > 0 {
			list = append(list, fields)
		}
	}
	// An alias with spaces, as people write them.
	list = append(list, []string{"ip", "link", "set", "ibs108", "alias", "rail 0, leaf 1 port 12"})
	commands(t, list)
}

const s1Commands = `
ip link property add dev ibs108 altname rail0 altname ibp8s0
ip link property add dev ibs110 altname rail1
ip link set ibs108 mtu 4092 up
ip link set ibs110 txqueuelen 500 mtu 2000 up
ip link set ibs112 group 7 allmulticast on up
ip link set ibs114 up
ip link set ibs116 up
ip address add 10.8.0.1/24 dev ibs108
ip address add 10.8.0.7/24 dev ibs108 label ibs108:vip
ip address add fd00:8::1/64 dev ibs108 nodad
ip address add 10.10.0.1/24 dev ibs110 noprefixroute
ip address add fd00:10::1/64 dev ibs110 nodad preferred_lft 0
ip address add 10.12.0.1 peer 10.12.0.2/32 dev ibs112
ip address add 10.18.0.1/24 dev ibs118
ip route add 10.88.0.0/16 via 10.8.0.254 dev ibs108 metric 77 mtu 1500
ip route add default via 10.8.0.254 dev ibs108 table 108
ip route add 10.8.0.0/24 dev ibs108 scope link src 10.8.0.1 table 108
ip rule add from 10.8.0.1 lookup 108 priority 1008
ip rule add iif ibs110 lookup 110 priority 1010
ip route add 10.10.0.0/24 dev ibs110 src 10.10.0.1 metric 5 table 110
ip -6 route add fd88::/32 via fd00:8::254 dev ibs108 metric 99
ip -6 route add fd88::/32 dev ibs108 table 108
ip -6 rule add from fd00:8::1 lookup 108 priority 1008
`

// bond makes bond0 on the first NIC, with the node's address and the default route.
func (n *Node) bond(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/sys/class/net/bond0"); err == nil {
		return
	}
	Modprobe(t, "bonding", "max_bonds=0")
	commands(t, [][]string{
		{"ip", "link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "100"},
		{"ip", "link", "set", firstNIC(t), "master", "bond0"},
		{"ip", "link", "set", "bond0", "up"},
		{"ip", "address", "add", "192.168.77.1/24", "dev", "bond0"},
		{"ip", "route", "add", "default", "via", "192.168.77.254"},
	})
}

// firstNIC returns the name of the first netdev on a PCI function.
func firstNIC(t testing.TB) string {
	t.Helper()
	Modprobe(t, "virtio_net")
	links, err := dump(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if bus := l.Attrs().ParentDevBus; bus == "virtio" || bus == "pci" {
			return l.Attrs().Name
		}
	}
	t.Fatal("this suite's guests have no network card; see Suite.Devices")
	return ""
}

// commands runs command lines. Neighbouring ones of ip share a process: starting one is most of their time in
// emulation.
func commands(t testing.TB, list [][]string) {
	t.Helper()
	if err := commandsHere(list); err != nil {
		t.Fatal(err)
	}
}

// commandsHere is commands for a thread in another network namespace.
func commandsHere(list [][]string) error {
	for _, b := range batches(list) {
		cmd := exec.Command(b.command[0], b.command[1:]...)
		cmd.Stdin = strings.NewReader(strings.Join(b.lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s\nlines:\n%s", cmd, err, out, strings.Join(b.lines, "\n"))
		}
	}
	return nil
}

// batch is a command with the lines on its standard input, if any.
type batch struct{ command, lines []string }

// batches puts neighbouring ip commands of one family into one "ip -batch", which stops at the first that fails.
func batches(list [][]string) (all []batch) {
	for _, c := range list {
		if c[0] != "ip" {
			all = append(all, batch{command: c})
			continue
		}
		args, command := c[1:], []string{"ip", "-batch", "-"}
		if args[0] == "-6" {
			args, command = args[1:], []string{"ip", "-6", "-batch", "-"}
		}
		var line []string
		for _, a := range args {
			if strings.ContainsAny(a, " \t") {
				a = `"` + a + `"`
			}
			line = append(line, a)
		}
		if n := len(all); n == 0 || !slices.Equal(all[n-1].command, command) {
			all = append(all, batch{command: command})
		}
		last := &all[len(all)-1]
		last.lines = append(last.lines, strings.Join(line, " "))
	}
	return all
}

// removeBelow empties a directory without removing it: it may be a mount point.
func removeBelow(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(dir+"/"+e.Name()))
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", dir, err)
	}
	return nil
}

// RequireMode fails the test unless the guest's RDMA devices have exclusive, or shared, network namespaces.
func RequireMode(t testing.TB, mode string) {
	t.Helper()
	h, err := netlink.NewHandle(unix.NETLINK_RDMA)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	got, err := h.RdmaSystemGetNetnsMode()
	if err != nil {
		t.Fatal(err)
	}
	if got != mode {
		t.Fatalf("RDMA network namespaces are %s, the suite should make them %s", got, mode)
	}
}
